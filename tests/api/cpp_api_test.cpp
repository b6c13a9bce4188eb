// The C++ interface, as a trainer sees it: nothing else of the project is included.
#include "ckpt/ckpt.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "support/temp_dir.hpp"

namespace ckpt::test {
namespace {

class CppApi : public testing::Test {
 protected:
  const TempDir directory_{memory_temp_dir()};
  const std::string run_ = directory_.path() + "/run";
};

/// A program may link this release beside another, and the library's own types have the same short names.
TEST_F(CppApi, ItsTypesBelongToAVersion) {
  for (const std::string type :
       {typeid(ckpt::Run).name(), typeid(ckpt::Model).name(), typeid(ckpt::Step).name(), typeid(ckpt::Tensor).name(),
        typeid(ckpt::Checkpoint).name(), typeid(ckpt::Save).name(), typeid(ckpt::Pending).name(),
        typeid(ckpt::Read).name(), typeid(ckpt::Error).name()})
    EXPECT_NE(type.find("4ckpt2v1"), std::string::npos) << type;
}

TEST_F(CppApi, OddTensorsAndNamesComeBack) {
  auto run = ckpt::Run::open(run_);
  ASSERT_TRUE(run) << run.error().json;
  struct Odd {
    Tensor tensor;
    std::size_t bytes;
  };
  const std::vector<Odd> odds = {
      {{.name = "a \"quoted\"\n\t/../name\\ \x01", .dtype = "BF16", .shape = {3}}, 6},
      {{.name = "gr\xc3\xb6\xc3\x9f"
                "e.\xf0\x9f\x90\x98",
        .dtype = "F64",
        .shape = {}},
       8},
      {{.name = "empty", .dtype = "F32", .shape = {4, 0, 2}}, 0},
      {{.name = "packed", .dtype = "F4", .shape = {3, 4}}, 6},
      {{.name = " ", .dtype = "BOOL", .shape = {1, 1, 1, 1, 1, 1, 1, 1}}, 1},
  };
  auto save = run->begin(1);
  ASSERT_TRUE(save) << save.error().json;
  std::vector<std::vector<std::byte>> saved;
  for (const Odd& odd : odds) {
    auto& bytes = saved.emplace_back(odd.bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i + odd.bytes);
    const std::vector<std::uint64_t> zero(odd.tensor.shape.size(), 0);
    const auto added = save->add(odd.tensor, zero, odd.tensor.shape, bytes);
    ASSERT_TRUE(added) << added.error().json;
  }
  ASSERT_TRUE(save->blob("nothing", {}));
  ASSERT_TRUE(save->set("twice", "first"));
  ASSERT_TRUE(save->set("twice", "last \"\xff"));
  auto pending = save->commit();
  ASSERT_TRUE(pending) << pending.error().json;
  const auto durable = pending->wait(std::chrono::seconds(60));
  ASSERT_TRUE(durable) << durable.error().json;
  std::vector<std::vector<std::byte>> loaded;
  std::vector<Read> reads;
  for (const Odd& odd : odds) reads.push_back({.name = odd.tensor.name, .out = loaded.emplace_back(odd.bytes)});
  reads.push_back({.name = "nothing"});
  const auto report = run->load(reads);
  ASSERT_TRUE(report) << report.error().json;
  EXPECT_EQ(loaded, saved);

  // What no reader would take is refused before anything is written.
  for (const char* name : {"", "__metadata__", "\xff"}) {
    auto refused = run->begin(2);
    ASSERT_TRUE(refused) << refused.error().json;
    EXPECT_EQ(refused->blob(name, {}).error().code, 2);
    const auto failed = refused->commit();
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, 2) << failed.error().json;
  }
  // A checkpoint of nothing but its step.
  auto nothing = run->begin(3);
  ASSERT_TRUE(nothing) << nothing.error().json;
  ASSERT_TRUE(nothing->commit());
  EXPECT_EQ(run->latest_usable().value().step(), 3u);
  EXPECT_EQ(run->steps().value(), (std::vector<std::uint64_t>{3, 1}));
  EXPECT_EQ(run->step_usable(1).value().step(), 1u);
  EXPECT_EQ(run->load_step(1, reads).value().step, 1u);
  EXPECT_EQ(run->load_step(2, reads).error().code, 10);
  const auto closed = run->close();
  EXPECT_TRUE(closed) << closed.error().json;
}

TEST_F(CppApi, AFillCallbackThatFailsOrThrowsFailsItsSaveAlone) {
  auto run = ckpt::Run::open(run_);
  ASSERT_TRUE(run) << run.error().json;
  auto model = Model::on({});
  ASSERT_TRUE(model) << model.error().json;
  ASSERT_TRUE(model->tensor({.name = "w", .shape = {1000}}, {}));
  ASSERT_TRUE(run->set_model(*model));
  const auto save_with = [&](Save::Fill fill) -> Result<> {
    auto save = run->begin(1);
    if (!save) return tl::unexpected(save.error());
    if (auto added = save->add("w", 4000, std::move(fill)); !added) return added;
    auto pending = save->commit();
    if (!pending) return tl::unexpected(pending.error());
    return pending->wait(std::chrono::seconds(60));
  };
  const auto failed = save_with([](void*, std::uint64_t, std::uint64_t) { return 5; });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, 16) << failed.error().json;
  const auto thrown =
      save_with([](void*, std::uint64_t, std::uint64_t) -> int { throw std::runtime_error("no device"); });
  ASSERT_FALSE(thrown);
  EXPECT_NE(thrown.error().json.find("no device"), std::string::npos) << thrown.error().json;
  const auto filled = save_with([](void* out, std::uint64_t, std::uint64_t bytes) {
    std::memset(out, 7, bytes);
    return 0;
  });
  EXPECT_TRUE(filled) << filled.error().json;
}

