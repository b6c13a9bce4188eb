#include "convert/deepspeed/files/files.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace ckpt::deepspeed {
namespace {

std::vector<DirEntry> listing(const std::vector<std::string>& names) {
  std::vector<DirEntry> out;
  for (const std::string& name : names) {
    const bool directory = name.ends_with('/');
    out.push_back({directory ? name.substr(0, name.size() - 1) : name,
                   directory ? FileInfo::Kind::directory : FileInfo::Kind::file});
  }
  return out;
}

TEST(DeepSpeedFiles, EverySpellingOfAnOptimizerFileIsKnown) {
  for (const std::string prefix : {"", "bf16_", "fp16_"}) {
    for (const std::string suffix : {"_optim_states.pt", "optim_states.pt"}) {
      const std::string name = prefix + "zero_pp_rank_12_mp_rank_00" + suffix;
      const auto files = sort_files(listing({"mp_rank_00_model_states.pt", name}));
      ASSERT_TRUE(files.has_value()) << name;
      EXPECT_TRUE(files->has_model);
      ASSERT_EQ(files->optims.size(), 1u) << name;
      EXPECT_EQ(files->optims[0].rank, 12u);
      EXPECT_EQ(files->optim_name(12), name);
    }
  }
}

TEST(DeepSpeedFiles, RanksAreSortedAsNumbers) {
  const auto files =
      sort_files(listing({"zero_pp_rank_10_mp_rank_00_optim_states.pt", "zero_pp_rank_9_mp_rank_00_optim_states.pt"}));
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(files->optims[0].rank, 9u);
}

TEST(DeepSpeedFiles, ForeignAndOddlySpelledNamesArePassedOver) {
  const auto files =
      sort_files(listing({"zero_to_fp32.py", "zero_pp_rank_01_mp_rank_00_optim_states.pt", "mp_rank_0_model_states.pt",
                          "xmp_rank_00_model_states.pt", "zero_pp_rank_99999999999999999999_mp_rank_00_optim_states.pt",
                          "zero_pp_rank_1_mp_rank_00_optim_states.pt.tmp", "some_folder/"}));
  ASSERT_TRUE(files.has_value());
  EXPECT_TRUE(files->empty());
}

TEST(DeepSpeedFiles, OtherLayoutsAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"mp_rank_01_model_states.pt", "several tensor- or pipeline-parallel ranks"},
      {"zero_pp_rank_0_mp_rank_01_optim_states.pt", "several tensor- or pipeline-parallel ranks"},
      {"layer_00-model_states.pt", "pipeline-parallel"},
      {"layer_00-model_01-model_states.pt", "pipeline- and tensor-parallel"},
      {"layer_0_expert_3_mp_rank_01_model_states.pt", "several tensor- or pipeline-parallel ranks"},
      {"expp_rank_0_mp_rank_01_optim_states.pt", "several tensor- or pipeline-parallel ranks"},
      {"expert_3_mp_rank_00_model_states.pt", "expert files that name no layer"},
      {"zero/", "universal"},
  };
  for (const auto& [name, words] : cases) {
    const auto files = sort_files(listing({name}));
    ASSERT_FALSE(files.has_value()) << name;
    EXPECT_EQ(files.error().code, Errc::unsupported) << name;
    EXPECT_NE(files.error().message.find(words), std::string::npos) << files.error().message;
  }
}

