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

/// exclude_frozen_parameters, of an adapter's run, removes `emb.weight` and leaves its second name.
TEST(DeepSpeedFrozen, ATieToAWeightThatWasNotSavedIsLeftOut) {
  ModelStates model{.path = "model.pt"};
  NamedTensor& head = model.module.emplace_back();
  head.name = "head.weight";
  head.tensor.type = {.dtype = Dtype::bf16, .shape = {0}};
  model.param_shapes.emplace();
  MapBuilder untied;
  const auto lost = lay_out_partitioned(untied, model, {}, {});
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().code, Errc::uncovered);

  model.shared.emplace_back("head.weight", "emb.weight");
  MapBuilder builder;
  const auto laid_out = lay_out_partitioned(builder, model, {}, {});
  ASSERT_TRUE(laid_out.has_value()) << laid_out.error().message;
  EXPECT_TRUE(laid_out->weights.empty());
  EXPECT_TRUE(laid_out->aliases.empty());
  const Map map = builder.take();
  ASSERT_EQ(map.findings.size(), 1u);
  EXPECT_EQ(map.findings[0].text, "head.weight: left out: tied to emb.weight, which was not saved");
}

}  // namespace
}  // namespace ckpt::deepspeed
