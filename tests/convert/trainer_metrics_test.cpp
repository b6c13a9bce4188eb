#include "convert/safetensors/trainer_metrics.hpp"

#include <gtest/gtest.h>

namespace ckpt::safetensors {
namespace {

using Metrics = std::vector<std::pair<std::string, double>>;

TEST(TrainerMetrics, AreThoseOfTheEvaluationAtTheStepAndTheLastLoss) {
  const std::string text = R"({"global_step": 200, "best_metric": 0.1, "log_history": [
    {"step": 100, "loss": 2.5, "learning_rate": 0.1},
    {"step": 100, "eval_loss": 2.25, "eval_accuracy": 0.5},
    {"step": 150, "loss": 2.0},
    {"step": 200, "eval_loss": 1.75, "eval_f1": 1, "eval_runtime": 3.5, "eval_samples_per_second": 7.5, "epoch": 1.0}]})";
  EXPECT_EQ(parse_trainer_metrics(text), (Metrics{{"eval_f1", 1.0}, {"eval_loss", 1.75}, {"loss", 2.0}}));
}

TEST(TrainerMetrics, NumbersThatJsonDoesNotHaveAreLeftOut) {
  const std::string text = R"({"global_step": 2, "log_history": [
    {"step": 1, "loss": 3.0}, {"step": 2, "eval_loss": NaN, "eval_a": -Infinity, "eval_b": Infinity, "eval_c": -1}]})";
  EXPECT_EQ(parse_trainer_metrics(text), (Metrics{{"eval_c", -1.0}, {"loss", 3.0}}));
}

TEST(TrainerMetrics, AFileOfAnotherKindHasNone) {
  for (const char* text :
       {"", "[]", "{}", "{\"global_step\": 1}", "{\"global_step\": \"1\", \"log_history\": []}",
        "{\"global_step\": 1, \"log_history\": {}}", "{\"global_step\": 1, \"log_history\": [1, [], {}]}"})
    EXPECT_EQ(parse_trainer_metrics(text), Metrics{}) << text;
}

}  // namespace
}  // namespace ckpt::safetensors
