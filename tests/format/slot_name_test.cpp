#include "format/model/slot_name.hpp"

#include <gtest/gtest.h>

namespace ckpt {
namespace {

TEST(SlotName, TheParameterIsFoundAgainWhateverDotsItHas) {
  EXPECT_EQ(slot_name("h.0.fc.weight", "exp_avg"), "optimizer.state.h.0.fc.weight.exp_avg");
  for (const char* parameter : {"w", "h.0.fc.weight", "exp_avg", "optimizer.state.w.step", "."})
    for (const char* slot : {"exp_avg", "step", "a.b"})
      EXPECT_EQ(parameter_in(slot_name(parameter, slot), slot), parameter) << parameter << " " << slot;
}

TEST(SlotName, NamesOfAnotherFormHaveNone) {
  for (const char* name : {"", "w", "optimizer.state.", "optimizer.state.exp_avg", "optimizer.state..exp_avg",
                           "optimizer.state.w_exp_avg", "optimizer.state.w.step", "optim.state.w.exp_avg"})
    EXPECT_EQ(parameter_in(name, "exp_avg"), std::nullopt) << name;
}

}  // namespace
}  // namespace ckpt
