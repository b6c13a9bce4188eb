// Genuine checkpoints of megatron-core in the torch_dist format.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "convert/formats.hpp"
#include "convert/open_source.hpp"
#include "engine/io/io.hpp"
#include "format/model/model.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

class MegatronGolden : public testing::Test {
 protected:
  Result<Source> open(const std::string& path, const std::string& from = "") {
    return open_source(*io_, path, from, {.metadata_limit = std::uint64_t{256} << 20});
  }
  /// A copy to change.
  std::string copy(const std::string& root) {
    fs::copy(root, directory_.path() + "/copy", fs::copy_options::recursive);
    return directory_.path() + "/copy";
  }

  TempDir directory_;
  std::unique_ptr<Io> io_ = *open_io(IoKind::threads, 8);
};

void expect_truth(const Source& source, const GoldenCase& golden) {
  std::set<std::string> expected;
  for (const GoldenCase::Truth& truth : golden.truth) {
    SCOPED_TRACE(truth.key);
    const std::size_t slash = truth.key.find('/');
    const std::string kind = truth.key.substr(0, slash);
    const std::string weight = truth.key.substr(slash + 1);
    const auto found = std::ranges::find_if(source.map.tensors, [&](const Tensor& tensor) {
      return kind == "param" ? tensor.role == Role::param && tensor.name == weight
                             : tensor.role == Role::slot && tensor.slot == kind && tensor.parameter == weight;
    });
    ASSERT_NE(found, source.map.tensors.end());
    expected.insert(found->name);
    EXPECT_EQ(found->dtype, truth.dtype);
    EXPECT_EQ(found->shape, truth.shape);
    const Gathered gathered =
        gather(source.map, source.root, static_cast<std::size_t>(found - source.map.tensors.begin()));
    EXPECT_TRUE(gathered.bytes == truth.bytes);
    EXPECT_TRUE(gathered.complete && gathered.once && gathered.crc_agrees);
  }
  for (const Tensor& tensor : source.map.tensors)
    EXPECT_TRUE(tensor.role == Role::blob || expected.contains(tensor.name)) << tensor.name << " is in no truth";
}

TEST_F(MegatronGolden, WeightsAndStateOfARunAreThoseThatItSaved) {
  const GoldenCase golden = load_golden("megatron/torch_dist_tp2_pp2_dp2");
  const auto source = open(golden.root);
  ASSERT_TRUE(source) << source.error().message;
  expect_truth(*source, golden);
  EXPECT_EQ(source->format->name, "megatron");
  EXPECT_EQ(source->map.meta.step, 2U);
  EXPECT_EQ(source->map.meta.world_size, 8U);
  EXPECT_EQ(source->map.meta.mesh,
            (std::vector<std::pair<std::string, std::uint64_t>>{{"dp", 2}, {"tp", 2}, {"pp", 2}}));
  EXPECT_TRUE(source->why.find("names iter_0000002") != std::string::npos) << source->why;
}

TEST_F(MegatronGolden, TheCommonStateMayBeAFile) {
  const GoldenCase golden = load_golden("megatron/core_torch_dist_w4");
  const auto source = open(golden.root);
  ASSERT_TRUE(source) << source.error().message;
  expect_truth(*source, golden);
  EXPECT_EQ(source->map.meta.step, 7U);
  const auto iteration = std::ranges::find(source->map.objects, "iteration", &NamedObject::name);
  EXPECT_NE(iteration, source->map.objects.end());
  EXPECT_TRUE(std::ranges::any_of(source->map.files, [](const MapFile& file) { return file.path == "common.pt"; }));
}

TEST_F(MegatronGolden, ATrackerThatLeadsNowhereIsIncomplete) {
  const std::string run = copy(golden_root("megatron/torch_dist_tp2_pp2_dp2"));
  const std::string tracker = run + "/latest_checkpointed_iteration.txt";
  const auto write = [&](const std::string& text) { std::ofstream(tracker) << text; };
  write("");
  EXPECT_EQ(open(run).error().code, Errc::incomplete);
  write("3");
  EXPECT_NE(open(run).error().message.find("names iter_0000003, which is missing"), std::string::npos);
  write("later");
  EXPECT_NE(open(run).error().message.find("names no iteration"), std::string::npos);
  fs::rename(run + "/iter_0000002", run + "/release");
  write("release\n");
  EXPECT_TRUE(open(run)) << open(run).error().message;
  fs::remove(run + "/release/.metadata");
  fs::remove(run + "/release/metadata.json");
  const auto unfinished = open(run);
  ASSERT_FALSE(unfinished);
  EXPECT_EQ(unfinished.error().code, Errc::uncommitted);
  EXPECT_NE(unfinished.error().message.find("never finished"), std::string::npos) << unfinished.error().message;
}

TEST_F(MegatronGolden, WithoutMetadataJsonItIsReadThroughTheTracker) {
  const std::string run = copy(golden_root("megatron/torch_dist_tp2_pp2_dp2"));
  fs::remove(run + "/iter_0000002/metadata.json");
  const auto source = open(run);
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ(source->map.variant.substr(0, 9), "torch_dcp");
}

}  // namespace
}  // namespace ckpt
