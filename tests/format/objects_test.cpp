#include "format/universal/objects.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <string>

namespace ckpt::universal {
namespace {

ValuePtr ptr(Value value) {
  return std::make_shared<const Value>(std::move(value));
}

std::string document(const std::string& value, const std::string& row_more = "") {
  return R"({"format":"ckpt.objects","version":"0.9","id":"00000000000000000000000000000000","objects":[{"name":"a")" +
         row_more + R"(,"value":)" + value + "}]}";
}

/// What the value is written as.
std::string written(Value value) {
  const NamedObject object{.name = "a", .path = {}, .value = std::move(value)};
  const Result<std::string> text = build_objects({}, {&object, 1});
  EXPECT_TRUE(text) << text.error().message;
  if (!text) return "";
  const std::size_t begin = text->find("\"value\":") + 8;
  return text->substr(begin, text->rfind("}\n]}\n") - begin);
}

Value read(const std::string& value) {
  Result<Objects> objects = parse_objects(document(value));
  EXPECT_TRUE(objects) << value << ": " << objects.error().message;
  return objects && objects->objects.size() == 1 ? objects->objects[0].value : Value{};
}

void expect_corrupt(const std::string& value) {
  const Result<Objects> objects = parse_objects(document(value));
  ASSERT_FALSE(objects) << value;
  EXPECT_EQ(objects.error().code, Errc::corrupt) << objects.error().message;
}

TEST(Objects, EachKindIsWrittenAsSpecified) {
  constexpr std::int64_t kExact = (std::int64_t{1} << 53) - 1;
  EXPECT_EQ(written({None{}}), "null");
  EXPECT_EQ(written({true}), "true");
  EXPECT_EQ(written({std::int64_t{-5}}), "-5");
  EXPECT_EQ(written({kExact}), "9007199254740991");
  EXPECT_EQ(written({kExact + 1}), R"({"int":"9007199254740992"})");
  EXPECT_EQ(written({-kExact - 1}), R"({"int":"-9007199254740992"})");
  EXPECT_EQ(written({BigInt{"-170141183460469231731687303715884105728"}}),
            R"({"int":"-170141183460469231731687303715884105728"})");
  EXPECT_EQ(written({1.0}), R"({"float":"3ff0000000000000"})");
  EXPECT_EQ(written({std::string("a\"\n\0b", 5)}), R"("a\"\n\u0000b")");
  EXPECT_EQ(written({std::string("\xed\xa0\x80")}), R"({"text":"eda080"})");
  EXPECT_EQ(written({Bytes{std::string("\0\xff", 2)}}), R"({"bytes":"00ff"})");
  EXPECT_EQ(written({List{List::Kind::list, {ptr({true}), ptr({None{}})}}}), "[true,null]");
  EXPECT_EQ(written({List{List::Kind::tuple, {}}}), R"({"tuple":[]})");
  EXPECT_EQ(written({List{List::Kind::set, {ptr({std::int64_t{1}})}}}), R"({"set":[1]})");
  EXPECT_EQ(
      written({Dict{{{ptr({std::string("k")}), ptr({std::int64_t{1}})}, {ptr({std::int64_t{2}}), ptr({Dict{}})}}}}),
      R"({"dict":[["k",1],[2,{"dict":[]}]]})");
  EXPECT_EQ(written({TensorRef{"w.x"}}), R"({"tensor":"w.x"})");
  EXPECT_EQ(written({Opaque{"m.C", nullptr, nullptr}}), R"({"object":{"global":"m.C"}})");
  EXPECT_EQ(written({Opaque{"m.C", ptr({List{List::Kind::tuple, {}}}), ptr({None{}})}}),
            R"({"object":{"global":"m.C","args":{"tuple":[]},"state":null}})");
}

TEST(Objects, EachKindReadsBackAsItWas) {
  for (const std::string text :
       {"null",
        "true",
        "false",
        "0",
        "-9007199254740991",
        "9007199254740991",
        R"({"int":"9007199254740992"})",
        R"({"int":"-9223372036854775808"})",
        R"({"int":"9223372036854775808"})",
        R"({"float":"7ff8000000000123"})",
        R"("")",
        R"({"text":"eda080"})",
        R"({"bytes":""})",
        R"({"bytes":"00ff"})",
        "[]",
        "[[],[[1]]]",
        R"({"tuple":[1,{"set":[]}]})",
        R"({"dict":[[{"tuple":[1,2]},[1,2]],["tuple",null]]})",
        R"({"tensor":"w"})",
        R"({"object":{"global":"m.C","args":[1],"state":{"dict":[["x",{"object":{"global":"n.D"}}]]}}})"}) {
    EXPECT_EQ(written(read(text)), text);
  }
  EXPECT_EQ(std::get<std::int64_t>(read(R"({"int":"-9223372036854775808"})").v),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(std::get<BigInt>(read(R"({"int":"9223372036854775808"})").v).decimal, "9223372036854775808");
  EXPECT_EQ(std::bit_cast<std::uint64_t>(std::get<double>(read(R"({"float":"fff0000000000001"})").v)),
            0xfff0000000000001u);
}

TEST(Objects, NamesAndPathsReadBack) {
  const std::vector<NamedObject> in{
      {.name = "a%2Eb.3", .path = {std::string("a.b"), std::int64_t{3}}, .value = {std::int64_t{1}}},
      {.name = "c", .path = {}, .value = {None{}}},
      {.name = "d", .path = {std::string("\xff"), std::int64_t{-(std::int64_t{1} << 60)}}, .value = {None{}}}};
  const Hash128 id = hash128("id");
  const Result<std::string> text = build_objects(id, in);
  ASSERT_TRUE(text);
  const Result<Objects> out = parse_objects(*text);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->id, id);
  ASSERT_EQ(out->objects.size(), in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(out->objects[i].name, in[i].name);
    EXPECT_EQ(out->objects[i].path, in[i].path);
  }
}

TEST(Objects, TensorsAreWrittenByTheirNewNames) {
  const NamedObject object{
      .name = "a", .path = {}, .value = {List{List::Kind::list, {ptr({TensorRef{"w"}}), ptr({TensorRef{"x"}})}}}};
  const Result<std::string> text = build_objects({}, {&object, 1}, {{"w", "model.w"}});
  ASSERT_TRUE(text);
  EXPECT_NE(text->find(R"([{"tensor":"model.w"},{"tensor":"x"}])"), std::string::npos) << *text;
}

TEST(Objects, OtherSpellingsOfAValueAreCorrupt) {
  for (const std::string text : {"1.5",
                                 "1e3",
                                 "9007199254740992",
                                 "-9007199254740992",
                                 R"({"int":"5"})",
                                 R"({"int":"9007199254740991"})",
                                 R"({"int":"09007199254740992"})",
                                 R"({"int":"+9007199254740992"})",
                                 R"({"int":"9007199254740992 "})",
                                 R"({"int":9007199254740992})",
                                 R"({"int":"-"})",
                                 R"({"int":""})",
                                 R"({"float":"3ff"})",
                                 R"({"float":"3FF0000000000000"})",
                                 R"({"float":"3ff00000000000000"})",
                                 R"({"text":"6162"})",
                                 R"({"text":"eda08"})",
                                 R"({"bytes":"0G"})",
                                 R"({"bytes":1})",
                                 R"({"tuple":{"tuple":[]}})",
                                 R"({"tuple":1})",
                                 R"({"set":{"dict":[]}})",
                                 R"({"dict":{}})",
                                 R"({"dict":[1]})",
                                 R"({"dict":[[1]]})",
                                 R"({"dict":[[1,2,3]]})",
                                 R"({"dict":[{"tuple":[1,2]}]})",
                                 R"({"tensor":1})",
                                 "{}",
                                 R"({"int":"9007199254740992","b":1})",
                                 R"({"object":{}})",
                                 R"({"object":{"args":1}})",
                                 R"({"object":{"global":1}})",
                                 R"({"object":{"global":"m.C","x":1}})",
                                 R"({"object":{"global":"m.C","args":{}}})",
                                 R"({"object":[1]})"}) {
    expect_corrupt(text);
  }
}

TEST(Objects, KindsOfValuesThatNobodyKnowsAreNewer) {
  for (const std::string text :
       {R"({"other":1})", R"([{"range":[1,2]}])", R"({"object":{"global":"m.C","args":{"a":1}}})"}) {
    const Result<Objects> objects = parse_objects(document(text));
    ASSERT_FALSE(objects) << text;
    EXPECT_EQ(objects.error().code, Errc::newer) << objects.error().message;
  }
}

TEST(Objects, OtherDocumentsAreCorrupt) {
  EXPECT_FALSE(parse_objects(""));
  EXPECT_FALSE(parse_objects("[]"));
  EXPECT_FALSE(parse_objects("{}"));
  const std::string good = document("1");
  ASSERT_TRUE(parse_objects(good));
  EXPECT_FALSE(parse_objects(good + "x"));
  EXPECT_FALSE(parse_objects(R"({"format":"ckpt.objects","version":"0.9","id":"00000000000000000000000000000000"})"));
  for (const char* rows :
       {"1", "{}", "[1]", "[[]]", R"([{"name":"a"}])", R"([{"value":1}])", R"([{"name":1,"value":1}])",
        R"([{"name":"a","path":"a","value":1}])", R"([{"name":"a","path":[1.5],"value":1}])",
        R"([{"name":"a","path":[{"text":"61"}],"value":1}])"}) {
    EXPECT_FALSE(
        parse_objects(R"({"format":"ckpt.objects","version":"0.9","id":"00000000000000000000000000000000","objects":)" +
                      std::string(rows) + "}"))
        << rows;
  }
}

TEST(Objects, UnknownMembersAreIgnored) {
  const Result<Objects> objects = parse_objects(document("1", R"(,"note":{"x":[1,{}]},"more":null)"));
  ASSERT_TRUE(objects) << objects.error().message;
  EXPECT_EQ(std::get<std::int64_t>(objects->objects[0].value.v), 1);
}

TEST(Objects, AnotherVersionIsNewer) {
  std::string text = document("1");
  text.replace(text.find("0.9"), 3, "1.0");
  EXPECT_TRUE(parse_objects(text));
  text.replace(text.find("1.0"), 3, "1.1");
  EXPECT_TRUE(parse_objects(text)) << "a later minor version";
  text.replace(text.find("1.1"), 3, "2.0");
  const Result<Objects> objects = parse_objects(text);
  ASSERT_FALSE(objects);
  EXPECT_EQ(objects.error().code, Errc::newer);
}

Value nested(std::size_t depth, bool dicts) {
  Value value{std::int64_t{1}};
  for (std::size_t i = 1; i < depth; ++i) {
    if (dicts) {
      value = {Dict{{{ptr({std::string("k")}), ptr(std::move(value))}}}};
    } else {
      value = {List{List::Kind::list, {ptr(std::move(value))}}};
    }
  }
  return value;
}

TEST(Objects, NestSixtyFourDeepAndNoDeeper) {
  EXPECT_EQ(kMaxObjectDepth, 64u);
  for (const bool dicts : {false, true}) {
    const NamedObject deepest{.name = "a", .path = {}, .value = nested(kMaxObjectDepth, dicts)};
    const Result<std::string> text = build_objects({}, {&deepest, 1});
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_TRUE(parse_objects(*text));
    const NamedObject deeper{.name = "a", .path = {}, .value = nested(kMaxObjectDepth + 1, dicts)};
    const Result<std::string> refused = build_objects({}, {&deeper, 1});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::unsupported);
    EXPECT_TRUE(nests_within(deepest.value, kMaxObjectDepth, 1000));
    EXPECT_FALSE(nests_within(deeper.value, kMaxObjectDepth, 1000));
    const std::string begin = dicts ? R"({"dict":[["k",)" : "[";
    const std::string end = dicts ? "]]}" : "]";
    for (const std::size_t levels : {kMaxObjectDepth, kMaxObjectDepth * 3, kMaxObjectDepth * 1000}) {
      std::string value;
      for (std::size_t i = 0; i < levels; ++i) value += begin;
      value += "1";
      for (std::size_t i = 0; i < levels; ++i) value += end;
      const Result<Objects> read = parse_objects(document(value));
      ASSERT_FALSE(read);
      EXPECT_EQ(read.error().code, Errc::unsupported) << read.error().message;
    }
  }
}

// A few shared values that would unfold into 2^40.
TEST(Objects, SharedValuesDoNotUnfoldWithoutBound) {
  ValuePtr value = ptr({std::int64_t{1}});
  for (int i = 0; i < 40; ++i) value = ptr({List{List::Kind::list, {value, value}}});
  const NamedObject object{.name = "bomb", .path = {}, .value = *value};
  const Result<std::string> text = build_objects({}, {&object, 1});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Errc::refused);
  EXPECT_NE(text.error().message.find("bomb"), std::string::npos);
}

TEST(Objects, ABigIntegerThatIsNoNumberIsRefused) {
  const NamedObject object{.name = "a", .path = {}, .value = {BigInt{"12x"}}};
  EXPECT_FALSE(build_objects({}, {&object, 1}));
}

}  // namespace
}  // namespace ckpt::universal
