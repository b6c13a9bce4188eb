#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "convert/formats.hpp"
#include "support/golden.hpp"

namespace ckpt {
namespace {

Result<Map> open_torch(const std::string& root) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  return torch_format().reader->open(**io, root, {});
}

Map opened(const std::string& root) {
  auto map = open_torch(root);
  EXPECT_TRUE(map.has_value()) << map.error().message;
  return map ? *std::move(map) : Map{};
}

// The tensor of this name, or the one that an alias of this name stands for.
std::size_t tensor_or_target(const Map& map, const std::string& name) {
  for (const Alias& alias : map.aliases) {
    if (alias.name == name) return find_tensor(map, alias.target);
  }
  return find_tensor(map, name);
}

const NamedObject* find_object(const Map& map, const std::string& name) {
  for (const NamedObject& object : map.objects) {
    if (object.name == name) return &object;
  }
  return nullptr;
}

class TorchGolden : public testing::TestWithParam<const char*> {};

TEST_P(TorchGolden, IsDetectedAsADirectory) {
  auto io = open_io(IoKind::threads, 8);
  ASSERT_TRUE(io.has_value());
  const std::string root = golden_root(std::string("torch/") + GetParam());
  auto entries = (*io)->list(root);
  ASSERT_TRUE(entries.has_value());
  const auto match = torch_format().detect({.io = **io, .root = root, .directory = true, .entries = *entries});
  ASSERT_TRUE(match.has_value());
  ASSERT_TRUE(match->has_value());
  EXPECT_EQ((*match)->where, "");
}

TEST_P(TorchGolden, EveryElementEqualsTheTruth) {
  const GoldenCase golden = load_golden(std::string("torch/") + GetParam());
  const Map map = opened(golden.root);
  std::vector<std::uint32_t> all(map.tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto covered = check_coverage(map, all);
  ASSERT_TRUE(covered.has_value()) << covered.error().message;
  ASSERT_FALSE(golden.truth.empty());
  for (const GoldenCase::Truth& truth : golden.truth) {
    SCOPED_TRACE(truth.key);
    const std::size_t index = tensor_or_target(map, truth.name);
    const Tensor& tensor = map.tensors[index];
    EXPECT_EQ(tensor.dtype, truth.dtype);
    EXPECT_EQ(tensor.shape, truth.shape);
    EXPECT_EQ(tensor.true_dtype, truth.key.ends_with("#c128") ? "complex128" : "");
    const Gathered gathered = gather(map, golden.root, index);
    EXPECT_TRUE(gathered.bytes == truth.bytes);
    EXPECT_TRUE(gathered.complete);
    // A replicated tensor stands in every rank's file.
    const bool replicated = truth.shape.empty() || truth.name == "model.hsdp" || truth.name == "model.buffer";
    const bool by_rank =
        std::string(GetParam()).starts_with("rank_files") || std::string(GetParam()).starts_with("tc_");
    EXPECT_TRUE(gathered.once || (replicated && by_rank));
    EXPECT_TRUE(gathered.replicas_agree);
    EXPECT_TRUE(gathered.crc_agrees);
  }
}

TEST_P(TorchGolden, OptimizerStateIsTold) {
  const GoldenCase golden = load_golden(std::string("torch/") + GetParam());
  const Map map = opened(golden.root);
  for (const GoldenCase::Truth& truth : golden.truth) {
    SCOPED_TRACE(truth.key);
    const Tensor& tensor = map.tensors[tensor_or_target(map, truth.name)];
    const std::string kind = truth.key.substr(0, truth.key.find('/'));
    if (kind == "param") {
      EXPECT_EQ(tensor.role, Role::param);
      EXPECT_EQ(tensor.slot, "");
    } else {
      EXPECT_EQ(tensor.role, Role::slot);
      EXPECT_EQ(tensor.slot, kind == "state" ? "step" : kind);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TorchGolden,
                         testing::Values("lightning", "pt_align4k", "pt_dtypes", "pt_legacy", "pt_mixed", "pt_nocrc",
                                         "pt_trainer", "fsdp1_full", "rank_files_dtensor", "rank_files_placements",
                                         "tc_plain", "tc_shard0_w3"),
                         [](const auto& one) { return std::string(one.param); });

TEST(TorchGoldenFiles, TensorsOfHooksAreNotWeightsOfALightningModule) {
  const Map map = opened(golden_root("torch/lightning"));
  for (const char* name : {"hook.generator", "hook.scale"})
    EXPECT_EQ(map.tensors[find_tensor(map, name)].role, Role::slot) << name;
  EXPECT_EQ(map.meta.step, 3u);
}

TEST(TorchGoldenFiles, LaterFilesGetTheirNameInFront) {
  const Map trainer = opened(golden_root("torch/pt_trainer"));
  find_tensor(trainer, "state_dict.model.emb.weight");
  find_tensor(trainer, "optimizer.state.0.exp_avg");
  find_tensor(trainer, "pytorch_model.bin/emb.weight");
  EXPECT_NE(find_object(trainer, "scheduler.T_max"), nullptr);
  EXPECT_EQ(trainer.meta.step, 3u);
}

TEST(TorchGoldenFiles, FilesOfTheSameTensorsAreSeveralCheckpoints) {
  const auto map = open_torch(golden_root("torch/pt_protocols"));
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::ambiguous);
  EXPECT_NE(map.error().message.find("4 checkpoints, not one: proto"), std::string::npos) << map.error().message;
}

TEST(TorchGoldenFiles, EveryProtocolGivesTheSameObjects) {
  const GoldenCase golden = load_golden("torch/pt_protocols");
  for (const std::string file : {"/proto2.pt", "/proto3.pt", "/proto4.pt", "/proto5.pt"}) {
    SCOPED_TRACE(file);
    const Map map = opened(golden.root + file);
    EXPECT_EQ(gather(map, golden.root + file, find_tensor(map, "x")).bytes, golden.truth.front().bytes);
    const NamedObject* bytes = find_object(map, "list.3");
    const NamedObject* set = find_object(map, "list.5");
    ASSERT_TRUE(bytes != nullptr && set != nullptr);
    ASSERT_TRUE(std::holds_alternative<Bytes>(bytes->value.v));
    EXPECT_EQ(std::get<Bytes>(bytes->value.v).data, "b");
    ASSERT_TRUE(std::holds_alternative<List>(set->value.v));
    EXPECT_EQ(std::get<List>(set->value.v).kind, List::Kind::set);
    EXPECT_EQ(std::get<std::int64_t>(std::get<List>(set->value.v).items.at(0)->v), 3);
  }
}

TEST(TorchGoldenMixed, ViewsOfOneStorageAreTensorsOfTheirOwn) {
  const Map map = opened(golden_root("torch/pt_mixed"));
  EXPECT_TRUE(map.aliases.empty());  // `tied` is a Parameter, `base` a plain tensor
  for (const std::string name : {"base", "view", "t", "exp", "tied", "s0", "nil"}) find_tensor(map, name);
}

TEST(TorchGoldenMixed, ObjectsKeepTheirTypeAndPath) {
  const Map map = opened(golden_root("torch/pt_mixed"));
  const auto at = [&](const std::string& name) { return find_object(map, name)->value; };
  EXPECT_EQ(std::get<std::int64_t>(at("big").v), 1099511627776);
  EXPECT_EQ(std::get<std::int64_t>(at("neg").v), -8589934592);
  EXPECT_EQ(std::get<BigInt>(at("huge").v).decimal, "1180591620717411303424");
  EXPECT_EQ(std::get<Bytes>(at("by").v).data, std::string("\0\xff", 2));
  EXPECT_TRUE(std::holds_alternative<None>(at("none").v));
  EXPECT_EQ(std::get<std::int64_t>(at("nest.0").v), 1);
  EXPECT_EQ(std::get<double>(at("nest.1.1").v), 3.5);
  EXPECT_EQ(std::get<bool>(at("nest.2.k").v), true);
  EXPECT_EQ(find_object(map, "nest.2.k")->path, (Path{"nest", 2, "k"}));
  EXPECT_EQ(std::get<std::string>(at("text").v), "gr\xc3\xbc\xc3\x9f \xe4\xbd\xa0");
}

TEST(TorchGoldenMixed, TensorsWithoutCounterpartAreKeptAsBlobsWithTheirStorages) {
  const std::string root = golden_root("torch/pt_mixed");
  const Map map = opened(root);
  std::vector<std::string> blobs;
  for (const Tensor& tensor : map.tensors) {
    if (tensor.role == Role::blob) blobs.push_back(tensor.name);
  }
  EXPECT_EQ(blobs, (std::vector<std::string>{"data.pkl", "data/2", "data/3", "data/4", "data/5", "data/6", "data/7"}));
  const Gathered pickle = gather(map, root, find_tensor(map, "data.pkl"));
  EXPECT_EQ(pickle.bytes.size(), 1367u);
  EXPECT_EQ(pickle.bytes.front(), '\x80');
  EXPECT_EQ(pickle.bytes.back(), '.');
  EXPECT_TRUE(gather(map, root, find_tensor(map, "data/7")).crc_agrees);
  const auto warning = std::find_if(map.findings.begin(), map.findings.end(),
                                    [](const Finding& finding) { return finding.severity == Severity::warning; });
  ASSERT_NE(warning, map.findings.end());
  EXPECT_NE(warning->text.find("coo (sparse tensor), csr (sparse tensor), q (quantized tensor)"), std::string::npos)
      << warning->text;
}

struct Broken {
  const char* name;
  Errc code;
};
class TorchBroken : public testing::TestWithParam<Broken> {};

TEST_P(TorchBroken, GetsItsCodeAndNamesTheFile) {
  const auto map = open_torch(golden_root(std::string("broken/") + GetParam().name));
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, GetParam().code) << map.error().message;
  EXPECT_NE(map.error().file.find("ckpt/"), std::string::npos);
  EXPECT_NE(map.error().message.find(map.error().file), std::string::npos) << map.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, TorchBroken,
    testing::Values(Broken{"pickle_memo_bomb", Errc::refused}, Broken{"pickle_deep_nesting", Errc::refused},
                    Broken{"pickle_huge_length", Errc::corrupt}, Broken{"pickle_os_system", Errc::refused},
                    Broken{"pickle_negative_offset", Errc::corrupt}, Broken{"pickle_storage_too_small", Errc::corrupt},
                    Broken{"zip_bomb_pickle", Errc::refused}, Broken{"zip_path_escape", Errc::refused},
                    Broken{"zip_flipped_pickle_byte", Errc::checksum}, Broken{"zip_truncated", Errc::corrupt}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace ckpt
