#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
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

Result<Map> open_universal(const std::string& root) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  return deepspeed_universal_format().reader->open(**io, root, {});
}

class DeepSpeedUniversal : public testing::TestWithParam<const char*> {
 protected:
  GoldenCase golden_ = load_golden(std::string("deepspeed/") + GetParam());
};

TEST_P(DeepSpeedUniversal, EveryElementEqualsTheTruthAndNothingElseIsThere) {
  const auto map = open_universal(golden_.root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  std::vector<std::uint32_t> all(map->tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto covered = check_coverage(*map, all);
  ASSERT_TRUE(covered.has_value()) << covered.error().message;
  std::size_t expected = 0;
  const nlohmann::json& aliases = (*golden_.about)["aliases"];
  for (const GoldenCase::Truth& truth : golden_.truth) {
    SCOPED_TRACE(truth.key);
    const std::string kind = truth.key.substr(0, truth.key.find('/'));
    std::string name = truth.key.substr(kind.size() + 1);
    if (aliases.contains(name)) {
      name = aliases[name].get<std::string>();
    } else {
      ++expected;
    }
    const Tensor& tensor =
        map->tensors[find_tensor(*map, kind == "param" ? name : "optimizer.state." + name + "." + kind)];
    EXPECT_EQ(tensor.dtype, truth.dtype);
    EXPECT_EQ(tensor.shape, truth.shape);
    EXPECT_EQ(tensor.role, kind == "param" ? Role::param : Role::slot);
    EXPECT_EQ(tensor.slot, kind == "param" ? "" : kind);
    const Gathered gathered = gather(*map, golden_.root, find_tensor(*map, tensor.name));
    EXPECT_TRUE(gathered.bytes == truth.bytes);
    EXPECT_TRUE(gathered.complete && gathered.once && gathered.crc_agrees);
  }
  // Beside the truth stands only what the converter wrote for a tied name.
  EXPECT_EQ(map->tensors.size(), expected + aliases.size());
  EXPECT_EQ(map->aliases.size(), aliases.size());
}

TEST_P(DeepSpeedUniversal, StepMeshAndParameterGroupsAreThoseOfTheRun) {
  const auto map = open_universal(golden_.root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->format, "deepspeed-universal");
  EXPECT_EQ(map->chosen, "folder global_step3_universal from 'latest_universal'");
  EXPECT_EQ(map->meta.step, 3u);
  EXPECT_EQ(map->meta.world_size, 4u);
  EXPECT_EQ(map->meta.mesh.back().second, (*golden_.about)["zero_stage"].get<std::uint64_t>());
  for (const Finding& finding : map->findings) EXPECT_EQ(finding.severity, Severity::note) << finding.text;
  const auto object = [&](const std::string& name) {
    return std::find_if(map->objects.begin(), map->objects.end(), [&](const auto& o) { return o.name == name; });
  };
  ASSERT_NE(object("optimizer.param_groups"), map->objects.end());
  const auto& groups = std::get<List>(object("optimizer.param_groups")->value.v).items;
  ASSERT_EQ(groups.size(), 2u);
  std::size_t members = 0;
  for (const ValuePtr& group : groups) {
    members += std::get<List>(std::get<Dict>(group->v).items.back().second->v).items.size();
  }
  EXPECT_EQ(members, 10u);
  ASSERT_NE(object("optimizer.group_state"), map->objects.end());
  for (const ValuePtr& group : std::get<List>(object("optimizer.group_state")->value.v).items) {
    const auto& [key, step] = std::get<Dict>(group->v).items.front();
    EXPECT_EQ(std::get<std::string>(key->v), "step");
    EXPECT_EQ(std::get<double>(step->v), 3.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DeepSpeedUniversal,
                         testing::Values("universal_from_zero2_bf16_dp4", "universal_from_zero3_bf16_dp4"),
                         [](const auto& param) { return std::string(param.param); });

TEST(DeepSpeedUniversalTied, TheFp32FileOfATiedNameIsKeptBesideTheMaster) {
  const std::string root = golden_root("deepspeed/universal_from_zero2_bf16_dp4");
  const auto map = open_universal(root);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  // It is the stored weight as fp32, and so not the master.
  const auto gathered = [&](const std::string& name) { return gather(*map, root, find_tensor(*map, name)).bytes; };
  const std::string tied = gathered("optimizer.state.lm_head.weight.master");
  const std::string master = gathered("optimizer.state.wte.weight.master");
  const std::string weight = gathered("wte.weight");
  EXPECT_NE(tied, master);
  std::string widened(tied.size(), '\0');
  for (std::size_t i = 0; i < weight.size() / 2; ++i) widened.replace(4 * i + 2, 2, weight, 2 * i, 2);
  EXPECT_TRUE(tied == widened);
}

class Copy {
 public:
  explicit Copy(const std::string& name) {
    fs::copy(golden_root("deepspeed/" + name), root(), fs::copy_options::recursive);
  }
  std::string root() const { return directory_.path() + "/ckpt"; }
  std::string folder() const { return root() + "/global_step3_universal"; }
  std::string part(const std::string& name) const { return folder() + "/zero/" + name; }

 private:
  TempDir directory_;
};

void expect_error(const Copy& copy, Errc code, const std::string& file, const std::string& words) {
  const auto map = open_universal(copy.root());
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, code) << map.error().message;
  EXPECT_EQ(map.error().file, file) << map.error().message;
  EXPECT_NE(map.error().message.find(words), std::string::npos) << map.error().message;
}

TEST_P(DeepSpeedUniversal, EveryMissingFileIsIncompleteAndNamed) {
  std::size_t removed = 0;
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(golden_.root + "/global_step3_universal/zero")) {
    if (entry.is_regular_file()) files.push_back(entry.path().string().substr(golden_.root.size()));
  }
  for (const std::string& file : files) {
    // What stage 2 wrote of the tied name is a second copy.
    if (file.find("lm_head.weight") != std::string::npos && (*golden_.about)["aliases"].contains("lm_head.weight"))
      continue;
    SCOPED_TRACE(file);
    const Copy copy(GetParam());
    fs::remove(copy.root() + file);
    expect_error(copy, Errc::incomplete, copy.root() + file, "missing");
    ++removed;
  }
  EXPECT_GT(removed, 30u);
}

TEST_P(DeepSpeedUniversal, EveryTruncatedFileIsRefused) {
  for (const char* name : {"wte.weight/fp32.pt", "wte.weight/exp_avg.pt", "optimizer_state.pt"}) {
    const Copy copy(GetParam());
    fs::resize_file(copy.part(name), fs::file_size(copy.part(name)) - 7);
    const auto map = open_universal(copy.root());
    ASSERT_FALSE(map.has_value()) << name;
    EXPECT_EQ(exit_code(map.error()), 15) << map.error().message;
    EXPECT_EQ(map.error().file, copy.part(name)) << map.error().message;
  }
}

TEST_P(DeepSpeedUniversal, AFileOfAnotherParameterIsCorrupt) {
  const Copy copy(GetParam());
  fs::copy_file(copy.part("h.0.fc.bias/exp_avg.pt"), copy.part("wte.weight/exp_avg.pt"),
                fs::copy_options::overwrite_existing);
  expect_error(copy, Errc::corrupt, copy.part("wte.weight/exp_avg.pt"),
               "its shape is [41], param_shapes says [101, 32]");
}

TEST(DeepSpeedUniversalBroken, FoldersModelsAndTrackersThatAreNotThereAreNamed) {
  {
    const Copy copy("universal_from_zero2_bf16_dp4");
    fs::remove_all(copy.part("gate.weight"));
    expect_error(copy, Errc::incomplete, copy.part("gate.weight/fp32.pt"), "missing");
  }
  {
    const Copy copy("universal_from_zero2_bf16_dp4");
    fs::remove(copy.folder() + "/mp_rank_00_model_states.pt");
    expect_error(copy, Errc::incomplete, copy.folder() + "/mp_rank_00_model_states.pt", "missing");
  }
  {
    const Copy copy("universal_from_zero3_bf16_dp4");
    fs::remove(copy.folder() + "/zero_pp_rank_0_mp_rank_00_model_states.pt");
    expect_error(copy, Errc::incomplete, copy.folder() + "/zero_pp_rank_0_mp_rank_00_model_states.pt", "missing");
  }
  {
    const Copy copy("universal_from_zero2_bf16_dp4");
    fs::remove_all(copy.folder());
    expect_error(copy, Errc::incomplete, copy.root() + "/latest_universal", "names the folder global_step3_universal");
  }
  {
    const Copy copy("universal_from_zero2_bf16_dp4");
    test::write_file(copy.root() + "/latest_universal", "../elsewhere");
    expect_error(copy, Errc::refused, copy.root() + "/latest_universal", "leads out");
  }
}

TEST(DeepSpeedUniversalBroken, StepsThatDifferAreOfDifferentSaves) {
  const Copy copy("universal_from_zero2_bf16_dp4");
  TorchPatch(copy.part("h.0.proj.weight/step.pt"), "/data/0").replace({}, "\x40\x40", "\x80\x40").write();  // 3.0: 4.0
  expect_error(copy, Errc::corrupt, copy.part("h.0.proj.weight/step.pt"), "another step than");
}

}  // namespace
}  // namespace ckpt
