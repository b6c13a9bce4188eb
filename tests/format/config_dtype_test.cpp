#include "format/files/config_dtype.hpp"

#include <gtest/gtest.h>

#include <string>

namespace ckpt {
namespace {

std::string edited(std::string_view text, Dtype dtype = Dtype::bf16) {
  const auto out = with_config_dtype(text, dtype);
  EXPECT_TRUE(out.has_value());
  return out ? *out : std::string();
}

TEST(ConfigDtype, OnlyTheValueChangesByteForByte) {
  EXPECT_EQ(edited("{\n  \"torch_dtype\" :\t\"float32\",\n  \"x\": 1e-05 }\n"),
            "{\n  \"torch_dtype\" :\t\"bfloat16\",\n  \"x\": 1e-05 }\n");
  EXPECT_EQ(edited(R"({"dtype":"bfloat16","torch_dtype":"float16"})", Dtype::f32),
            R"({"dtype":"float32","torch_dtype":"float32"})");
}

TEST(ConfigDtype, PartsOfTheModelFollowAndQuantizationDoesNot) {
  EXPECT_EQ(edited(R"({"text_config":{"dtype":"float32"},"quantization_config":{"dtype":"float16"}})"),
            R"({"text_config":{"dtype":"bfloat16"},"quantization_config":{"dtype":"float16"}})");
  EXPECT_EQ(edited(R"({"rope":{"dtype":"float32"},"a_config":{"b":{"dtype":"float32"}}})"),
            R"({"rope":{"dtype":"float32"},"a_config":{"b":{"dtype":"float32"}}})");
}

TEST(ConfigDtype, WhatNamesNoDtypeStays) {
  for (const char* same : {R"({"torch_dtype":null})", R"({"dtype":"auto"})", R"({"dtype":["float32"]})", R"({})",
                           R"({"a":"dtype","b":"float32"})", R"({"torch\u005fdtype":"float\u0033\u0032"})"})
    EXPECT_EQ(edited(same), same);
  EXPECT_EQ(edited(R"({"dtype":"float32"})", Dtype::i64), R"({"dtype":"float32"})");
}

TEST(ConfigDtype, WhatIsNoJsonIsAnError) {
  EXPECT_FALSE(with_config_dtype("{\"dtype\":", Dtype::f32).has_value());
}

}  // namespace
}  // namespace ckpt
