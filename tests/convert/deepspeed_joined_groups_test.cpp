#include "convert/deepspeed/writer/joined_groups.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "format/model/object_tree.hpp"

namespace ckpt {
namespace {

using deepspeed::joined_groups;
using Names = std::vector<std::string>;

ValuePtr text(const std::string& content) {
  Value out;
  out.v = content;
  return std::make_shared<Value>(std::move(out));
}

ValuePtr group(const std::string& name, double estimate, const Names& params) {
  Value number;
  number.v = estimate;
  List members;
  for (const std::string& param : params) members.items.push_back(text(param));
  Value list;
  list.v = std::move(members);
  Dict dict;
  dict.items = {{text("name"), text(name)},
                {text("d"), std::make_shared<Value>(std::move(number))},
                {text("params"), std::make_shared<Value>(std::move(list))}};
  Value out;
  out.v = std::move(dict);
  return std::make_shared<Value>(std::move(out));
}

NamedObject groups(const std::string& rank, std::vector<ValuePtr> items) {
  List list;
  list.items = std::move(items);
  Value value;
  value.v = std::move(list);
  return {"optimizer.param_groups" + rank, {}, std::move(value)};
}

Names members_of(const NamedObject& object, std::size_t index) {
  Names out;
  const Value* params = member(std::get<List>(object.value.v).items[index].get(), "params");
  for (const ValuePtr& name : std::get<List>(params->v).items) out.push_back(std::get<std::string>(name->v));
  return out;
}

TEST(JoinedGroups, AGroupTakesTheMembersOfTheOneWithItsOptions) {
  std::set<std::string> differing;
  const auto joined = joined_groups({groups("@0", {group("ep_size_4", 1, {"a.0"}), group("ep_size_2", 1, {"b.0"})}),
                                     groups("@1", {group("ep_size_2", 1, {"b.1"}), group("ep_size_4", 1, {"a.1"})})},
                                    differing);
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(joined[0].name, "optimizer.param_groups");
  EXPECT_EQ(members_of(joined[0], 0), (Names{"a.0", "a.1"}));
  EXPECT_EQ(members_of(joined[0], 1), (Names{"b.0", "b.1"}));
  EXPECT_TRUE(differing.empty());
}

TEST(JoinedGroups, ValuesThatDifferBetweenRanksAreNamed) {
  std::set<std::string> differing;
  const auto joined = joined_groups({groups("@0", {group("g", 1, {"a"}), group("h", 2, {"b"})}),
                                     groups("@1", {group("g", 1, {"a"}), group("h", 3, {"b"})})},
                                    differing);
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(members_of(joined[0], 1), Names{"b"});
  EXPECT_EQ(differing, std::set<std::string>{"d"});
}

}  // namespace
}  // namespace ckpt
