#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "convert/formats.hpp"
#include "convert/place.hpp"
#include "support/golden.hpp"

namespace ckpt {
namespace {

Result<Map> open_deepspeed(const std::string& root) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  return deepspeed_format().reader->open(**io, root, {});
}

Result<std::optional<Match>> detect(const std::string& root) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  auto entries = (*io)->list(root);
  EXPECT_TRUE(entries.has_value());
  return deepspeed_format().detect({.io = **io, .root = root, .directory = true, .entries = *entries});
}

struct Kind {
  Role role;
  std::string name;       // in the map
  std::string parameter;  // of a slot
  std::string slot;
};

/// What the map must call a tensor of the truth.
Kind kind_of(const std::string& key) {
  const std::string kind = key.substr(0, key.find('/'));
  const std::string name = key.substr(kind.size() + 1);
  if (kind == "param") return {Role::param, name, "", ""};
  if (kind == "buffer") return {Role::buffer, name, "", ""};
  return {Role::slot, "optimizer.state." + name + "." + kind, name, kind};
}

class DeepSpeedGolden : public testing::TestWithParam<const char*> {
 protected:
  GoldenCase golden_ = load_golden(std::string("deepspeed/") + GetParam());
};

TEST_P(DeepSpeedGolden, IsDetectedAsSaveDirectoryAndAsTag) {
  const auto match = detect(golden_.root);
  ASSERT_TRUE(match.has_value() && match->has_value());
  EXPECT_EQ((*match)->where, "");
  const auto tag = detect(golden_.root + "/global_step3");
  ASSERT_TRUE(tag.has_value() && tag->has_value());
  const auto inside = open_deepspeed(golden_.root + "/global_step3");
  ASSERT_TRUE(inside.has_value()) << inside.error().message;
  EXPECT_EQ(inside->chosen, "");
}

TEST_P(DeepSpeedGolden, EveryElementEqualsTheTruthAndNothingElseIsThere) {
  const auto map = open_deepspeed(golden_.root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  std::vector<std::uint32_t> all(map->tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto covered = check_coverage(*map, all);
  ASSERT_TRUE(covered.has_value()) << covered.error().message;
  std::size_t expected = 0;
  const nlohmann::json& aliases = (*golden_.about)["aliases"];
  for (const GoldenCase::Truth& truth : golden_.truth) {
    SCOPED_TRACE(truth.key);
    Kind kind = kind_of(truth.key);
    if (aliases.contains(kind.name)) {
      kind.name = aliases[kind.name].get<std::string>();
    } else {
      ++expected;
    }
    const std::size_t index = find_tensor(*map, kind.name);
    const Tensor& tensor = map->tensors[index];
    EXPECT_EQ(tensor.dtype, truth.dtype);
    EXPECT_EQ(tensor.shape, truth.shape);
    EXPECT_EQ(tensor.role, kind.role);
    EXPECT_EQ(tensor.parameter, kind.parameter);
    EXPECT_EQ(tensor.slot, kind.slot);
    const Gathered gathered = gather(*map, golden_.root, index);
    EXPECT_TRUE(gathered.bytes == truth.bytes);
    // Without ZeRO every expert-parallel rank's optimizer has what is no expert's: copies, which must agree.
    const bool copies = std::string_view(GetParam()).starts_with("moe_ep2_dp2_zero0");
    EXPECT_TRUE(gathered.complete && (gathered.once || copies) && gathered.replicas_agree && gathered.crc_agrees);
  }
  // Steps, and tensors of the client state, are not in the truth.
  const auto steps =
      static_cast<std::size_t>(std::count_if(map->tensors.begin(), map->tensors.end(), [](const Tensor& tensor) {
        return tensor.role == Role::slot && (tensor.slot == "step" || tensor.slot.empty());
      }));
  EXPECT_EQ(map->tensors.size(), expected + steps);
  EXPECT_EQ(map->aliases.size(), aliases.size());
  for (const Alias& alias : map->aliases) EXPECT_EQ(aliases.value(alias.name, ""), alias.target);
}

TEST_P(DeepSpeedGolden, StepMeshVersionAndChoiceAreThoseOfTheRun) {
  const auto map = open_deepspeed(golden_.root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->format, "deepspeed");
  const std::string stage = "zero-" + std::to_string((*golden_.about)["zero_stage"].get<int>());
  EXPECT_EQ(map->variant,
            std::string_view(GetParam()).find("bf16opt") != std::string_view::npos ? "BF16_Optimizer" : stage);
  EXPECT_EQ(map->chosen, "tag global_step3 from 'latest'");
  EXPECT_EQ(map->meta.step, (*golden_.about)["step"].get<std::uint64_t>());
  EXPECT_EQ(map->meta.world_size, (*golden_.about)["world_size"].get<std::uint64_t>());
  EXPECT_EQ(map->meta.framework, "deepspeed");
  EXPECT_EQ(map->meta.framework_version, (*golden_.about)["versions"]["deepspeed"].get<std::string>());
  std::vector<std::pair<std::string, std::uint64_t>> mesh{
      {"dp", (*golden_.about)["world_size"].get<std::uint64_t>()},
      {"tp", 1},
      {"pp", 1},
      {"zero", (*golden_.about)["zero_stage"].get<std::uint64_t>()}};
  if (std::string_view(GetParam()).starts_with("moe")) {
    mesh.emplace_back("ep", (*golden_.about)["parallel"]["ep"].get<std::uint64_t>());
  }
  EXPECT_EQ(map->meta.mesh, mesh);
  EXPECT_EQ(map->metadata_hash.size(), 32u);
  for (const Finding& finding : map->findings) EXPECT_EQ(finding.severity, Severity::note) << finding.text;
}

INSTANTIATE_TEST_SUITE_P(Cases, DeepSpeedGolden,
                         testing::Values("bf16opt_dp2", "zero0_bf16_dp2", "zero0_fp32_dp2", "zero1_fp16_dp2",
                                         "zero1_fp16_dp2_python3112", "zero2_bf16_dp4", "zero2_fp32_dp3_frozen",
                                         "zero2_fp32_dp2_legacy_pt", "zero2_bf16_dp2_offload_cpu", "zero2_fp16_dp2_v07",
                                         "zero3_bf16_dp4", "zero3_fp32_dp3_tied_tiny", "zero2_fp32_dp3_round_robin",
                                         "zero0_bf16_dp1_groups_frozen", "zero0_fp32_dp1_groups_tied",
                                         "zero1_bf16_dp3_aligned", "zero2_fp32_dp3_elastic", "zero1_dp2_elastic_fused",
                                         "zero3_bf16_dp3_frozen", "moe_ep2_dp4_zero2_bf16", "moe_ep1_dp2_zero2_fp32",
                                         "moe_ep2_dp2_bf16opt", "moe_ep2_dp2_zero0_bf16", "moe_ep2_dp2_zero0_fp32",
                                         "moe_ep2_dp4_zero1_fp32_data_first", "moe_mixed_dp4_zero2_bf16"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace ckpt
