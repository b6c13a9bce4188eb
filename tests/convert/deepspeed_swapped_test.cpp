#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "convert/formats.hpp"
#include "convert/torch_patch.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;
using test::TorchPatch;

constexpr const char* kCase = "deepspeed/zero3_bf16_dp1_nvme";
constexpr std::uint64_t kFirstElements = 11 * 256;  // of emb.weight, which lies before big.weight
constexpr std::uint64_t kBigElements = 1027 * 256;

Result<Map> open_deepspeed(const std::string& root) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  return deepspeed_format().reader->open(**io, root, {});
}

TEST(DeepSpeedSwapped, EveryElementOfTheTruthIsFoundInRawFilesAndInTheSmallOne) {
  const GoldenCase golden = load_golden(kCase);
  const auto map = open_deepspeed(golden.root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  std::vector<std::uint32_t> all(map->tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto covered = check_coverage(*map, all);
  ASSERT_TRUE(covered.has_value()) << covered.error().message;
  EXPECT_EQ(golden.truth.size(), 17u);
  EXPECT_EQ(map->tensors.size(), 20u);  // the truth has of big.weight the master only
  for (const GoldenCase::Truth& truth : golden.truth) {
    SCOPED_TRACE(truth.key);
    const std::string kind = truth.key.substr(0, truth.key.find('/'));
    const std::string name = truth.key.substr(kind.size() + 1);
    const std::size_t index = find_tensor(*map, kind == "param" ? name : "optimizer.state." + name + "." + kind);
    EXPECT_EQ(map->tensors[index].dtype, truth.dtype);
    EXPECT_EQ(map->tensors[index].shape, truth.shape);
    const Gathered gathered = gather(*map, golden.root, index);
    EXPECT_TRUE(gathered.bytes == truth.bytes);
    EXPECT_TRUE(gathered.complete && gathered.once && gathered.crc_agrees);
  }
}

TEST(DeepSpeedSwapped, MomentsThatTheTruthLacksAreTheBytesOfTheirRawFiles) {
  const std::string root = golden_root(kCase);
  const auto map = open_deepspeed(root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  for (const std::string slot : {"exp_avg", "exp_avg_sq"}) {
    const std::string raw =
        test::read_file(root + "/global_step2/offloaded_tensors/rank00/" + slot + "-0_1.tensor.swp");
    const Gathered gathered = gather(*map, root, find_tensor(*map, "optimizer.state.big.weight." + slot));
    EXPECT_TRUE(gathered.bytes == raw.substr(4 * kFirstElements, 4 * kBigElements)) << slot;
  }
}

class Copy {
 public:
  Copy() { fs::copy(golden_root(kCase), root(), fs::copy_options::recursive); }
  std::string root() const { return directory_.path() + "/ckpt"; }
  std::string raw(const std::string& name) const { return root() + "/global_step2/offloaded_tensors/rank00/" + name; }
  std::string optim() const { return root() + "/global_step2/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"; }

 private:
  TempDir directory_{memory_temp_dir()};
};

void expect_error(const Copy& copy, Errc code, const std::string& file, const std::string& words) {
  const auto map = open_deepspeed(copy.root());
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, code) << map.error().message;
  EXPECT_EQ(map.error().file, file) << map.error().message;
  EXPECT_NE(map.error().message.find(words), std::string::npos) << map.error().message;
}

TEST(DeepSpeedSwappedBroken, EveryMissingOrResizedRawFileIsNamed) {
  for (const char* name : {"0_1.tensor.swp", "exp_avg-0_1.tensor.swp", "exp_avg_sq-0_1.tensor.swp"}) {
    SCOPED_TRACE(name);
    const Copy copy;
    const auto bytes = fs::file_size(copy.raw(name));
    fs::resize_file(copy.raw(name), bytes - 1);
    expect_error(copy, Errc::corrupt, copy.raw(name), "265728 elements take 1062912");
    fs::resize_file(copy.raw(name), bytes + 1024);
    expect_error(copy, Errc::corrupt, copy.raw(name), "has 1063936 bytes");
    fs::remove(copy.raw(name));
    expect_error(copy, Errc::incomplete, copy.raw(name), "missing");
  }
}

TEST(DeepSpeedSwappedBroken, RawFilesThatNoOptimizerFileAsksForAreNotRead) {
  const TempDir directory(memory_temp_dir());
  const std::string root = directory.path() + "/ckpt";
  fs::copy(golden_root("deepspeed/zero3_fp32_dp3_tied_tiny"), root, fs::copy_options::recursive);
  fs::create_directories(root + "/global_step3/offloaded_tensors/rank00");
  test::write_file(root + "/global_step3/offloaded_tensors/rank00/0_1.tensor.swp", "x");
  const auto map = open_deepspeed(root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->findings.back().severity, Severity::note);
  EXPECT_EQ(map->findings.back().file, "global_step3/offloaded_tensors");
  for (const MapFile& file : map->files) EXPECT_EQ(file.path.find(".swp"), std::string::npos);
}

TEST(DeepSpeedSwappedBroken, AnIdentifierThatLeadsElsewhereIsRefused) {
  for (const char* id : {"../", "a_1", "0.1", "/et"}) {
    SCOPED_TRACE(id);
    const Copy copy;
    TorchPatch(copy.optim()).replace({"fp32_flat_groups"}, "0_1", id).write();
    expect_error(copy, Errc::refused, copy.optim(), "not a list of parameter numbers");
  }
}

}  // namespace
}  // namespace ckpt
