#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "convert/formats.hpp"
#include "convert/place.hpp"
#include "support/golden.hpp"

namespace ckpt {
namespace {

Result<Map> open_dcp(const std::string& root) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  return dcp_format().reader->open(**io, root, {});
}

Result<std::optional<Match>> detect(const std::string& root) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  auto entries = (*io)->list(root);
  EXPECT_TRUE(entries.has_value());
  return dcp_format().detect({.io = **io, .root = root, .directory = true, .entries = *entries});
}

bool equal(const nlohmann::json& expected, const Value& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value.v))
    return expected.is_number_integer() && expected == *number;
  if (const auto* real = std::get_if<double>(&value.v)) return expected.is_number_float() && expected == *real;
  if (const auto* text = std::get_if<std::string>(&value.v)) return expected.is_string() && expected == *text;
  const auto* list = std::get_if<List>(&value.v);
  if (list == nullptr || !expected.is_array() || expected.size() != list->items.size()) return false;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!equal(expected[i], *list->items[i])) return false;
  }
  return true;
}

class DcpGolden : public testing::TestWithParam<const char*> {};

TEST_P(DcpGolden, IsDetected) {
  const auto match = detect(golden_root(std::string("torch/") + GetParam()));
  ASSERT_TRUE(match.has_value());
  ASSERT_TRUE(match->has_value());
  EXPECT_EQ((*match)->where, "");
}