TEST_F(CppApi, ACallbackGetsTheOutcomeOnceAlsoWhereTheSaveHasEnded) {
  auto run = ckpt::Run::open(run_, {.staging_memory = 1u << 20});
  ASSERT_TRUE(run) << run.error().json;
  std::atomic<int> calls = 0;
  std::atomic<int> outcome = -1;
  const auto count = [&](int code) {
    outcome = code;
    ++calls;
  };
  auto save = run->begin(1);
  ASSERT_TRUE(save) << save.error().json;
  const std::vector<std::byte> bytes(3);
  ASSERT_TRUE(save->blob("b", bytes));
  auto pending = save->commit();
  ASSERT_TRUE(pending) << pending.error().json;
  ASSERT_TRUE(pending->on_durable(count));
  ASSERT_TRUE(pending->wait(std::chrono::seconds(60)));
  ASSERT_TRUE(run->close());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(outcome, 0);
  ASSERT_TRUE(pending->on_durable(count)) << "of a save that has ended";
  EXPECT_EQ(calls, 2);
}

TEST_F(CppApi, AFailureThatNobodyAskedAboutIsToldByClose) {
  for (const bool staged : {false, true}) {
    for (const bool asked : {false, true}) {
      auto run = ckpt::Run::open(run_, {.staging_memory = staged ? std::uint64_t{64} << 20 : 0, .log = [](auto) {}});
      ASSERT_TRUE(run) << run.error().json;
      auto model = Model::on({});
      ASSERT_TRUE(model) << model.error().json;
      ASSERT_TRUE(model->tensor({.name = "w", .shape = {30}}, {}));
      ASSERT_TRUE(run->set_model(*model));
      auto save = run->begin(1);
      ASSERT_TRUE(save) << save.error().json;
      ASSERT_TRUE(save->add("w", 120, [](void*, std::uint64_t, std::uint64_t) { return 5; }));
      auto pending = save->commit();
      EXPECT_EQ(pending.has_value(), staged);
      if (!pending) {
        EXPECT_EQ(pending.error().code, 16) << pending.error().json;
      } else if (asked) {
        EXPECT_FALSE(pending->wait(std::chrono::seconds(60)));
      }
      const std::vector<float> values(30, 1);
      auto good = run->begin(2);
      ASSERT_TRUE(good) << good.error().json;
      ASSERT_TRUE(good->add("w", values));
      ASSERT_TRUE(good->commit());
      const auto closed = run->close();
      EXPECT_EQ(closed.has_value(), !staged || asked);
      if (!closed) {
        EXPECT_EQ(closed.error().code, 16) << closed.error().json;
      }
    }
  }
}

TEST_F(CppApi, AMistakeInAddIsToldAtOnce) {
  auto run = ckpt::Run::open(run_);
  ASSERT_TRUE(run) << run.error().json;
  auto model = Model::on({});
  ASSERT_TRUE(model) << model.error().json;
  ASSERT_TRUE(model->tensor({.name = "w", .shape = {30}}, {}));
  ASSERT_TRUE(run->set_model(*model));
  const std::vector<float> short_of_one(29, 1);
  for (const char* name : {"w", "nosuch"}) {
    auto save = run->begin(1);
    ASSERT_TRUE(save) << save.error().json;
    const auto added = save->add(name, short_of_one);
    ASSERT_FALSE(added) << name;
    EXPECT_EQ(added.error().code, 2) << added.error().json;
    const auto committed = save->commit();
    ASSERT_FALSE(committed);
    EXPECT_EQ(committed.error().code, 2) << committed.error().json;
  }
  EXPECT_TRUE(run->close());
}

