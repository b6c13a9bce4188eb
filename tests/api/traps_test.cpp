#include "api/convert/traps.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ckpt {
namespace {

Tensor param(const std::string& name, Dtype dtype) {
  return {.name = name, .dtype = dtype, .shape = {2}};
}
Tensor slot(const std::string& parameter, const std::string& slot) {
  return {.name = "optimizer.state." + parameter + "." + slot,
          .dtype = Dtype::f32,
          .shape = {2},
          .role = Role::slot,
          .parameter = parameter,
          .slot = slot};
}
std::vector<std::string> texts(const std::vector<Tensor>& tensors, const std::vector<Alias>& aliases = {}) {
  Map map;
  map.tensors = tensors;
  map.aliases = aliases;
  std::vector<std::string> out;
  for (const Finding& finding : traps(map)) {
    EXPECT_EQ(finding.severity, Severity::note);
    out.push_back(finding.text);
  }
  return out;
}
using Texts = std::vector<std::string>;

TEST(Traps, WholeTrainingStateHasNone) {
  EXPECT_EQ(texts({param("a", Dtype::bf16), slot("a", "master"), slot("a", "exp_avg")}), Texts{});
  EXPECT_EQ(texts({param("a", Dtype::f32), slot("a", "exp_avg")}), Texts{});
  EXPECT_EQ(texts({}), Texts{});
}

TEST(Traps, WeightsAloneAreToldByTheirPrecision) {
  EXPECT_EQ(texts({param("a", Dtype::bf16), param("b", Dtype::f16)}),
            Texts{"16-bit weights only (no fp32 masters, no optimizer state)"});
  EXPECT_EQ(texts({param("a", Dtype::bf16), param("b", Dtype::f32)}),
            Texts{"weights only, some in 16 bits (no fp32 masters, no optimizer state)"});
  EXPECT_EQ(texts({param("a", Dtype::f32)}), Texts{"weights only (no optimizer state)"});
  EXPECT_EQ(texts({param("a", Dtype::i64)}), Texts{}) << "integers are no weights";
}

TEST(Traps, FrozenParametersAreNamedAndTiedOnesAreNotTakenForThem) {
  EXPECT_EQ(texts({param("a", Dtype::f32), param("b", Dtype::f32), slot("a", "exp_avg")}),
            Texts{"1 of 2 parameters has no optimizer state (frozen?): b"});
  EXPECT_EQ(texts({param("wte", Dtype::f32), slot("head", "exp_avg")}, {{"head", "wte"}}), Texts{});
  EXPECT_EQ(texts({param("a", Dtype::f32), param("b", Dtype::f32), param("c", Dtype::f32), param("d", Dtype::f32),
                   param("e", Dtype::f32), slot("e", "exp_avg")}),
            Texts{"4 of 5 parameters have no optimizer state (frozen?): a, b, c and 1 more"});
}

TEST(Traps, AnOptimizerOnRoundedWeightsAndMastersWithoutMomentsAreNamed) {
  EXPECT_EQ(texts({param("a", Dtype::bf16), slot("a", "exp_avg"), slot("a", "step")}),
            Texts{"1 of 1 parameters is 16-bit without an fp32 master: training updates rounded weights: a"});
  EXPECT_EQ(texts({param("a", Dtype::bf16), slot("a", "master"), slot("a", "step")}),
            Texts{"1 of 1 parameters has a master but no moments: training resumes with zero moments: a"});
}

TEST(Traps, StateThatMatchesNoParameterIsSaidSoOnce) {
  EXPECT_EQ(texts({param("a", Dtype::f32), param("b", Dtype::f32), slot("x", "exp_avg"), slot("", "step")}),
            Texts{"optimizer state is indexed by number, not by parameter name; it is kept under those numbers"});
}

}  // namespace
}  // namespace ckpt
