#include "format/model/value_text.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace ckpt {
namespace {

ValuePtr make(auto held) {
  return std::make_shared<const Value>(Value{held});
}

TEST(ValueText, IsWhatPythonPrints) {
  EXPECT_EQ(value_text({None{}}, 100), "None");
  EXPECT_EQ(value_text({true}, 100), "True");
  EXPECT_EQ(value_text({std::int64_t{-3}}, 100), "-3");
  EXPECT_EQ(value_text({1e-8}, 100), "1e-08");
  EXPECT_EQ(value_text({-1.0}, 100), "-1.0") << "as Python shows it: not the integer";
  EXPECT_EQ(value_text({std::string("adam")}, 100), "'adam'");
  EXPECT_EQ(value_text({Bytes{"abc"}}, 100), "<3 bytes>");
  EXPECT_EQ(value_text({TensorRef{.name = "w"}}, 100), "<tensor w>");
  EXPECT_EQ(value_text({Opaque{.global = "builtins.object"}}, 100), "<builtins.object>");
  const List betas{.kind = List::Kind::tuple, .items = {make(0.9), make(0.999)}};
  EXPECT_EQ(value_text({betas}, 100), "(0.9, 0.999)");
  EXPECT_EQ(value_text({List{.kind = List::Kind::tuple, .items = {make(0.9)}}}, 100), "(0.9,)");
  EXPECT_EQ(value_text({Dict{.items = {{make(std::string("a")), make(betas)}, {make(std::int64_t{1}), nullptr}}}}, 100),
            "{'a': (0.9, 0.999), 1: None}");
}

TEST(ValueText, EndsNearTheLimit) {
  List many;
  for (int i = 0; i < 1000; ++i) many.items.push_back(make(std::int64_t{i}));
  const std::string text = value_text({many}, 50);
  EXPECT_LT(text.size(), 70u) << text;
  EXPECT_TRUE(text.ends_with("...]")) << text;
  EXPECT_LT(value_text({std::string(1000, 'x')}, 50).size(), 60u);
  ValuePtr deep = make(None{});
  for (int i = 0; i < 100'000; ++i) deep = make(List{.items = {deep}});
  EXPECT_LT(value_text(*deep, 1000).size(), 200u) << "nesting is bounded";
  while (deep) {  // destroyed level by level
    const auto* list = std::get_if<List>(&deep->v);
    deep = list != nullptr && !list->items.empty() ? ValuePtr(list->items.front()) : nullptr;
  }
}

}  // namespace
}  // namespace ckpt
