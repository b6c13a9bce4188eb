// The configuration of Megatron-Bridge as Megatron-LM's arguments.
#include <gtest/gtest.h>

#include <string>

#include "convert/megatron/run_arguments.hpp"
#include "convert/megatron/run_config.hpp"
#include "format/files/yaml.hpp"
#include "format/model/object_tree.hpp"

namespace ckpt {
namespace {

TEST(MegatronRunConfig, DescribesTheModelInTheWordsOfTheArguments) {
  const auto document = parse_yaml(
      "_target_: megatron.bridge.training.config.ConfigContainer\n"
      "model:\n"
      "  _target_: megatron.bridge.models.llama.llama_provider.LlamaModelProvider\n"
      "  activation_func: {_target_: torch.nn.functional.silu}\n"
      "  num_layers: 4\n  gated_linear_unit: true\n  layernorm_epsilon: 1.0e-05\n  num_moe_experts: null\n"
      "  share_embeddings_and_output_weights: false\n  tensor_model_parallel_size: 2\n");
  ASSERT_TRUE(document);
  const auto args = megatron::arguments_of(*document);
  ASSERT_TRUE(args);
  EXPECT_EQ(megatron::count_argument(*args, "num_layers"), 4U);
  EXPECT_EQ(megatron::count_argument(*args, "tensor_model_parallel_size"), 2U);
  EXPECT_TRUE(megatron::is_set(*args, "swiglu"));
  EXPECT_TRUE(megatron::is_set(*args, "untie_embeddings_and_output_weights"));
  EXPECT_EQ(real_number(megatron::member(*args, "layernorm_epsilon")), 1e-5);
  for (const char* name : {"_target_", "activation_func", "gated_linear_unit"})
    EXPECT_EQ(megatron::member(*args, name), nullptr) << name;
}

TEST(MegatronRunConfig, WithoutAModelThereAreNoArguments) {
  for (const char* text :
       {"", "model: 3\n", "- model\n", "model:\n  num_layers: many\n", "trainer:\n  num_layers: 2\n"}) {
    const auto document = parse_yaml(text);
    ASSERT_TRUE(document) << text;
    EXPECT_FALSE(megatron::arguments_of(*document)) << text;
  }
}

}  // namespace
}  // namespace ckpt