TEST_P(DcpGolden, EveryElementEqualsTheTruth) {
  const GoldenCase golden = load_golden(std::string("torch/") + GetParam());
  const auto map = open_dcp(golden.root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  std::vector<std::uint32_t> all(map->tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto covered = check_coverage(*map, all);
  ASSERT_TRUE(covered.has_value()) << covered.error().message;
  std::set<std::string> expected;
  for (const GoldenCase::Truth& truth : golden.truth) {
    SCOPED_TRACE(truth.key);
    expected.insert(truth.name);
    const std::size_t index = find_tensor(*map, truth.name);
    const Tensor& tensor = map->tensors[index];
    EXPECT_EQ(tensor.dtype, truth.dtype);
    EXPECT_EQ(tensor.shape, truth.shape);
    const Gathered gathered = gather(*map, golden.root, index);
    EXPECT_TRUE(gathered.bytes == truth.bytes);
    EXPECT_TRUE(gathered.complete);
    EXPECT_TRUE(gathered.once || GetParam() == std::string("dcp_no_collectives"));
    EXPECT_TRUE(gathered.replicas_agree);
    EXPECT_TRUE(gathered.crc_agrees);
  }
  for (const Tensor& tensor : map->tensors) {
    EXPECT_TRUE(tensor.role == Role::blob || expected.contains(tensor.name)) << tensor.name << " is in no truth";
  }
}

TEST_P(DcpGolden, RolesNameTheParameterThatTheStateBelongsTo) {
  const GoldenCase golden = load_golden(std::string("torch/") + GetParam());
  const auto map = open_dcp(golden.root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  const nlohmann::json& names = (*golden.about)["names"];
  for (const GoldenCase::Truth& truth : golden.truth) {
    SCOPED_TRACE(truth.key);
    const Tensor& tensor = map->tensors[find_tensor(*map, truth.name)];
    const std::string kind = truth.key.substr(0, truth.key.find('/'));
    const std::string rest = truth.key.substr(truth.key.find('/') + 1);
    const bool is_step = truth.key.starts_with("state/step/");
    if (kind == "exp_avg" || kind == "exp_avg_sq" || is_step) {
      EXPECT_EQ(tensor.role, Role::slot);
      EXPECT_EQ(tensor.slot, is_step ? "step" : kind);
      EXPECT_EQ(tensor.parameter, names.at("param/" + (is_step ? rest.substr(5) : rest)).get<std::string>());
    } else {
      EXPECT_EQ(tensor.role, Role::param);
      EXPECT_EQ(tensor.parameter, "");
    }
  }
}

TEST_P(DcpGolden, ObjectsStepAndWorldSizeAreThoseOfTheSave) {
  const GoldenCase golden = load_golden(std::string("torch/") + GetParam());
  const auto map = open_dcp(golden.root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  for (const auto& [name, value] : (*golden.about)["objects"].items()) {
    const auto found = std::find_if(map->objects.begin(), map->objects.end(),
                                    [&wanted = name](const NamedObject& object) { return object.name == wanted; });
    ASSERT_NE(found, map->objects.end()) << name;
    EXPECT_TRUE(equal(value, found->value)) << name;
  }
  const nlohmann::json& step = (*golden.about)["expected"]["step"];
  EXPECT_EQ(map->meta.step, step.is_null() ? std::nullopt : std::optional(step.get<std::uint64_t>()));
  EXPECT_EQ(map->meta.world_size, (*golden.about)["world_size"].get<std::uint64_t>());
  EXPECT_EQ(map->metadata_hash.size(), 32u);
}

TEST_P(DcpGolden, EveryObjectStandsInABlobToo) {
  const GoldenCase golden = load_golden(std::string("torch/") + GetParam());
  const auto map = open_dcp(golden.root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  for (const NamedObject& object : map->objects) {
    const std::size_t index = find_tensor(*map, object.name);
    EXPECT_EQ(map->tensors[index].role, Role::blob);
    const Gathered gathered = gather(*map, golden.root, index);
    EXPECT_EQ(gathered.bytes.substr(0, 4), "PK\3\4") << object.name;
    EXPECT_EQ(gathered.bytes.substr(gathered.bytes.size() - 22, 4), "PK\5\6") << object.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Torch, DcpGolden,
                         testing::Values("dcp_plain", "dcp_shard1", "dcp_2d_s0_s1", "dcp_hsdp", "dcp_all_dtypes",
                                         "dcp_threads2", "dcp_async", "dcp_file_per_item", "dcp_no_collectives",
                                         "dcp_safetensors", "dcp_zstd", "fsdp1_sharded", "fsdp2_flat_optim",
                                         "fsdp2_nested_optim", "fsdp2_hsdp_bf16", "tp2_fsdp2_strided"),
                         [](const auto& test) { return std::string(test.param); });

TEST(DcpGoldenPaths, ListIndicesAreKeptAsNumbers) {
  const auto map = open_dcp(golden_root("torch/dcp_plain"));
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->tensors[find_tensor(*map, "cfg.deep.0.x")].path, (Path{"cfg", "deep", std::int64_t{0}, "x"}));
  EXPECT_EQ(map->tensors[find_tensor(*map, "model.vec")].path, Path{});
  EXPECT_EQ(map->tensors[find_tensor(*map, "model.even.w")].path, (Path{"model", "even.w"}));
}

TEST(DcpGoldenUnread, MegatronsDistributedFormatIsNotOurs) {
  const auto match = detect(golden_root("megatron/core_torch_dist_w4"));
  ASSERT_TRUE(match.has_value());
  EXPECT_FALSE(match->has_value());
}

struct Broken {
  const char* name;
  Errc code;
  const char* file;  // that the error names
};
class DcpBroken : public testing::TestWithParam<Broken> {};

TEST_P(DcpBroken, IsDetectedAndRefusedByCodeAndFile) {
  const std::string root = golden_root(std::string("broken/") + GetParam().name);
  const auto match = detect(root);
  ASSERT_TRUE(match && *match);
  const auto map = open_dcp(root);
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, GetParam().code) << map.error().message;
  EXPECT_EQ(map.error().file, root + "/" + GetParam().file);
}

INSTANTIATE_TEST_SUITE_P(Torch, DcpBroken,
                         testing::Values(Broken{"dcp_metadata_truncated", Errc::corrupt, ".metadata"},
                                         Broken{"dcp_missing_distcp", Errc::incomplete, "__2_0.distcp"},
                                         Broken{"dcp_path_escape", Errc::refused, ".metadata"},
                                         Broken{"dcp_truncated_distcp", Errc::corrupt, "__3_0.distcp"},
                                         Broken{"dcp_without_metadata", Errc::uncommitted, ".metadata"}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(DcpBroken, FlippedTensorByteContradictsTheChunksCrc) {
  const std::string root = golden_root("broken/dcp_flipped_byte");
  const auto map = open_dcp(root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  std::size_t damaged = 0;
  for (std::size_t i = 0; i < map->tensors.size(); ++i) {
    if (!gather(*map, root, i).crc_agrees) ++damaged;
  }
  EXPECT_EQ(damaged, 1u);
}

}  // namespace
}  // namespace ckpt
