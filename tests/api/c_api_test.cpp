// What the C interface owes a trainer beside the bytes: whatever is passed, in whatever order and process, a call ends
// with a code, and what one rank does wrong all ranks learn.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/ckpt.h"
#include "support/temp_dir.hpp"
#include "support/thread_comm.hpp"

namespace ckpt::test {
namespace {

std::string why() {
  return ckpt_last_error_json();
}

class CApi : public testing::Test {
 protected:
  ckpt_run* open(ckpt_options options = {.size = sizeof(ckpt_options)}) const {
    ckpt_run* run = nullptr;
    EXPECT_EQ(ckpt_run_open(run_.c_str(), &options, &run), 0) << why();
    return run;
  }
  static ckpt_save* begin(ckpt_run* run, std::uint64_t step) {
    ckpt_save* save = nullptr;
    EXPECT_EQ(ckpt_begin(run, step, &save), 0) << why();
    return save;
  }
  const TempDir directory_{memory_temp_dir()};
  const std::string run_ = directory_.path() + "/run";
};

TEST_F(CApi, NothingIsAValueThatEveryFunctionRefuses) {
  ckpt_run* run = open();
  ckpt_save* save = begin(run, 1);
  EXPECT_EQ(ckpt_run_open(nullptr, nullptr, &run), 2);
  EXPECT_EQ(ckpt_run_open(run_.c_str(), nullptr, nullptr), 2);
  EXPECT_EQ(ckpt_run_close(nullptr), 0);
  int answer = 0;
  EXPECT_EQ(ckpt_should_save(nullptr, 1, &answer), 2);
  EXPECT_EQ(ckpt_should_save(run, 1, nullptr), 2);
  EXPECT_EQ(ckpt_stop_requested(nullptr), 0);
  EXPECT_EQ(ckpt_ranks_lost(nullptr), 0);
  EXPECT_EQ(ckpt_comm_world(nullptr), 2);
  ckpt_model* model = nullptr;
  EXPECT_EQ(ckpt_model_new(nullptr, 1, &model), 2);
  EXPECT_EQ(ckpt_model_new(nullptr, 0, nullptr), 2);
  ASSERT_EQ(ckpt_model_new(nullptr, 0, &model), 0) << why();
  const ckpt_tensor nameless{.size = sizeof(ckpt_tensor), .dtype = "F32"};
  const ckpt_tensor shapeless{.size = sizeof(ckpt_tensor), .name = "w", .dtype = "F32", .ndim = 1};
  EXPECT_EQ(ckpt_model_tensor(nullptr, &nameless, nullptr, 0), 2);
  EXPECT_EQ(ckpt_model_tensor(model, nullptr, nullptr, 0), 2);
  EXPECT_EQ(ckpt_model_tensor(model, &nameless, nullptr, 0), 2);
  EXPECT_EQ(ckpt_model_tensor(model, &shapeless, nullptr, 0), 2);
  EXPECT_EQ(ckpt_model_tensor(model, &shapeless, nullptr, 1), 2);
  std::uint64_t bytes = 0;
  EXPECT_EQ(ckpt_model_part_bytes(nullptr, "w", 0, &bytes), 2);
  EXPECT_EQ(ckpt_model_part_bytes(model, nullptr, 0, &bytes), 2);
  EXPECT_EQ(ckpt_model_part_bytes(model, "w", 0, nullptr), 2);
  EXPECT_EQ(ckpt_run_set_model(nullptr, model), 2);
  EXPECT_EQ(ckpt_run_set_model(run, nullptr), 2);
  ckpt_model_free(model);
  ckpt_model_free(nullptr);

  EXPECT_EQ(ckpt_begin(nullptr, 1, &save), 2);
  EXPECT_EQ(ckpt_set(nullptr, "a", "b"), 2);
  EXPECT_EQ(ckpt_set(save, nullptr, "b"), 2);
  EXPECT_EQ(ckpt_set(save, "a", nullptr), 2);
  EXPECT_EQ(ckpt_metric(nullptr, "a", 1), 2);
  EXPECT_EQ(ckpt_metric(save, nullptr, 1), 2);
  EXPECT_EQ(ckpt_add(nullptr, "w", &bytes, 8), 2);
  EXPECT_EQ(ckpt_add(save, nullptr, &bytes, 8), 2);
  EXPECT_EQ(ckpt_add(save, "w", nullptr, 8), 2);
  EXPECT_EQ(ckpt_add_fill(save, "w", 8, nullptr, nullptr), 2);
  EXPECT_EQ(ckpt_add_part(save, nullptr, nullptr, nullptr, &bytes, 8), 2);
  EXPECT_EQ(ckpt_add_parts(save, nullptr), 2);
  const ckpt_parts no_arrays{.size = sizeof no_arrays, .count = 1};
  EXPECT_EQ(ckpt_add_parts(save, &no_arrays), 2);
  EXPECT_EQ(ckpt_add_blob(save, nullptr, &bytes, 8), 2);
  EXPECT_EQ(ckpt_add_blob(save, "b", nullptr, 8), 2);
  EXPECT_EQ(ckpt_commit(nullptr, nullptr), 2);
  ckpt_pending* pending = nullptr;
  EXPECT_EQ(ckpt_commit(save, &pending), 2) << "what could not be added must not be missing in silence";
  EXPECT_EQ(pending, nullptr);
  ckpt_save_drop(nullptr);
  EXPECT_EQ(ckpt_wait(nullptr, 0), 2);
  EXPECT_EQ(ckpt_poll(nullptr, &answer), 2);
  EXPECT_EQ(ckpt_on_durable(nullptr, nullptr, nullptr), 2);
  EXPECT_EQ(ckpt_wait_drained(nullptr, 0), 2);
  EXPECT_EQ(ckpt_poll_drained(nullptr, &answer), 2);
  EXPECT_EQ(ckpt_on_drained(nullptr, nullptr, nullptr), 2);
  EXPECT_STREQ(ckpt_pending_name(nullptr), "");
  ckpt_stats stats{.size = sizeof stats};
  EXPECT_EQ(ckpt_pending_stats(nullptr, &stats), 2);
  ckpt_pending_free(nullptr);

  EXPECT_EQ(ckpt_load(nullptr, nullptr, 0, CKPT_STRICT, nullptr), 2);
  EXPECT_EQ(ckpt_load(run, nullptr, 1, CKPT_STRICT, nullptr), 2);
  ckpt_checkpoint* checkpoint = nullptr;
  EXPECT_EQ(ckpt_latest_usable(nullptr, &checkpoint), 2);
  EXPECT_EQ(ckpt_latest_usable(run, nullptr), 2);
  EXPECT_EQ(ckpt_checkpoint_open(nullptr, nullptr, &checkpoint), 2);
  EXPECT_EQ(ckpt_checkpoint_open(run_.c_str(), nullptr, nullptr), 2);
  ckpt_checkpoint_free(nullptr);
  EXPECT_EQ(ckpt_checkpoint_step(nullptr), 0u);
  EXPECT_STREQ(ckpt_checkpoint_path(nullptr), "");
  std::uint32_t ndim = 0;
  EXPECT_EQ(ckpt_checkpoint_tensor(nullptr, "w", nullptr, &ndim, nullptr), 2);
  const char* json = nullptr;
  EXPECT_EQ(ckpt_checkpoint_json(nullptr, &json), 2);
  EXPECT_EQ(ckpt_read_plan(nullptr, nullptr, 0, nullptr), 2);
  EXPECT_EQ(ckpt_read_into(nullptr, "w", nullptr, nullptr, 0, &bytes, 8), 2);
  EXPECT_EQ(ckpt_run_close(run), 0) << why();
}

TEST_F(CApi, AStructTellsItsSizeAndWhatThisBuildDoesNotKnowIsRefused) {
  ckpt_run* run = nullptr;
  ckpt_options options{};
  EXPECT_EQ(ckpt_run_open(run_.c_str(), &options, &run), 2) << "a rank without its communicator would save alone";
  struct Newer {
    ckpt_options known;
    std::uint64_t unknown;
  } newer{.known = {.size = sizeof(Newer)}, .unknown = 1};
  EXPECT_EQ(ckpt_run_open(run_.c_str(), &newer.known, &run), 12);
  newer.unknown = 0;
  ASSERT_EQ(ckpt_run_open(run_.c_str(), &newer.known, &run), 0) << why();

  ckpt_save* save = begin(run, 3);
  const std::uint64_t one[1] = {4};
  const std::uint64_t zero[1] = {0};
  const std::vector<float> values{1, 2, 3, 4};
  const ckpt_tensor sizeless{.size = 0, .name = "w", .dtype = "F32", .shape = one, .ndim = 1};
  EXPECT_EQ(ckpt_add_part(save, &sizeless, zero, one, values.data(), 16), 2);
  ckpt_save_drop(save);
  save = begin(run, 3);
  for (const char* name : {"a", "b"}) {
    const ckpt_tensor tensor{.size = sizeof tensor, .name = name, .dtype = "F32", .shape = one, .ndim = 1};
    EXPECT_EQ(ckpt_add_part(save, &tensor, zero, one, values.data(), 16), 0) << why();
  }
  ASSERT_EQ(ckpt_commit(save, nullptr), 0) << why();

  // An array of a newer caller's structs: they lie further apart.
  struct NewerRead {
    ckpt_read known;
    std::uint64_t unknown;
  };
  std::vector<float> a(4), b(4);
  const NewerRead reads[2] = {{{.size = sizeof(NewerRead), .name = "a", .out = a.data(), .bytes = 16}, 0},
                              {{.size = sizeof(NewerRead), .name = "b", .out = b.data(), .bytes = 16}, 0}};
  EXPECT_EQ(ckpt_load(run, &reads[0].known, 2, CKPT_STRICT, nullptr), 0) << why();
  EXPECT_EQ(a, values);
  EXPECT_EQ(b, values);

  // What a call fills in tells its size, too: an older caller's is not written past, one that nobody set not at all.
  ckpt_load_report report{};
  EXPECT_EQ(ckpt_load(run, &reads[0].known, 2, CKPT_STRICT, &report), 2);
  report.size = sizeof report;
  EXPECT_EQ(ckpt_load(run, &reads[0].known, 2, CKPT_STRICT, &report), 0) << why();
  EXPECT_EQ(report.step, 3u);
  ckpt_pending* pending = nullptr;
  ASSERT_EQ(ckpt_commit(begin(run, 4), &pending), 0) << why();
  ckpt_stats stats{};
  EXPECT_EQ(ckpt_pending_stats(pending, &stats), 2);
  stats.size = sizeof stats;
  EXPECT_EQ(ckpt_pending_stats(pending, &stats), 0) << why();
  ckpt_pending_free(pending);
  EXPECT_EQ(ckpt_run_close(run), 0) << why();
}

TEST_F(CApi, ManyPartsAreAddedInOneCallWholeOrAsBoxes) {
  ckpt_run* run = open();
  const float values[6] = {0, 1, 2, 3, 4, 5};
  const std::uint32_t ndims[3] = {2, 0, 1};
  const std::uint64_t shapes[3] = {2, 2, 2};
  const void* data[3] = {values, values + 4, values + 4};
  const std::uint64_t bytes[3] = {16, 4, 8};
  ckpt_parts whole{.size = sizeof whole,
                   .count = 3,
                   .names = "a\0scalar\0c",
                   .dtypes = "F32\0I32\0F32",
                   .ndims = ndims,
                   .shapes = shapes,
                   .data = data,
                   .bytes = bytes};
  const std::uint8_t roles[3] = {CKPT_PARAM, CKPT_SLOT, CKPT_BUFFER};
  whole.roles = roles;
  ckpt_save* save = begin(run, 1);
  ASSERT_EQ(ckpt_add_parts(save, &whole), 0) << why();
  const std::uint32_t two[2] = {2, 2};
  const std::uint64_t rows[4] = {2, 2, 2, 2};
  const std::uint64_t offsets[4] = {0, 0, 1, 0};
  const std::uint64_t extents[4] = {1, 2, 1, 2};
  const void* row_data[2] = {values, values + 2};
  const std::uint64_t row_bytes[2] = {8, 8};
  ckpt_parts boxes{.size = sizeof boxes,
                   .count = 2,
                   .names = "b\0b",
                   .dtypes = "F32\0F32",
                   .ndims = two,
                   .shapes = rows,
                   .offsets = offsets,
                   .extents = extents,
                   .data = row_data,
                   .bytes = row_bytes};
  ASSERT_EQ(ckpt_add_parts(save, &boxes), 0) << why();
  ASSERT_EQ(ckpt_commit(save, nullptr), 0) << why();
  ckpt_checkpoint* checkpoint = nullptr;
  ASSERT_EQ(ckpt_latest_usable(run, &checkpoint), 0) << why();
  for (const char* name : {"a", "b"}) {
    float read[4] = {};
    ASSERT_EQ(ckpt_read_into(checkpoint, name, nullptr, nullptr, 0, read, sizeof read), 0) << why();
    EXPECT_EQ(std::memcmp(read, values, sizeof read), 0) << name;
  }
  float read[2] = {};
  ASSERT_EQ(ckpt_read_into(checkpoint, "scalar", nullptr, nullptr, 0, read, 4), 0) << why();
  EXPECT_EQ(read[0], 4);
  ASSERT_EQ(ckpt_read_into(checkpoint, "c", nullptr, nullptr, 0, read, 8), 0) << why();
  EXPECT_EQ(read[1], 5);
  const char* document = nullptr;
  ASSERT_EQ(ckpt_checkpoint_json(checkpoint, &document), 0) << why();
  std::string found;
  const auto parsed = nlohmann::json::parse(document);
  for (const auto& tensor : parsed["tensors"])
    found += tensor["name"].get<std::string>() + " " + tensor["role"].get<std::string>() + ",";
  EXPECT_EQ(found, "a param,b param,c buffer,scalar slot,");
  ckpt_checkpoint_free(checkpoint);

  // What one part lacks fails the whole save.
  const std::uint64_t short_bytes[3] = {16, 4, 7};
  whole.bytes = short_bytes;
  save = begin(run, 2);
  EXPECT_EQ(ckpt_add_parts(save, &whole), 2);
  EXPECT_NE(why().find("\"tensor\":\"c\""), std::string::npos) << why();
  EXPECT_EQ(ckpt_commit(save, nullptr), 2);
  const std::uint8_t no_roles[3] = {CKPT_PARAM, CKPT_SLOT, CKPT_SLOT + 1};
  whole.bytes = bytes;
  whole.roles = no_roles;
  save = begin(run, 2);
  EXPECT_EQ(ckpt_add_parts(save, &whole), 2);
  EXPECT_EQ(ckpt_commit(save, nullptr), 2);
  save = begin(run, 2);
  boxes.extents = nullptr;
  EXPECT_EQ(ckpt_add_parts(save, &boxes), 2);
  EXPECT_EQ(ckpt_commit(save, nullptr), 2);
  EXPECT_EQ(ckpt_run_close(run), 0) << why();
}

TEST_F(CApi, StepsThatWouldNotBeTakenAsTheyAreWrittenAreRefused) {
  const ckpt_axis axes[2] = {{"tp", 2}, {"dp", 2}};
  ckpt_model* model = nullptr;
  ASSERT_EQ(ckpt_model_new(axes, 2, &model), 0) << why();
  const std::uint64_t shape[1] = {16};
  const std::uint64_t flat[2] = {4, 0};
  const std::uint64_t wide[2] = {16, 0};
  const ckpt_step cut{.kind = CKPT_EVEN, .dim = 0, .axes = "tp"};
  const ckpt_step by_tp{.kind = CKPT_FLAT, .axes = "tp", .numbers = wide, .number_count = 2};
  const ckpt_step by_dp{.kind = CKPT_FLAT, .axes = "dp", .numbers = flat, .number_count = 2};
  const ckpt_step no_lengths{.kind = CKPT_SEGMENTS, .dim = 0, .axes = "tp"};
  const ckpt_tensor tensor{.size = sizeof tensor, .name = "w", .dtype = "F32", .shape = shape, .ndim = 1};
  const auto declare = [&](std::vector<ckpt_step> steps) {
    return ckpt_model_tensor(model, &tensor, steps.data(), static_cast<std::uint32_t>(steps.size()));
  };
  EXPECT_EQ(declare({by_tp}), 0) << why();
  EXPECT_EQ(declare({by_tp, {.kind = CKPT_FLAT, .axes = "dp", .numbers = wide, .number_count = 2}}), 2)
      << "the second division would replace the first";
  EXPECT_EQ(declare({by_dp, cut}), 2) << "the cut would come first";
  EXPECT_EQ(declare({no_lengths}), 2) << "it would be one segment";
  EXPECT_EQ(declare({cut, by_dp}), 0) << why();
  ckpt_model_free(model);
}

TEST_F(CApi, AFailureIsJsonWhateverTheNameOfTheFile) {
  ckpt_checkpoint* checkpoint = nullptr;
  EXPECT_EQ(ckpt_checkpoint_open("/nowhere/\xff\xfe", nullptr, &checkpoint), 10);
  const std::string told = why();
  EXPECT_NE(told.find("/nowhere/%ff%fe"), std::string::npos) << told;
  EXPECT_EQ(told.find('\xff'), std::string::npos) << told;
}

TEST_F(CApi, ACheckpointDescribesWhatItHolds) {
  ckpt_run* run = open();
  ckpt_save* save = begin(run, 7);
  const std::uint64_t shape[] = {2, 3}, none[] = {0, 0};
  const float values[6] = {1, 2, 3, 4, 5, 6};
  const ckpt_tensor tensor{.size = sizeof(ckpt_tensor),
                           .name = "w",
                           .dtype = "F32",
                           .shape = shape,
                           .ndim = 2,
                           .role = "slot",
                           .parameter = "p",
                           .slot = "exp_avg"};
  ASSERT_EQ(ckpt_add_part(save, &tensor, none, shape, values, sizeof values), 0) << why();
  ASSERT_EQ(ckpt_add_blob(save, "loader", "state", 5), 0) << why();
  ASSERT_EQ(ckpt_set(save, "note", "say \"hi\""), 0) << why();
  ASSERT_EQ(ckpt_metric(save, "loss", 1.5), 0) << why();
  ASSERT_EQ(ckpt_metric(save, "spike", NAN), 0) << why();
  ASSERT_EQ(ckpt_commit(save, nullptr), 0) << why();
  ckpt_checkpoint* checkpoint = nullptr;
  ASSERT_EQ(ckpt_latest_usable(run, &checkpoint), 0) << why();
  EXPECT_EQ(ckpt_checkpoint_json(checkpoint, nullptr), 2);
  const char* json = nullptr;
  ASSERT_EQ(ckpt_checkpoint_json(checkpoint, &json), 0) << why();
  const std::string text = json;
  for (
      const char* part : {
          R"("format":"ckpt")",
          R"("step":7)",
          R"("tensors":[{"name":"w","dtype":"F32","true_dtype":null,"shape":[2,3],"bytes":24,"role":"slot","parameter":"p","slot":"exp_avg"}])",
          R"("ties":[])",
          R"("blobs":[{"name":"loader","bytes":5}])",
          R"("metadata":[{"key":"note","text":"say \"hi\""}])",
          R"("metrics":[{"name":"loss","value":1.5},{"name":"spike","value":null}])",
          R"("objects":[])",
      }) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in " << text;
  }
  char blob[5];
  ASSERT_EQ(ckpt_read_into(checkpoint, "loader", nullptr, nullptr, 0, blob, sizeof blob), 0) << why();
  EXPECT_EQ(std::string(blob, 5), "state");
  const char* again = nullptr;
  EXPECT_EQ(ckpt_checkpoint_json(checkpoint, &again), 0);
  EXPECT_EQ(again, json) << "valid as long as the checkpoint";
  ckpt_checkpoint_free(checkpoint);
  ASSERT_EQ(ckpt_commit(begin(run, 12), nullptr), 0) << why();
  ASSERT_EQ(ckpt_checkpoint_open(run_.c_str(), nullptr, &checkpoint), 0) << why();
  EXPECT_EQ(ckpt_checkpoint_step(checkpoint), 12u) << "of a run's directory, the newest";
  ckpt_checkpoint_free(checkpoint);
  EXPECT_EQ(ckpt_run_close(run), 0) << why();
}

