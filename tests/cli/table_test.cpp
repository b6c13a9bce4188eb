#include "cli/output/table.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "cli/output/console.hpp"
#include "cli/output/tree.hpp"

namespace ckpt::cli {
namespace {

Table sample() {
  return {.columns = {{.title = "NAME", .shrinks = true}, {.title = "SIZE", .right = true}},
          .rows = {{"model.layers.0.self_attn.q_proj.weight", "32 MiB"}, {"bias", "4 KiB"}}};
}

TEST(AlignedTable, PutsTheHeaderFirstAndNumbersToTheRight) {
  const Drawn drawn = draw_aligned(sample(), 200);
  EXPECT_EQ(drawn.text,
            "NAME                                      SIZE\n"
            "model.layers.0.self_attn.q_proj.weight  32 MiB\n"
            "bias                                     4 KiB\n");
  EXPECT_EQ(drawn.shortened, 0u);
}

TEST(AlignedTable, FitsTheWidthByShorteningNamesAndSaysHowMany) {
  for (std::size_t width = 24; width < 46; ++width) {
    const Drawn drawn = draw_aligned(sample(), width);
    EXPECT_EQ(drawn.shortened, 1u);
    std::string_view rest = drawn.text;
    while (!rest.empty()) {
      EXPECT_LE(text_width(rest.substr(0, rest.find('\n'))), width);
      rest.remove_prefix(rest.find('\n') + 1);
    }
  }
}

TEST(AlignedTable, DropsAndShortensTheLastColumnsFirst) {
  const Table table{.columns = {{.title = "RUN", .shrinks = true, .least = 4},
                                {.title = "TAG", .drops = true},
                                {.title = "NOTE", .shrinks = true, .least = 6, .keeps_head = true},
                                {.title = "ID", .drops = true}},
                    .rows = {{"llama-large", "best", "a long story", "47ca"}, {"b", "", "", "3f2a"}}};
  EXPECT_EQ(draw_aligned(table, 80).text,
            "RUN          TAG   NOTE          ID\n"
            "llama-large  best  a long story  47ca\n"
            "b                                3f2a\n");
  EXPECT_EQ(draw_aligned(table, 31).text,
            "RUN          TAG   NOTE    ID\n"
            "llama-large  best  a lon…  47ca\n"
            "b                          3f2a\n");
  EXPECT_EQ(draw_aligned(table, 18).text,
            "RUN   TAG   NOTE\n"
            "l…ge  best  a lon…\n"
            "b\n");
  EXPECT_EQ(draw_aligned(table, 12).text,
            "RUN   NOTE\n"
            "l…ge  a lon…\n"
            "b\n");
}

TEST(AlignedTable, WrapsALastColumnOfSentences) {
  const Table table{.columns = {{.title = "NAME"}, {.title = "WHY", .wraps = true}},
                    .rows = {{"a@10", "not in the newest 3 (10th); not a multiple of 1000"}, {"a@9", "pinned"}}};
  EXPECT_EQ(draw_aligned(table, 30).text,
            "NAME  WHY\n"
            "a@10  not in the newest 3\n"
            "      (10th); not a multiple\n"
            "      of 1000\n"
            "a@9   pinned\n");
  EXPECT_EQ(draw_aligned(table, 200).text,
            "NAME  WHY\n"
            "a@10  not in the newest 3 (10th); not a multiple of 1000\n"
            "a@9   pinned\n");
}

TEST(AlignedTable, PaintsCellsWithoutCountingTheInk) {
  const Drawn drawn =
      draw_aligned(sample(), 200, [](std::size_t column, const std::string& cell, std::string_view text) {
        return column == 1 && cell == "4 KiB" ? "<" + std::string(text) + ">" : std::string(text);
      });
  EXPECT_EQ(drawn.text,
            "NAME                                      SIZE\n"
            "model.layers.0.self_attn.q_proj.weight  32 MiB\n"
            "bias                                    < 4 KiB>\n");
}

TEST(Shorten, KeepsBothEndsAndNeverCutsACharacterInTwo) {
  EXPECT_EQ(shorten("abcdef", 6), "abcdef");
  EXPECT_EQ(shorten("model.layers.0.weight", 12), "mode….weight");
  for (std::size_t columns = 3; columns < 12; ++columns) {
    const std::string cut = shorten("ÄÖÜäöüßéèêë!", columns);
    EXPECT_EQ(text_width(cut), columns);
    EXPECT_EQ(to_ascii(cut).size(), columns + 2) << "every character is whole: " << cut;  // "…" becomes three dots
  }
}

TEST(Shorten, CountsTheColumnsOfATerminal) {
  EXPECT_EQ(text_width("模型"), 4u);
  EXPECT_EQ(text_width("e\u0301"), 1u) << "a combining accent";
  for (std::size_t columns = 3; columns < 16; ++columns)
    EXPECT_LE(text_width(shorten("模型模型模型模型", columns)), columns) << columns;
  EXPECT_EQ(shorten("模型模型模型模型", 8), "模…模型");
}

TEST(TsvTable, NeverShortensAndKeepsOneLineARow) {
  Table table = sample();
  table.rows.push_back({"a\tb\nc", "1"});
  EXPECT_EQ(draw_tsv(table), "NAME\tSIZE\nmodel.layers.0.self_attn.q_proj.weight\t32 MiB\nbias\t4 KiB\na?b?c\t1\n");
}

TEST(NaturalOrder, CountsNumbersAndStaysAStrictOrder) {
  std::vector<std::string> names{"l.10.w", "l.2.w", "l.1.w", "l.02.w",
                                 "l",      "k.1",   "l.2.a", "l.123456789012345678901234"};
  std::ranges::sort(names, natural_less);
  EXPECT_EQ(names, (std::vector<std::string>{"k.1", "l", "l.1.w", "l.2.a", "l.02.w", "l.2.w", "l.10.w",
                                             "l.123456789012345678901234"}));
  for (const auto& a : names)
    for (const auto& b : names) EXPECT_EQ(natural_less(a, b) || natural_less(b, a), a != b) << a << " " << b;
}

ListedTensor tensor(std::string name, std::uint64_t bytes, std::string alias_of = {}) {
  return {
      .name = std::move(name), .dtype = "F32", .shape = {bytes / 4}, .bytes = bytes, .alias_of = std::move(alias_of)};
}

TEST(Tree, SumsBranchesOrdersNumbersAndCountsTiedNamesOnce) {
  const std::vector<ListedTensor> tensors{tensor("m.layers.10.w", 1024), tensor("m.layers.2.w", 2048),
                                          tensor("m.head", 512), tensor("m.tied", 512, "m.head")};
  EXPECT_EQ(draw_tree(tensors, kDeepestTree, SizeStyle::binary, true),
            "m         3.50 KiB  3 tensors\n"
            "  head       512 B  F32 [128]\n"
            "  layers     3 KiB  2 tensors\n"
            "    2        2 KiB  1 tensor\n"
            "      w      2 KiB  F32 [512]\n"
            "    10       1 KiB  1 tensor\n"
            "      w      1 KiB  F32 [256]\n"
            "  tied              F32 [128]  same as m.head\n");
}

TEST(Tree, EqualLayersAreShownOnce) {
  std::vector<ListedTensor> tensors;
  for (const int layer : {0, 1, 2, 3, 10}) {
    const std::string name = "m.layers." + std::to_string(layer);
    tensors.push_back(tensor(name + ".w", 1024));
    tensors.push_back(tensor(name + ".b", layer == 2 ? 8 : 4));
  }
  EXPECT_EQ(draw_tree(tensors, kDeepestTree, SizeStyle::binary, true),
            "m            5.02 KiB  10 tensors\n"
            "  layers     5.02 KiB  10 tensors\n"
            "    0-1  ×2  2.01 KiB  4 tensors, 1 KiB each\n"
            "      b           4 B  F32 [1]\n"
            "      w         1 KiB  F32 [256]\n"
            "    2        1.01 KiB  2 tensors\n"
            "      b           8 B  F32 [2]\n"
            "      w         1 KiB  F32 [256]\n"
            "    3           1 KiB  2 tensors\n"
            "      b           4 B  F32 [1]\n"
            "      w         1 KiB  F32 [256]\n"
            "    10          1 KiB  2 tensors\n"
            "      b           4 B  F32 [1]\n"
            "      w         1 KiB  F32 [256]\n");
  const std::string all = draw_tree(tensors, kDeepestTree, SizeStyle::binary, false);
  EXPECT_EQ(all.find("×"), std::string::npos) << all;
  EXPECT_EQ(std::ranges::count(all, '\n'), 17);
}

TEST(Tree, StopsAtTheDepthAsked) {
  const std::vector<ListedTensor> tensors{tensor("m.a.w", 4), tensor("m.b.w", 4), tensor("n", 4)};
  EXPECT_EQ(draw_tree(tensors, 1, SizeStyle::binary, true), "m  8 B  2 tensors\nn  4 B  F32 [1]\n");
}

TEST(Tree, ANameOfTenThousandDotsIsOneBranchOfLimitedDepth) {
  const std::string text = draw_tree({tensor(std::string(10'000, '.'), 4)}, kDeepestTree, SizeStyle::binary, true);
  EXPECT_EQ(std::ranges::count(text, '\n'), static_cast<std::ptrdiff_t>(kDeepestTree));
}

}  // namespace
}  // namespace ckpt::cli
