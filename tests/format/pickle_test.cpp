#include "format/torch/pickle.hpp"

#include <gtest/gtest.h>

#include "support/pickle_writer.hpp"

namespace ckpt::pickle {
namespace {

using namespace std::string_literals;
using test::PickleWriter;

Result<Graph> parse_text(std::string_view text, const Budget& budget = {}) {
  return parse(std::as_bytes(std::span(text)), budget);
}

Graph parsed(std::string_view text) {
  auto graph = parse_text(text);
  EXPECT_TRUE(graph) << (graph ? "" : graph.error().message);
  return graph ? *graph : *parse_text("N.");
}

Errc code_of(std::string_view text, const Budget& budget = {}) {
  const auto graph = parse_text(text, budget);
  return graph ? Errc{} : graph.error().code;
}

std::int64_t integer_of(std::string_view text) {
  const Graph graph = parsed(text);
  EXPECT_EQ(graph.kind(graph.root()), Kind::integer);
  return graph.integer(graph.root());
}

std::string text_of(std::string_view text, Kind kind) {
  const Graph graph = parsed(text);
  EXPECT_EQ(graph.kind(graph.root()), kind);
  return std::string(graph.text(graph.root()));
}

std::string repeat(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(Pickle, NumbersOfEveryProtocolKeepTheirValue) {
  EXPECT_EQ(integer_of("\x80\x02K\xff."s), 255);
  EXPECT_EQ(integer_of("\x80\x02M\x01\x02."s), 0x201);
  EXPECT_EQ(integer_of("\x80\x02J\xfe\xff\xff\xff."s), -2);
  EXPECT_EQ(integer_of("\x80\x02\x8a\x00."s), 0);
  EXPECT_EQ(integer_of("\x80\x02\x8a\x05\x00\x00\x00\x00\x80."s), -(std::int64_t{1} << 39));
  EXPECT_EQ(integer_of("\x80\x02\x8b\x02\x00\x00\x00\x00\x01."s), 256);
  EXPECT_EQ(integer_of("I-17\n."), -17);
  EXPECT_EQ(integer_of("L99999L\n."), 99999);
  EXPECT_EQ(parsed("\x80\x02G\x40\x0c\x00\x00\x00\x00\x00\x00."s).real(0), 3.5);
  EXPECT_EQ(parsed("F2.5\n.").real(0), 2.5);
  EXPECT_TRUE(parsed("\x80\x02\x88."s).boolean(0));
  EXPECT_FALSE(parsed("\x80\x02\x89."s).boolean(0));
  EXPECT_EQ(parsed("I01\n.").kind(0), Kind::boolean);
  EXPECT_EQ(parsed("N.").kind(0), Kind::none);
}

TEST(Pickle, IntegersBeyond64BitsBecomeDecimalText) {
  const std::string magic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s;  // of torch's legacy files
  EXPECT_EQ(text_of(magic, Kind::big_integer), "119547037146038801333356");
  EXPECT_EQ(text_of("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\xff."s, Kind::big_integer), "-18446744073709551616");
  EXPECT_EQ(text_of("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00."s, Kind::big_integer), "9223372036854775808");
  EXPECT_EQ(text_of("L-18446744073709551616L\n.", Kind::big_integer), "-18446744073709551616");
}

TEST(Pickle, TextAndBytesInEverySpelling) {
  EXPECT_EQ(text_of("X\x04\x00\x00\x00gr\xc3\xbc."s, Kind::text), "gr\xc3\xbc");
  EXPECT_EQ(text_of("\x8c\x02hi."s, Kind::text), "hi");
  EXPECT_EQ(text_of("\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi."s, Kind::text), "hi");
  EXPECT_EQ(text_of("X\x03\x00\x00\x00\xed\xa0\x80."s, Kind::text), "\xed\xa0\x80");  // a lone surrogate stands
  EXPECT_EQ(text_of("Vgr\\u00fc\xdf\n."s, Kind::text), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(text_of("S'a\\x41\\n'\n."s, Kind::text), "aA\n");
  EXPECT_EQ(text_of("U\x02hi."s, Kind::text), "hi");
  EXPECT_EQ(text_of("U\x02h\xff."s, Kind::bytes), "h\xff");
  EXPECT_EQ(text_of("C\x02\x00\xff."s, Kind::bytes), "\x00\xff"s);
  EXPECT_EQ(text_of("\x96\x01\x00\x00\x00\x00\x00\x00\x00Z."s, Kind::bytes), "Z");
  EXPECT_EQ(text_of(PickleWriter().text("").stop(), Kind::text), "");
  const std::string large(100000, 'x');
  EXPECT_EQ(text_of(PickleWriter().text(large).stop(), Kind::text), large);
}

TEST(Pickle, TextThatIsNotUtf8IsCorrupt) {
  for (const std::string bad : {"\xc3", "\x80", "\xc0\x80", "\xe0\x80\x80", "\xf4\x90\x80\x80", "\xff"}) {
    EXPECT_EQ(code_of(PickleWriter().text(bad).stop()), Errc::corrupt);
  }
}

TEST(Pickle, ContainersKeepTheirItemsInOrder) {
  const Graph graph = parsed(PickleWriter(4).raw("](K\1K\2e}(").text("k").raw("K\3u\x86").stop());
  const auto pair = graph.items(graph.root());
  ASSERT_EQ(pair.size(), 2u);
  const auto list = graph.items(pair[0]);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(graph.integer(list[0]), 1);
  EXPECT_EQ(graph.integer(list[1]), 2);
  EXPECT_EQ(graph.integer(graph.find(pair[1], "k")), 3);
  EXPECT_EQ(graph.find(pair[1], "absent"), kNone);
}

TEST(Pickle, ListsFilledInManyStepsAreWhole) {
  std::string text = "]";
  for (int batch = 0; batch < 5; ++batch) text += "(" + repeat("M\x01\x02", 1000) + "e";
  const Graph graph = parsed(text + "K\7a.");
  const auto items = graph.items(graph.root());
  ASSERT_EQ(items.size(), 5001u);
  EXPECT_EQ(graph.integer(items[999]), 0x201);
  EXPECT_EQ(graph.integer(items[4999]), 0x201);
  EXPECT_EQ(graph.integer(items[5000]), 7);
}

TEST(Pickle, CallsAreNodesWithStateAndItems) {
  PickleWriter writer;
  writer.ordered_dict().raw("(").text("a").raw("K\1u}").text("_metadata").raw("Nsb");
  const Graph graph = parsed(writer.stop());
  const NodeId root = graph.root();
  EXPECT_EQ(graph.kind(root), Kind::call);
  EXPECT_EQ(graph.callee_name(root), "collections OrderedDict");
  EXPECT_EQ(graph.items(graph.arguments(root)).size(), 0u);
  EXPECT_TRUE(graph.has_pairs(root));
  EXPECT_EQ(graph.integer(graph.find(root, "a")), 1);
  EXPECT_NE(graph.find(graph.state(root), "_metadata"), kNone);
}

TEST(Pickle, KeywordArgumentsFollowTheOthers) {
  const Graph graph = parsed(PickleWriter(4).global("m", "C").raw("K\1\x85}").text("k").raw("K\2s\x92").stop());
  const auto arguments = graph.items(graph.arguments(graph.root()));
  ASSERT_EQ(arguments.size(), 2u);
  EXPECT_EQ(graph.integer(arguments[0]), 1);
  EXPECT_EQ(graph.integer(graph.find(arguments[1], "k")), 2);
}

TEST(Pickle, MemoGivesTheSameNode) {
  for (const std::string& text : {"\x80\x02]q\x00h\x00\x86."s, "\x80\x02]r\x00\x00\x00\x00j\x00\x00\x00\x00\x86."s,
                                  "\x80\x04]\x94h\x00\x86."s, "(lp0\ng0\n\x86."s}) {
    const Graph graph = parsed(text);
    const auto items = graph.items(graph.root());
    ASSERT_EQ(items.size(), 2u);
    EXPECT_EQ(graph.kind(items[0]), Kind::list);
    EXPECT_EQ(items[0], items[1]);
  }
}

TEST(Pickle, AListMayHoldItself) {
  const Graph graph = parsed("]q\0h\0a."s);
  ASSERT_EQ(graph.items(graph.root()).size(), 1u);
  EXPECT_EQ(graph.items(graph.root())[0], graph.root());
}

TEST(Pickle, EqualTextsAreOneNode) {
  const Graph graph = parsed(PickleWriter().text("layers.0.weight").text("layers.0.weight").raw("\x86").stop());
  EXPECT_EQ(graph.items(graph.root())[0], graph.items(graph.root())[1]);
}

TEST(Pickle, BytesAfterStopAreLeftAlone) {
  std::size_t used = 0;
  const auto graph = parse(std::as_bytes(std::span("K\1.rest", 7)), {}, &used);
  ASSERT_TRUE(graph);
  EXPECT_EQ(used, 3u);
}

TEST(Pickle, GlobalsThatRunThingsAreRefusedByName) {
  const std::pair<std::string, std::string> refused[] = {
      {"os", "system"},          {"posix", "system"},        {"nt", "system"},        {"subprocess", "Popen"},
      {"sys", "exit"},           {"builtins", "eval"},       {"__builtin__", "exec"}, {"importlib", "import_module"},
      {"runpy", "run_path"},     {"shutil", "rmtree"},       {"socket", "socket"},    {"ctypes", "CDLL"},
      {"os.path", "expanduser"}, {"importlib.util", "find"}, {"ctypes.util", "find"}, {"builtins", "__import__"},
  };
  for (const auto& [module, name] : refused) {
    const auto by_line = parse_text(PickleWriter().global(module, name).stop());
    ASSERT_FALSE(by_line) << module;
    EXPECT_EQ(by_line.error().code, Errc::refused);
    EXPECT_NE(by_line.error().message.find(module + "." + name), std::string::npos) << by_line.error().message;
    EXPECT_EQ(by_line.error().offset, 2u);
    EXPECT_EQ(code_of(PickleWriter(4).text(module).text(name).raw("\x93").stop()), Errc::refused) << module;
  }
}

TEST(Pickle, TheModuleOfALegacyTorchFileIsItsClass) {
  const auto with = [](std::string_view first) {
    PickleWriter writer;
    writer.raw("(").text(first).global("torch.nn", "Linear").text("linear.py").text("class Linear").raw("tQ");
    return writer.raw(")\x81").stop();
  };
  const Graph graph = parsed(with("module"));
  EXPECT_EQ(graph.callee_name(graph.root()), "torch.nn Linear");
  EXPECT_EQ(code_of(with("another")), Errc::corrupt);
}

TEST(Pickle, HarmlessGlobalsAreSymbols) {
  for (const auto& [module, name] :
       {std::pair{"builtins", "set"}, std::pair{"__builtin__", "complex"}, std::pair{"builtins", "range"},
        std::pair{"__builtin__", "xrange"}, std::pair{"ossify", "Bone"}, std::pair{"my.module", "Net"}}) {
    const Graph graph = parsed(PickleWriter().global(module, name).stop());
    EXPECT_TRUE(graph.is_global(graph.root(), std::string(module) + " " + name));
  }
}

TEST(Pickle, BrokenStreamsAreCorrupt) {
  EXPECT_EQ(code_of(""), Errc::corrupt);
  EXPECT_EQ(code_of("\x80\x02}"s), Errc::corrupt);                // no STOP
  EXPECT_EQ(code_of("."), Errc::corrupt);                         // nothing on the stack
  EXPECT_EQ(code_of("NN."), Errc::corrupt);                       // two values
  EXPECT_EQ(code_of("(N."), Errc::corrupt);                       // an open mark
  EXPECT_EQ(code_of("\x86."s), Errc::corrupt);                    // a tuple of nothing
  EXPECT_EQ(code_of("t."), Errc::corrupt);                        // no mark
  EXPECT_EQ(code_of("N(a."), Errc::corrupt);                      // reaches below the mark
  EXPECT_EQ(code_of("h\0."s), Errc::corrupt);                     // unset memo entry
  EXPECT_EQ(code_of("X\xf0\xff\xff\xffshort."s), Errc::corrupt);  // longer than the file
  EXPECT_EQ(code_of("\x8e\xff\xff\xff\xff\xff\xff\xff\xff."s), Errc::corrupt);
  EXPECT_EQ(code_of("\x95\xff\x00\x00\x00\x00\x00\x00\x00N."s), Errc::corrupt);
  EXPECT_EQ(code_of("\x8b\xff\xff\xff\xff."s), Errc::corrupt);
  EXPECT_EQ(code_of("}(Nu."), Errc::corrupt);  // a key without a value
  EXPECT_EQ(code_of("NNa."), Errc::corrupt);   // None holds no items
  EXPECT_EQ(code_of("cm\nC\n](R."), Errc::corrupt);
  EXPECT_EQ(code_of("cm\nC\n]R."), Errc::corrupt);      // arguments that are a list
  EXPECT_EQ(code_of("N)R."), Errc::corrupt);            // a call of None
  EXPECT_EQ(code_of("]}b."), Errc::corrupt);            // BUILD of a list
  EXPECT_EQ(code_of("cm\nC\n)R}b}b."), Errc::corrupt);  // two states
  EXPECT_EQ(code_of("cm\nC\n)RNaN(Nu."), Errc::corrupt);
  EXPECT_EQ(code_of("Ix\n."), Errc::corrupt);
  EXPECT_EQ(code_of("\xfe."s), Errc::corrupt);  // no such opcode
  EXPECT_EQ(code_of("\x80\x06N."s), Errc::unsupported);
}

TEST(Pickle, OpcodesThatReachOutsideAreRefused) {
  for (const std::string text : {"(im\nC\n.", "(cm\nC\no.", "Pid\n.", "\x82\x01.", "\x83\x01\x01.", "\x97.", "\x98."}) {
    EXPECT_EQ(code_of(text), Errc::refused);
  }
}

TEST(Pickle, EveryBudgetStopsItsOverrun) {
  const std::string many = "(" + repeat("]", 5000) + "t.";
  EXPECT_EQ(code_of(many), Errc{});
  EXPECT_EQ(code_of(many, {.max_nodes = 4000}), Errc::refused);
  EXPECT_EQ(code_of(many, {.max_opcodes = 4000}), Errc::refused);
  EXPECT_EQ(code_of(many, {.max_bytes = 40000}), Errc::refused);
  EXPECT_EQ(code_of("\x80\x02Nr\xff\xff\xff\x7f."s), Errc::refused);  // a memo index out of nowhere
  EXPECT_EQ(code_of(PickleWriter().raw("\x8b").little(5000, 4).raw(std::string(5000, '\1')).stop()), Errc::refused);
}

TEST(Pickle, NestingIsBoundedHoweverItIsBuilt) {
  const auto by_stack = [](std::size_t depth) { return repeat("]", depth) + repeat("a", depth - 1) + "."; };
  EXPECT_EQ(code_of(by_stack(1000)), Errc{});
  EXPECT_EQ(code_of(by_stack(1001)), Errc::refused);
  EXPECT_EQ(code_of(by_stack(100000)), Errc::refused);
  const auto by_tuples = [](std::size_t depth) { return "N" + repeat("\x85", depth) + "."; };
  EXPECT_EQ(code_of(by_tuples(1000)), Errc{});
  EXPECT_EQ(code_of(by_tuples(1001)), Errc::refused);
  // Two halves that are joined at the end: the deep half was finished before it was put inside.
  const std::string halves = repeat("]", 600) + repeat("a", 599) + "q\x01" + "0" + repeat("]", 600) + "h\x01" +
                             repeat("a", 600) + "h\x01\x86.";
  EXPECT_EQ(code_of(halves), Errc::refused);
}

TEST(Pickle, NestingCountsWhatAValueGetsAfterAnotherTookIt) {
  // A list holds a list that only then gets one with another in it: four deep.
  const std::string grown =
      "]]q\x01"
      "a"
      "h\x01"
      "]]a"
      "a"
      "0.";
  EXPECT_EQ(code_of(grown, {.max_depth = 4}), Errc{});
  EXPECT_EQ(code_of(grown, {.max_depth = 3}), Errc::refused);
  const std::string cycle =
      "]q\x01h\x01"
      "a.";
  EXPECT_EQ(code_of(cycle, {.max_depth = 1}), Errc{});
  const std::string state =
      "cmodule\nname\n)\x81"
      "]]a"
      "b.";
  EXPECT_EQ(code_of(state, {.max_depth = 3}), Errc{});
  EXPECT_EQ(code_of(state, {.max_depth = 2}), Errc::refused);
}

}  // namespace
}  // namespace ckpt::pickle
