// A rank's parts of frozen weights (stage 3).
#include <gtest/gtest.h>

#include "convert/deepspeed/stages/partitioned_params.hpp"

namespace ckpt::deepspeed {
namespace {

TEST(DeepSpeedFrozen, QuantisedPartsAreRefusedByName) {
  const std::vector<NamedShape> frozen{{.name = "w", .shape = {4, 2}, .elements = 8}};
  std::vector<NamedTensor> parts(1);
  parts[0].name = "w";
  parts[0].tensor.type = {.dtype = Dtype::bf16, .shape = {4}};
  ASSERT_TRUE(frozen_parts("model.pt", frozen, parts, 2).has_value());
  for (const Dtype quantised : {Dtype::i8, Dtype::u8}) {
    parts[0].tensor.type.dtype = quantised;
    const auto refused = frozen_parts("model.pt", frozen, parts, 2);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::unsupported) << refused.error().message;
    EXPECT_EQ(refused.error().file, "model.pt");
    EXPECT_EQ(refused.error().tensor, "w");
  }
}

}  // namespace
}  // namespace ckpt::deepspeed
