#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "convert/extras.hpp"
#include "convert/identity.hpp"
#include "convert/join_maps.hpp"
#include "convert/materialize.hpp"
#include "convert/open_source.hpp"
#include "materialize.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

class FoldersGolden : public testing::TestWithParam<const char*> {};

TEST_P(FoldersGolden, OneMapHoldsTheWeightsTheStateAndTheFilesOfTheModel) {
  const GoldenCase golden = load_golden(std::string("folders/") + GetParam());
  auto io = open_io(IoKind::threads, 8);
  ASSERT_TRUE(io.has_value());
  const auto source = open_source(**io, golden.root, {}, {.find_beside = true, .extras = true});
  ASSERT_TRUE(source.has_value()) << source.error().message;
  const Map& map = source->map;
  std::vector<std::uint32_t> all(map.tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto covered = check_coverage(map, all);
  EXPECT_TRUE(covered.has_value()) << covered.error().message;
  for (const GoldenCase::Truth& truth : golden.truth) {
    const std::size_t index = find_tensor(map, truth.name);
    EXPECT_EQ(map.tensors[index].dtype, truth.dtype) << truth.name;
    EXPECT_EQ(map.tensors[index].shape, truth.shape) << truth.name;
    EXPECT_EQ(gather(map, golden.root, index).bytes, truth.bytes) << truth.name;
    EXPECT_EQ(map.tensors[index].role == Role::param, truth.key.starts_with("param/")) << truth.name;
  }
  // Every file is a file of the map or an extra, and an extra has the file's bytes.
  std::set<std::string> files;
  for (const MapFile& file : map.files) files.insert(file.path);
  for (const auto& entry : fs::recursive_directory_iterator(golden.root)) {
    const std::string path = fs::relative(entry.path(), golden.root).string();
    if (entry.is_regular_file() && entry.path().filename() != ".metadata") {
      EXPECT_TRUE(files.contains(path)) << path;
    }
  }
  for (const Extra& extra : map.extras) {
    EXPECT_EQ(gather(map, golden.root, extra.tensor).bytes, slurp(golden.root + "/" + extra.path)) << extra.path;
    const auto text = read_extra(**io, map, golden.root, extra, kLargestConfig);
    ASSERT_TRUE(text.has_value());
    EXPECT_EQ(*text, slurp(golden.root + "/" + extra.path));
  }
  EXPECT_TRUE(source->settings.empty());
  EXPECT_TRUE(std::ranges::none_of(map.findings, [](const Finding& f) { return f.skipped != Skipped::nothing; }));
}

INSTANTIATE_TEST_SUITE_P(Cases, FoldersGolden,
                         testing::Values("hf_trainer", "hf_tokenizer", "accelerate", "accelerate_bin",
                                         "accelerate_fsdp", "peft_lora"),
                         [](const auto& one) { return std::string(one.param); });

TEST(FoldersGoldenState, TheTrainersStepAndObjectsAreThere) {
  const std::string root = golden_root("folders/hf_trainer");
  auto io = open_io(IoKind::threads, 8);
  ASSERT_TRUE(io.has_value());
  const auto source = open_source(**io, root, {}, {});
  ASSERT_TRUE(source.has_value());
  EXPECT_EQ(source->map.meta.step, 4u);
  const auto object = [&](std::string_view name) {
    return std::ranges::any_of(source->map.objects, [&](const NamedObject& one) { return one.name == name; });
  };
  for (const char* name :
       {"scheduler.last_epoch", "optimizer.param_groups.0.lr", "optimizer.param_groups.1.weight_decay"})
    EXPECT_TRUE(object(name)) << name;
  EXPECT_EQ(source->map.tensors[find_tensor(source->map, "rng_state.cpu")].role, Role::blob);
  EXPECT_TRUE(source->map.extras.empty());  // not asked for
  // Not joined where only the weights are wanted.
  const auto weights = open_source(**io, root, {}, {.state_beside = false});
  ASSERT_TRUE(weights.has_value());
  EXPECT_EQ(weights->map.files.size(), 1u);
}

TEST(FoldersGoldenState, SlotsOfFsdpBelongToTheWeightsOfTheModel) {
  auto io = open_io(IoKind::threads, 8);
  ASSERT_TRUE(io.has_value());
  const auto source = open_source(**io, golden_root("folders/accelerate_fsdp"), {}, {});
  ASSERT_TRUE(source.has_value()) << source.error().message;
  EXPECT_EQ(source->format->name, "dcp");
  EXPECT_EQ(source->map.tensors[find_tensor(source->map, "optimizer.state.1.weight.exp_avg")].parameter,
            "model.1.weight");
  EXPECT_EQ(source->map.meta.world_size, 2u);
}

TEST(FoldersGoldenState, ANameInTwoFilesIsAmbiguous) {
  const TempDir dir;
  fs::copy(golden_root("folders/hf_trainer"), dir.path(), fs::copy_options::recursive);
  auto io = open_io(IoKind::threads, 8);
  ASSERT_TRUE(io.has_value());
  auto one = open_source(**io, dir.path(), {}, {});
  ASSERT_TRUE(one.has_value());
  Map twice = one->map;
  const auto joined = join_maps(one->map, std::move(twice), "", dir.path());
  ASSERT_FALSE(joined.has_value());
  EXPECT_EQ(joined.error().code, Errc::ambiguous);
}

TEST(FoldersGoldenState, AnotherFileOfTheStateIsAnotherSource) {
  const TempDir dir;
  fs::copy(golden_root("folders/hf_trainer"), dir.path(), fs::copy_options::recursive);
  auto io = open_io(IoKind::threads, 8);
  ASSERT_TRUE(io.has_value());
  const auto id = [&] { return fingerprint(open_source(**io, dir.path(), {}, {.extras = true})->map); };
  const Hash128 before = id();
  for (const char* file : {"scheduler.pt", "tokenizer.json"}) {
    fs::last_write_time(dir.path() + "/" + file, fs::file_time_type::clock::now() - std::chrono::hours(1));
    EXPECT_NE(id(), before) << file;
  }
  EXPECT_EQ(id(), id());
}

}  // namespace
}  // namespace ckpt