TEST_F(CApi, ACheckpointOfAnotherToolDescribesItsTiesAndValues) {
  ckpt_checkpoint* checkpoint = nullptr;
  ASSERT_EQ(ckpt_checkpoint_open(CKPT_GOLDEN_DIR "/ckpt/0.9-tied/ckpt", nullptr, &checkpoint), 0) << why();
  const char* json = nullptr;
  ASSERT_EQ(ckpt_checkpoint_json(checkpoint, &json), 0) << why();
  const std::string text = json;
  EXPECT_NE(text.find(R"("ties":[{"name":"lm_head.weight","target":"wte.weight"}])"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("objects":[{"name":)"), std::string::npos) << text;
  std::uint64_t shape[2] = {};
  std::uint32_t ndim = 2;
  ASSERT_EQ(ckpt_checkpoint_tensor(checkpoint, "wte.weight", shape, &ndim, nullptr), 0) << why();
  std::vector<char> tied(shape[0] * shape[1] * 4), target = tied;
  EXPECT_EQ(ckpt_read_into(checkpoint, "lm_head.weight", nullptr, nullptr, 0, tied.data(), tied.size()), 0) << why();
  EXPECT_EQ(ckpt_read_into(checkpoint, "wte.weight", nullptr, nullptr, 0, target.data(), target.size()), 0) << why();
  EXPECT_EQ(tied, target);
  ckpt_checkpoint_free(checkpoint);
}

TEST_F(CApi, CompressedDataIsRefusedNotReturned) {
  ckpt_checkpoint* checkpoint = nullptr;
  ASSERT_EQ(ckpt_checkpoint_open(CKPT_GOLDEN_DIR "/torch/dcp_zstd/ckpt", nullptr, &checkpoint), 0) << why();
  std::vector<char> values(6 * 5 * 4 * 4);
  EXPECT_EQ(
      ckpt_read_into(checkpoint, "optimizer.state.cube.exp_avg", nullptr, nullptr, 0, values.data(), values.size()),
      12);
  EXPECT_NE(why().find("compressed"), std::string::npos) << why();
  ckpt_checkpoint_free(checkpoint);
}

TEST_F(CApi, ARankThatHoldsNothingOfATensorMayAddIt) {
  // Trailing ranks of a division may hold no row, and a tensor may have none at all.
  ckpt_run* run = open();
  ckpt_save* save = begin(run, 1);
  const std::uint64_t shape[2] = {4, 2};
  const std::uint64_t begins[2][2] = {{0, 0}, {4, 0}};
  const std::uint64_t extents[2][2] = {{4, 2}, {0, 2}};
  const std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8};
  const ckpt_tensor tensor{.size = sizeof tensor, .name = "w", .dtype = "F32", .shape = shape, .ndim = 2};
  EXPECT_EQ(ckpt_add_part(save, &tensor, begins[0], extents[0], values.data(), 32), 0) << why();
  EXPECT_EQ(ckpt_add_part(save, &tensor, begins[1], extents[1], nullptr, 0), 0) << why();
  const ckpt_tensor empty{.size = sizeof empty, .name = "empty", .dtype = "F32", .shape = extents[1], .ndim = 2};
  EXPECT_EQ(ckpt_add_part(save, &empty, begins[0], extents[1], nullptr, 0), 0) << why();
  EXPECT_EQ(ckpt_add_part(save, &empty, begins[0], extents[1], nullptr, 0), 0) << why();
  ASSERT_EQ(ckpt_commit(save, nullptr), 0) << why();
  std::vector<float> loaded(8);
  const ckpt_read reads[2] = {{.size = sizeof(ckpt_read), .name = "w", .out = loaded.data(), .bytes = 32},
                              {.size = sizeof(ckpt_read), .name = "empty"}};
  EXPECT_EQ(ckpt_load(run, reads, 2, CKPT_STRICT, nullptr), 0) << why();
  EXPECT_EQ(loaded, values);
  EXPECT_EQ(ckpt_run_close(run), 0) << why();
}

TEST_F(CApi, ACommunicatorThatMpiRefusedIsRefused) {
  const ckpt_comm_table empty{};
  const ckpt_options options{.size = sizeof options, .comm = &empty};
  ckpt_run* run = nullptr;
  EXPECT_EQ(ckpt_run_open(run_.c_str(), &options, &run), 2) << why();
}

TEST_F(CApi, TheShorterTableOfAnOlderTrainerIsReadAsFarAsItGoes) {
  const ThreadRanks ranks(1);
  ranks.run_tables([&](const ckpt_comm_table& table) {
    constexpr std::size_t kOlder = offsetof(ckpt_comm_table, start_send);
    // Exactly as large: what lies behind it is nobody's.
    const std::unique_ptr<void, decltype(&std::free)> memory(std::malloc(kOlder), std::free);
    std::memcpy(memory.get(), &table, kOlder);
    auto* older = static_cast<ckpt_comm_table*>(memory.get());
    older->size = kOlder;
    ckpt_run* run = open({.size = sizeof(ckpt_options), .comm = older});
    ckpt_save* save = begin(run, 1);
    EXPECT_EQ(ckpt_add_blob(save, "b", "x", 1), 0) << why();
    EXPECT_EQ(ckpt_commit(save, nullptr), 0) << why();
    EXPECT_EQ(ckpt_run_close(run), 0) << why();
  });
}

TEST_F(CApi, AWayToReadReplicasThatDoesNotExistIsRefused) {
  const ckpt_options options{.size = sizeof options, .replicas = CKPT_REPLICAS_EXCHANGE + 1};
  ckpt_run* run = nullptr;
  EXPECT_EQ(ckpt_run_open(run_.c_str(), &options, &run), 2) << why();
}

TEST_F(CApi, ACapThatIsNoPartOfTheTimeIsRefusedAndOneThatIsHoldsBack) {
  for (const double cap : {-0.1, 1.5, std::nan("")}) {
    const ckpt_options options{.size = sizeof options, .max_overhead = cap};
    ckpt_run* none = nullptr;
    EXPECT_EQ(ckpt_run_open(run_.c_str(), &options, &none), 2) << cap;
  }
  // Every step asks, and the first is saved; at so small a part of the time the second is not.
  ckpt_run* run = open({.size = sizeof(ckpt_options), .every_steps = 1, .max_overhead = 1e-12});
  int answer = 0;
  EXPECT_EQ(ckpt_should_save(run, 1, &answer), 0) << why();
  EXPECT_EQ(answer, 1);
  ckpt_save* save = begin(run, 1);
  EXPECT_EQ(ckpt_add_blob(save, "b", "x", 1), 0) << why();
  EXPECT_EQ(ckpt_commit(save, nullptr), 0) << why();
  EXPECT_EQ(ckpt_should_save(run, 2, &answer), 0) << why();
  EXPECT_EQ(answer, 0);
  EXPECT_EQ(ckpt_run_close(run), 0) << why();
}

TEST_F(CApi, SavesOutliveTheirRun) {
  ckpt_run* run = open({.size = sizeof(ckpt_options), .staging_memory = 1});
  ckpt_pending* pending = nullptr;
  ckpt_save* save = begin(run, 5);
  ASSERT_EQ(ckpt_add_blob(save, "b", "xyz", 3), 0) << why();
  ASSERT_EQ(ckpt_commit(save, &pending), 0) << why();
  save = begin(run, 6);
  ckpt_checkpoint* checkpoint = nullptr;
  ASSERT_EQ(ckpt_wait(pending, 60'000), 0) << why();
  ASSERT_EQ(ckpt_latest_usable(run, &checkpoint), 0) << why();
  ASSERT_EQ(ckpt_run_close(run), 0) << why();

  EXPECT_EQ(ckpt_wait(pending, 0), 0) << why();
  int done = 0;
  EXPECT_EQ(ckpt_poll(pending, &done), 0);
  EXPECT_EQ(done, 1);
  EXPECT_STREQ(ckpt_pending_name(pending), "step-000000005.g1");
  int told = -1;
  EXPECT_EQ(ckpt_on_durable(
                pending, [](void* user, int outcome) { *static_cast<int*>(user) = outcome; }, &told),
            0);
  EXPECT_EQ(told, 0);
  ckpt_pending_free(pending);
  EXPECT_EQ(ckpt_add_blob(save, "b", "xyz", 3), 2);
  EXPECT_EQ(ckpt_commit(save, &pending), 2);
  char bytes[3] = {};
  EXPECT_EQ(ckpt_read_into(checkpoint, "b", nullptr, nullptr, 0, bytes, 3), 0) << why();
  EXPECT_EQ(std::string(bytes, 3), "xyz");
  ckpt_checkpoint_free(checkpoint);
}

TEST_F(CApi, OnlyTheSaveThatWasBegunLastIsAddedTo) {
  ckpt_run* run = open();
  ckpt_save* first = begin(run, 1);
  ckpt_save* second = begin(run, 2);
  EXPECT_EQ(ckpt_add_blob(first, "b", "x", 1), 2);
  EXPECT_EQ(ckpt_add_blob(second, "b", "y", 1), 0) << why();
  EXPECT_EQ(ckpt_commit(first, nullptr), 2);
  EXPECT_EQ(ckpt_commit(second, nullptr), 0) << why();
  char byte = 0;
  const ckpt_read read{.size = sizeof read, .name = "b", .out = &byte, .bytes = 1};
  ckpt_load_report report{.size = sizeof report};
  EXPECT_EQ(ckpt_load(run, &read, 1, CKPT_STRICT, &report), 0) << why();
  EXPECT_EQ(report.step, 2u);
  EXPECT_EQ(byte, 'y');
  EXPECT_EQ(ckpt_run_close(run), 0) << why();
}

TEST_F(CApi, AStopSignalIsKnownAtOnceAndCloseLeavesALaterHandler) {
  ckpt_run* run = open({.size = sizeof(ckpt_options), .staging_memory = 1, .catch_signals = 1});
  EXPECT_EQ(ckpt_stop_requested(run), 0);
  raise(SIGTERM);
  EXPECT_EQ(ckpt_stop_requested(run), 1);
  ASSERT_NE(::signal(SIGUSR1, SIG_IGN), SIG_ERR);
  EXPECT_EQ(ckpt_run_close(run), 0) << why();
  EXPECT_EQ(::signal(SIGUSR1, SIG_DFL), SIG_IGN);
  EXPECT_EQ(::signal(SIGTERM, SIG_DFL), SIG_DFL);  // the one before the run
}

TEST_F(CApi, AForkedChildIsToldAndChangesNothing) {
  ckpt_run* run = open({.size = sizeof(ckpt_options), .staging_memory = 1, .catch_signals = 1});
  ckpt_pending* pending = nullptr;
  ckpt_save* save = begin(run, 1);
  ASSERT_EQ(ckpt_commit(save, &pending), 0) << why();
  ASSERT_EQ(ckpt_wait(pending, 60'000), 0) << why();
  ckpt_checkpoint* checkpoint = nullptr;
  ASSERT_EQ(ckpt_latest_usable(run, &checkpoint), 0) << why();
  save = begin(run, 2);
  const pid_t child = fork();
  if (child == 0) {
    int wrong = 0;
    int number = 0;
    ckpt_save* other = nullptr;
    ckpt_checkpoint* another = nullptr;
    ckpt_stats stats{.size = sizeof stats};
    std::uint32_t ndim = 0;
    for (const int code : {ckpt_should_save(run, 1, &number), ckpt_begin(run, 3, &other), ckpt_set(save, "a", "b"),
                           ckpt_metric(save, "a", 1), ckpt_add_blob(save, "b", "x", 1), ckpt_commit(save, nullptr),
                           ckpt_wait(pending, 1), ckpt_poll(pending, &number), ckpt_pending_stats(pending, &stats),
                           ckpt_wait_drained(pending, 1), ckpt_poll_drained(pending, &number),
                           ckpt_load(run, nullptr, 0, CKPT_STRICT, nullptr), ckpt_latest_usable(run, &another),
                           ckpt_read_plan(checkpoint, nullptr, 0, nullptr),
                           ckpt_checkpoint_tensor(checkpoint, "b", nullptr, &ndim, nullptr), ckpt_run_close(run)}) {
      if (code != 2) ++wrong;
    }
    ckpt_pending_free(pending);
    ckpt_checkpoint_free(checkpoint);
    if (wrong != 0) _exit(wrong);
#ifdef __SANITIZE_THREAD__
    ::signal(SIGTERM, SIG_DFL);  // ThreadSanitizer keeps a child's signals for itself
#endif
    raise(SIGTERM);  // as if nobody had caught it in this process
    _exit(100);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
  EXPECT_EQ(ckpt_add_blob(save, "b", "x", 1), 0) << why();
  EXPECT_EQ(ckpt_commit(save, nullptr), 0) << why();
  ckpt_pending_free(pending);
  ckpt_checkpoint_free(checkpoint);
  EXPECT_EQ(ckpt_run_close(run), 0) << why();
  EXPECT_TRUE(std::filesystem::exists(run_ + "/step-000000002.g2/manifest.json"));
}

TEST_F(CApi, WhatOneRankPassesWrongFailsTheCallOfAllAndTheNextOneWorks) {
  const ThreadRanks ranks(2);
  ranks.run_tables([&](const ckpt_comm_table& table) {
    const bool wrong = table.rank(table.self) == 1;
    const ckpt_options options{.size = sizeof options, .comm = &table, .patience_ms = 100'000};
    ckpt_run* run = nullptr;
    ASSERT_EQ(ckpt_run_open(run_.c_str(), &options, &run), 0) << why();
    const auto start = std::chrono::steady_clock::now();
    ckpt_save* save = nullptr;
    EXPECT_EQ(ckpt_begin(run, 1, wrong ? nullptr : &save), 2) << why();

    save = begin(run, 1);
    EXPECT_EQ(ckpt_add_blob(save, "b", wrong ? nullptr : "x", 1), wrong ? 2 : 0);
    EXPECT_EQ(ckpt_commit(save, nullptr), 2) << why();

    save = begin(run, 1);
    EXPECT_EQ(ckpt_add_blob(save, "b", "x", 1), 0) << why();
    EXPECT_EQ(ckpt_commit(save, nullptr), 0) << why();
    char byte = 0;
    const ckpt_read good{.size = sizeof good, .name = "b", .out = &byte, .bytes = 1};
    const ckpt_read bad{.size = sizeof bad, .name = "b", .bytes = 1};
    EXPECT_EQ(ckpt_load(run, wrong ? &bad : &good, 1, CKPT_STRICT, nullptr), 2) << why();
    ckpt_checkpoint* checkpoint = nullptr;
    EXPECT_EQ(ckpt_latest_usable(run, wrong ? nullptr : &checkpoint), 2) << why();
    EXPECT_EQ(ckpt_load(run, &good, 1, CKPT_STRICT, nullptr), 0) << why();
    EXPECT_EQ(byte, 'x');
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(90));
    EXPECT_EQ(ckpt_run_close(run), 0) << why();
  });
  const ThreadRanks others(2);
  others.run_tables([&](const ckpt_comm_table& table) {
    const bool wrong = table.rank(table.self) == 1;
    const ckpt_options options{.size = sizeof options, .comm = &table, .patience_ms = 100'000};
    ckpt_run* run = nullptr;
    EXPECT_EQ(ckpt_run_open(wrong ? nullptr : run_.c_str(), &options, &run), 2) << why();
  });
}

}  // namespace
}  // namespace ckpt::test
