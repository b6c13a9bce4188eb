// Local checkpoints of NVIDIA's resiliency extension: a file of each rank of a Megatron-LM run.
#include <gtest/gtest.h>

#include <algorithm>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "convert/open_source.hpp"
#include "engine/io/io.hpp"
#include "format/model/model.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLocal = "megatron/local_tp2";

class MegatronLocal : public testing::Test {
 protected:
  Result<Source> open(const std::string& path) {
    return open_source(*io_, path, "", {.metadata_limit = std::uint64_t{256} << 20});
  }
  /// A copy of the run to change.
  std::string copy() {
    fs::copy(load_golden(std::string(kLocal)).root, directory_.path() + "/run", fs::copy_options::recursive);
    return directory_.path() + "/run";
  }

  TempDir directory_;
  std::unique_ptr<Io> io_ = *open_io(IoKind::threads, 8);
};

void expect_truth(const Source& source) {
  const GoldenCase golden = load_golden(std::string(kLocal));
  EXPECT_EQ(source.format->name, "megatron");
  EXPECT_EQ(source.map.variant, "local, 2 files of ranks");
  EXPECT_EQ(source.map.tensors.size(), golden.truth.size());
  for (const GoldenCase::Truth& truth : golden.truth) {
    SCOPED_TRACE(truth.key);
    const std::size_t at = find_tensor(source.map, truth.key.substr(truth.key.find('/') + 1));
    EXPECT_EQ(source.map.tensors[at].dtype, truth.dtype);
    EXPECT_EQ(source.map.tensors[at].shape, truth.shape);
    EXPECT_EQ(source.map.tensors[at].role, Role::param);
    const Gathered gathered = gather(source.map, source.root, at);
    EXPECT_TRUE(gathered.bytes == truth.bytes && gathered.complete && gathered.replicas_agree && gathered.crc_agrees);
  }
}

TEST_F(MegatronLocal, PartsOfRanksAreJoinedByTheirPlaces) {
  const auto source = open(load_golden(std::string(kLocal)).root);
  ASSERT_TRUE(source) << source.error().message;
  expect_truth(*source);
  EXPECT_EQ(source->map.meta.step, 100U);
  EXPECT_TRUE(std::ranges::any_of(source->map.objects,
                                  [](const NamedObject& object) { return object.name.starts_with("args"); }));
}

TEST_F(MegatronLocal, TheNewestIterationOfAllRanksIsRead) {
  const std::string root = copy();
  std::ofstream(root + "/0/iter_0000200_0_local.pt") << "of an iteration that rank 1 did not finish";
  std::ofstream(root + "/1/iter_0000200_1_local.dirty.pt") << "unfinished";
  const auto source = open(root);
  ASSERT_TRUE(source) << source.error().message;
  expect_truth(*source);
}

TEST_F(MegatronLocal, ReplicasOnOtherNodesTakeThePlaceOfALostOne) {
  const std::string root = copy();
  fs::rename(root + "/1/iter_0000100_1_local.pt", root + "/0/iter_0000100_1_local.pt");
  fs::remove(root + "/1");
  const auto source = open(root);
  ASSERT_TRUE(source) << source.error().message;
  expect_truth(*source);
}

TEST_F(MegatronLocal, AMissingRankIsIncomplete) {
  const std::string root = copy();
  fs::remove_all(root + "/0");
  const auto source = open(root);
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, Errc::incomplete);
  EXPECT_NE(source.error().message.find("missing for 1 of 2 ranks: 0"), std::string::npos) << source.error().message;
}

TEST_F(MegatronLocal, AFileCutShortIsCorrupt) {
  const std::string root = copy();
  fs::resize_file(root + "/1/iter_0000100_1_local.pt", 5000);
  const auto source = open(root);
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, Errc::corrupt);
}

}  // namespace
}  // namespace ckpt
