#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "convert/formats.hpp"
#include "convert/torch_patch.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

/// What an opened map may promise: every chunk inside its tensor and its file.
void expect_sound(const Map& map) {
  for (std::size_t t = 0; t < map.tensors.size(); ++t) {
    const Tensor& tensor = map.tensors[t];
    const auto visited = map.index->chunks(t, {0, volume(tensor.shape)}, [&](const PlacedChunk& placed) -> Result<> {
      EXPECT_TRUE(fits(placed.chunk.box, tensor.shape)) << tensor.name;
      EXPECT_LT(placed.where.file, map.files.size()) << tensor.name;
      std::uint64_t last = placed.chunk.volume() - 1;
      if (!placed.where.strides.empty()) {
        last = 0;
        for (std::size_t d = 0; d < placed.where.strides.size(); ++d) {
          last += (placed.chunk.box.size[d] - 1) * static_cast<std::uint64_t>(placed.where.strides[d]);
        }
      }
      EXPECT_LE(placed.where.offset + (last + 1) * unit_bytes(placed.where.dtype), map.files[placed.where.file].bytes)
          << tensor.name;
      return {};
    });
    EXPECT_TRUE(visited.has_value()) << tensor.name;
  }
}

class DeepSpeedMutation : public testing::TestWithParam<const char*> {};

TEST_P(DeepSpeedMutation, AnyChangedByteOfAPickleGivesAnErrorOrASoundMap) {
  constexpr unsigned kSeed = 20260822;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  const std::string source = golden_root(std::string("deepspeed/") + GetParam()) + "/global_step3";
  auto io = open_io(IoKind::threads, 8);
  ASSERT_TRUE(io.has_value());
  std::size_t refused = 0;
  for (const auto& entry : fs::directory_iterator(source)) {
    const TempDir directory;
    fs::copy(source, directory.path(), fs::copy_options::recursive);
    const std::string file = directory.path() + "/" + entry.path().filename().string();
    for (int i = 0; i < 60; ++i) {
      fs::copy_file(entry.path(), file, fs::copy_options::overwrite_existing);
      test::TorchPatch patch(file);
      const std::size_t at = random() % patch.size();
      const auto value = static_cast<char>(random() & 0xff);
      SCOPED_TRACE(file + ": byte " + std::to_string(at) + " = " + std::to_string(value));
      patch.set(at, value).write();
      const auto map = deepspeed_format().reader->open(**io, directory.path(), {});
      if (map) {
        expect_sound(*map);
      } else {
        ++refused;
        EXPECT_NE(map.error().code, Errc::internal) << map.error().message;
        EXPECT_FALSE(map.error().message.empty());
      }
    }
  }
  EXPECT_GT(refused, 0u);
}

INSTANTIATE_TEST_SUITE_P(Cases, DeepSpeedMutation,
                         testing::Values("zero0_bf16_dp1_groups_frozen", "zero1_bf16_dp3_aligned",
                                         "zero3_fp32_dp3_tied_tiny", "moe_ep2_pp2_dp2_zero1_fp32",
                                         "moe_ep2_tp2_dp2_zero0_fp32"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace ckpt