TEST(DeepSpeedFiles, MissingFilesAreNamedUpToTenAndAllCounted) {
  const auto files = sort_files(
      listing({"zero_pp_rank_1_mp_rank_00_model_states.pt", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"}));
  ASSERT_TRUE(files.has_value());
  const Missing few = missing_files(*files, {.rank_models = true, .optim_count = 2});
  EXPECT_EQ(few.count, 2u);
  EXPECT_EQ(few.names, (std::vector<std::string>{"zero_pp_rank_0_mp_rank_00_model_states.pt",
                                                 "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"}));
  const Missing many = missing_files(*files, {.rank_models = true, .optim_count = 1 << 24});
  EXPECT_EQ(many.names.size(), 10u);
  EXPECT_EQ(many.count, 2u * ((1u << 24) - 1));
}

TEST(DeepSpeedFiles, WithoutAnyOptimizerFileTheConfigurationGivesTheirPrefix) {
  const auto files = sort_files(listing({"mp_rank_00_model_states.pt"}));
  ASSERT_TRUE(files.has_value());
  const Missing missing = missing_files(*files, {.optim_count = 1, .optim_prefix = "bf16_"});
  EXPECT_EQ(missing.names, (std::vector<std::string>{"bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"}));
}

TEST(DeepSpeedFiles, FilesOfAnotherStageOrOfMoreRanksAreSurplus) {
  const auto files =
      sort_files(listing({"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt",
                          "zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_pp_rank_1_mp_rank_00_optim_states.pt"}));
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(surplus_files(*files, {.rank_models = true, .optim_count = 2}),
            (std::vector<std::string>{"mp_rank_00_model_states.pt"}));
  EXPECT_EQ(surplus_files(*files, {.rank_models = false, .optim_count = 1}),
            (std::vector<std::string>{"zero_pp_rank_0_mp_rank_00_model_states.pt",
                                      "zero_pp_rank_1_mp_rank_00_optim_states.pt"}));
}

TEST(DeepSpeedFiles, ExpertsAreSortedByLayerThenAsNumbersAndAllMustBeThere) {
  const auto files =
      sort_files(listing({"layer_1_expert_0_mp_rank_00_model_states.pt", "layer_0_expert_10_mp_rank_00_model_states.pt",
                          "layer_0_expert_9_mp_rank_00_model_states.pt", "expp_rank_1_mp_rank_00_optim_states.pt",
                          "layer_0_expert_09_mp_rank_00_model_states.pt.bak", "mp_rank_00_model_states.pt"}));
  ASSERT_TRUE(files.has_value()) << files.error().message;
  ASSERT_EQ(files->experts.size(), 3u);
  EXPECT_EQ(files->experts[0].expert, 9u);
  EXPECT_EQ(files->experts[1].expert, 10u);
  EXPECT_EQ(files->experts[2].layer, 1u);
  const Missing missing = missing_files(*files, {.experts = {11, 2}, .expert_optim_count = 2});
  EXPECT_EQ(missing.count, 9u + 1u + 1u);
  EXPECT_EQ(missing.names.front(), "layer_0_expert_0_mp_rank_00_model_states.pt");
  EXPECT_EQ(surplus_files(*files, {.experts = {10, 1}, .expert_optim_count = 1}),
            (std::vector<std::string>{"layer_0_expert_10_mp_rank_00_model_states.pt",
                                      "expp_rank_1_mp_rank_00_optim_states.pt"}));
}

TEST(DeepSpeedFiles, TheSuffixOfOneWriterIsTakenOffAndSeveralWritersAreNamed) {
  const auto one = without_writer_suffix(listing({"mp_rank_00_model_states.pt-0.1", "notes-0.1", "x_states.pt-1"}));
  EXPECT_EQ(one.suffix, "-0.1");
  EXPECT_EQ(one.shared, "");
  EXPECT_EQ(one.entries[0].name, "mp_rank_00_model_states.pt");
  EXPECT_EQ(one.entries[1].name, "notes-0.1");
  EXPECT_EQ(one.entries[2].name, "x_states.pt-1");
  EXPECT_EQ(without_writer_suffix(listing({"mp_rank_00_model_states.pt-1.2"})).shared,
            "mp_rank_00_model_states.pt-1.2");
  // Beside plain names they are left-overs: nothing is renamed.
  const auto mixed = without_writer_suffix(listing({"mp_rank_00_model_states.pt", "mp_rank_00_model_states.pt-0.1"}));
  EXPECT_EQ(mixed.suffix, "");
  EXPECT_EQ(mixed.entries[1].name, "mp_rank_00_model_states.pt-0.1");
}

TEST(DeepSpeedFiles, AUniversalDirectoryIsNoTag) {
  EXPECT_TRUE(looks_like_tag(listing({"mp_rank_00_model_states.pt"})));
  EXPECT_TRUE(looks_like_tag(listing({"layer_00-model_states.pt"})));
  EXPECT_FALSE(looks_like_tag(listing({"mp_rank_00_model_states.pt", "zero/"})));
  EXPECT_FALSE(looks_like_tag(listing({"model.safetensors", "mp_rank_00_model_states.pt/"})));
}

}  // namespace
}  // namespace ckpt::deepspeed