TEST_F(CppApi, ASaveInTiersTellsBothPlaces) {
  const std::string local = directory_.path() + "/nvme/run";
  auto run = ckpt::Run::open(run_, {.local_directory = local, .drain_bytes_per_second = std::uint64_t{1} << 30});
  ASSERT_TRUE(run) << run.error().json;
  auto save = run->begin(8);
  ASSERT_TRUE(save) << save.error().json;
  const std::vector<std::byte> bytes(100'000, std::byte{3});
  ASSERT_TRUE(save->blob("b", bytes));
  auto pending = save->commit();
  ASSERT_TRUE(pending) << pending.error().json;
  std::atomic<int> told{-1};
  ASSERT_TRUE(pending->on_drained([&](int code) { told = code; }));
  const auto durable = pending->wait(std::chrono::seconds(120));
  ASSERT_TRUE(durable) << durable.error().json;
  EXPECT_TRUE(std::filesystem::exists(local + "/" + pending->name() + "/manifest.json"));
  const auto drained = pending->wait_drained(std::chrono::seconds(120));
  ASSERT_TRUE(drained) << drained.error().json;
  EXPECT_EQ(pending->poll_drained().value_or(false), true);
  EXPECT_GT(pending->stats().drain_s, 0);
  EXPECT_TRUE(std::filesystem::exists(run_ + "/" + pending->name() + "/manifest.json"));
  EXPECT_EQ(run->latest_usable().value().path(), local + "/" + pending->name());
  EXPECT_NE(run->latest_usable().value().json().value().find(R"("blobs":[{"name":"b","bytes":100000}])"),
            std::string::npos);
  ASSERT_TRUE(run->close());
  EXPECT_EQ(told, 0);
}

TEST_F(CppApi, WithoutALocalDirectoryASaveIsDrainedWhenItIsDurable) {
  auto run = ckpt::Run::open(run_);
  ASSERT_TRUE(run) << run.error().json;
  auto save = run->begin(1);
  ASSERT_TRUE(save) << save.error().json;
  auto pending = save->commit();
  ASSERT_TRUE(pending) << pending.error().json;
  ASSERT_TRUE(pending->wait(std::chrono::seconds(120)));
  std::atomic<int> told{-1};
  ASSERT_TRUE(pending->on_drained([&](int code) { told = code; }));
  EXPECT_EQ(told, 0);
  EXPECT_TRUE(pending->wait_drained(std::chrono::seconds(120)));
}

TEST_F(CppApi, ABoxWhoseOffsetAndExtentDifferInLengthIsRefusedNotReadPastItsEnd) {
  auto run = ckpt::Run::open(run_);
  ASSERT_TRUE(run) << run.error().json;
  const Tensor tensor{.name = "w", .shape = {2, 3}};
  const std::vector<std::uint64_t> two{0, 0}, whole{2, 3};
  const std::vector<std::byte> bytes(24);
  const std::vector<std::uint64_t> none, one{0};
  for (const auto& [offset, extent] : {std::pair(one, whole), std::pair(two, one), std::pair(none, none)}) {
    auto save = run->begin(1);
    ASSERT_TRUE(save) << save.error().json;
    const auto added = save->add(tensor, offset, extent, bytes);
    ASSERT_FALSE(added);
    EXPECT_EQ(added.error().code, 2) << added.error().json;
  }
  auto save = run->begin(1);
  ASSERT_TRUE(save) << save.error().json;
  ASSERT_TRUE(save->add(tensor, two, whole, bytes));
  ASSERT_TRUE(save->commit());
  auto checkpoint = run->latest_usable();
  ASSERT_TRUE(checkpoint) << checkpoint.error().json;
  std::vector<std::byte> out(24);
  for (const auto& [offset, extent] : {std::pair(one, whole), std::pair(none, whole), std::pair(two, none)}) {
    const auto into = checkpoint->read_into("w", offset, extent, out);
    ASSERT_FALSE(into) << offset.size() << " and " << extent.size();
    EXPECT_EQ(into.error().code, 2) << into.error().json;
    const std::vector<Read> reads{{.name = "w", .offset = offset, .extent = extent, .out = out}};
    const auto read = checkpoint->read(reads);
    ASSERT_FALSE(read) << offset.size() << " and " << extent.size();
    EXPECT_EQ(read.error().code, 2) << read.error().json;
  }
  EXPECT_TRUE(checkpoint->read_into("w", two, whole, out));
  EXPECT_TRUE(checkpoint->read_into("w", {}, {}, out));
}

/// Whether a run of this process catches signals: it does so until it is closed.
bool is_caught() {
  struct sigaction now {};
  return ::sigaction(SIGUSR1, nullptr, &now) == 0 && now.sa_handler != SIG_DFL;
}

TEST_F(CppApi, ARunThatAnotherTakesThePlaceOfIsClosedBeforeItsLogIsGone) {
  bool log_gone = false;
  bool open_without_log = false;
  ckpt::Run::Options options{.catch_signals = true};
  options.log = [watch = std::shared_ptr<void>(nullptr, [&](void*) {
                   log_gone = true;
                   open_without_log = is_caught();
                 })](std::string_view) {};
  auto run = ckpt::Run::open(run_, std::move(options));
  ASSERT_TRUE(run) << run.error().json;
  ASSERT_TRUE(is_caught());
  auto other = ckpt::Run::open(run_ + "2");
  ASSERT_TRUE(other) << other.error().json;
  *run = std::move(*other);
  EXPECT_TRUE(log_gone);
  EXPECT_FALSE(open_without_log);
  EXPECT_TRUE(run->begin(1)) << "the run that took its place works";
}

}  // namespace
}  // namespace ckpt::test
