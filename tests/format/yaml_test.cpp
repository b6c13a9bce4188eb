// YAML documents as values.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <variant>

#include "format/files/yaml.hpp"
#include "format/model/object_tree.hpp"

namespace ckpt {
namespace {

Value parsed(std::string_view text) {
  auto value = parse_yaml(text);
  EXPECT_TRUE(value) << value.error().message;
  return value ? *std::move(value) : Value{};
}

/// The only value of a mapping "a".
Value value_of_a(const std::string& text) {
  const Value document = parsed("a: " + text + "\n");
  const Value* value = member(&document, "a");
  EXPECT_NE(value, nullptr);
  return value == nullptr ? Value{} : *value;
}

TEST(Yaml, ScalarsAreNullTruthNumbersOrText) {
  for (const char* text : {"", "~", "null"}) EXPECT_TRUE(std::holds_alternative<None>(value_of_a(text).v)) << text;
  EXPECT_EQ(std::get<bool>(value_of_a("true").v), true);
  EXPECT_EQ(std::get<bool>(value_of_a("False").v), false);
  EXPECT_EQ(std::get<std::int64_t>(value_of_a("-12").v), -12);
  EXPECT_EQ(std::get<double>(value_of_a("1.0e-05").v), 1e-5);
  for (const char* text : {"swiglu", "inf", "nan", "1.2.3", "yes"})
    EXPECT_EQ(std::get<std::string>(value_of_a(text).v), text);
  EXPECT_EQ(std::get<std::string>(value_of_a("'12'").v), "12");
  EXPECT_EQ(std::get<std::string>(value_of_a("\"true\"").v), "true");
}

TEST(Yaml, MappingsAndSequencesNest) {
  const Value document = parsed("model:\n  sizes: [1, 2]\n  inner:\n    name: x\nother: &first\n- a\nagain: *first\n");
  const Value* model = member(&document, "model");
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(std::get<List>(member(model, "sizes")->v).items.size(), 2U);
  EXPECT_EQ(std::get<std::string>(member(member(model, "inner"), "name")->v), "x");
  EXPECT_EQ(std::get<List>(member(&document, "other")->v).items.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<None>(member(&document, "again")->v)) << "an alias is not followed";
  EXPECT_TRUE(std::holds_alternative<None>(parsed("").v));
}

TEST(Yaml, WhatIsNotYamlIsRefusedWithItsLine) {
  for (const std::string& text : {std::string("a: b\n  c: d\n"), std::string("a: [1, 2\n"), std::string("\t- x"),
                                  std::string(100'000, '['), "a: \xff\xfe\n" + std::string(1, '\0')}) {
    const auto value = parse_yaml(text);
    ASSERT_FALSE(value) << text.substr(0, 20);
    EXPECT_EQ(value.error().code, Errc::corrupt);
    EXPECT_TRUE(value.error().message.starts_with("line ")) << value.error().message;
  }
}

}  // namespace
}  // namespace ckpt
