// The names of checkpoint directories that the formats supply together.
#include "convert/foreign_names.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "convert/format.hpp"

namespace ckpt {
namespace {

TEST(StepInName, KnowsTheNamesOfOtherToolsAndNoOthers) {
  const ForeignNames names = foreign_names();
  EXPECT_EQ(names.step_in("global_step100"), 100U);
  EXPECT_EQ(names.step_in("iter_0000100"), 100U);
  EXPECT_EQ(names.step_in("checkpoint-500"), 500U);
  EXPECT_EQ(names.step_in("1000"), 1000U);
  EXPECT_EQ(names.step_in("epoch=1-step=70.ckpt"), 70U);
  for (const char* name : {"exp7", "llama-7", "checkpoint-", "step-x", "checkpoint-99999999999999999999", ""})
    EXPECT_FALSE(names.step_in(name)) << name;
}

TEST(StepInName, ToolsWithoutAFormatOfTheirOwnAreKnownToo) {
  const ForeignNames names = foreign_names();
  for (const char* name :
       {"checkpoint_70", "step_70", "step-70", "step70", "ckpt-70", "ckpt_70", "step=70", "step=7-step=70.x"})
    EXPECT_EQ(names.step_in(name), 70U) << name;
  for (const char* name : {"step=x", "my-step-70", "step_70.tmp", "70.tmp"}) EXPECT_FALSE(names.step_in(name)) << name;
}

TEST(ForeignNames, EachPatternHoldsOneStep) {
  for (const Format& format : formats()) {
    for (const std::string_view pattern : format.names.steps)
      EXPECT_EQ(std::ranges::count(pattern, '#'), 1) << format.name << ": " << pattern;
  }
}

TEST(ForeignNames, TrackersAndMarkersAreThoseOfTheFormats) {
  const ForeignNames names = foreign_names();
  EXPECT_EQ(names.trackers, (std::vector<std::string_view>{"latest", "latest_checkpointed_iteration.txt"}));
  for (const std::string_view marker :
       {".metadata", "_CHECKPOINT_METADATA", "_METADATA", "commit_success.txt", "latest", "manifest.ocdbt",
        "metadata.json", "model.safetensors.index.json", "pytorch_model.bin.index.json", "trainer_state.json"})
    EXPECT_EQ(std::ranges::count(names.markers, marker), 1) << marker;
  EXPECT_EQ(names.markers.size(), 10U);
}

}  // namespace
}  // namespace ckpt
