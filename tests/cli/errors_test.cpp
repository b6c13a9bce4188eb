#include "cli/report/errors.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "cli/output/json.hpp"
#include "cli/report/document.hpp"
#include "format/text/json.hpp"

namespace ckpt::cli {
namespace {

std::string block(const Failure& failure) {
  std::string out;
  for (const std::string& line : error_lines(failure, SizeStyle::binary, nullptr)) out += line + "\n";
  return out;
}

TEST(ErrorBlock, NamesTensorFileEffectAndWhatToDo) {
  const Failure failure{.error = {.code = Errc::checksum,
                                  .message = "checksum mismatch",
                                  .file = "out/shards/weights/00000-00000.safetensors",
                                  .offset = 1'288'490'188,
                                  .tensor = "model.layers.17.mlp.up_proj.weight",
                                  .hint = "ckpt verify out\nckpt inspect out"},
                        .effect = "nothing was written to hf"};
  EXPECT_EQ(block(failure),
            "error: checksum mismatch\n"
            "  tensor   model.layers.17.mlp.up_proj.weight\n"
            "  file     out/shards/weights/00000-00000.safetensors   offset 1288490188 (1.20 GiB)\n"
            "  effect   nothing was written to hf\n"
            "hint: ckpt verify out\n"
            "hint: ckpt inspect out\n");
  EXPECT_EQ(explain_line(Errc::checksum), "exit 15 · ckpt explain E1503");
  EXPECT_TRUE(needs_explaining(Errc::checksum));
  EXPECT_FALSE(needs_explaining(Errc::not_found));
}

TEST(ErrorBlock, NamesTheRankAndFallsBackOnTheGeneralRemedy) {
  const std::string text =
      block({.error = {.code = Errc::no_space, .message = "out: No space left"}, .rank = 3, .node = "gpu-0231"});
  EXPECT_NE(text.find("  rank     3 on gpu-0231\n"), std::string::npos);
  EXPECT_NE(text.find("hint: Free the amount"), std::string::npos);
}

TEST(ErrorBlock, NamesFromFilesCannotMoveTheCursor) {
  const std::string text = block({.error = {.code = Errc::corrupt, .message = "a\x1b[2Jb\r\nc: bad"}});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_TRUE(text.starts_with("error: a?[2Jb??c: bad\n"));
}

TEST(StrayLine, StaysBelowFiveHundredAndTwelveBytes) {
  const std::string line = stray_line({.code = Errc::mpi_launch, .message = std::string(5000, 'x')}, 17, "gpu-0231");
  EXPECT_LT(line.size(), 512u);
  EXPECT_TRUE(line.starts_with("[rank 17 on gpu-0231] error: xxx"));
}

TEST(Explain, EveryCodeHasATextAnIdThatReadsBackAndAnExitCodeOfTheTable) {
  const std::set<int> table{1, 2, 3, 10, 11, 12, 13, 14, 15, 16, 17, 70, 130, 143};
  std::set<int> seen;
  for (const Errc code : all_codes()) {
    EXPECT_NE(explain(code).title, "unknown") << static_cast<int>(code);
    EXPECT_FALSE(explain(code).meaning.empty());
    EXPECT_FALSE(explain(code).remedy.empty());
    EXPECT_EQ(code_of(error_id(code)), code);
    seen.insert(exit_code(code));
  }
  EXPECT_EQ(seen, table) << "a code without an error, or an error outside the table";
}

TEST(Explain, IdsAreReadInEveryFormPeopleType) {
  for (const char* id : {"CKPT-E1503", "ckpt-e1503", "E1503", "e1503", "1503"})
    EXPECT_EQ(code_of(id), Errc::checksum) << id;
  for (const char* id : {"", "E", "E15030", "1504", "checksum"}) EXPECT_EQ(code_of(id), std::nullopt) << id;
}

TEST(Document, HasTheSixMembersOfTheEnvelopeInOrder) {
  Answer answer{.exit_code = 15};
  answer.failures.push_back({.error = {.code = Errc::checksum, .message = "m", .file = "f", .offset = 7}});
  answer.warnings.push_back({.severity = Severity::warning, .text = "w"});
  const std::string text = document("convert", answer);
  EXPECT_EQ(text.back(), '\n');
  const auto json = json::parse(text);
  ASSERT_TRUE(json) << text;
  std::string keys;
  for (const auto& [key, value] : *json->object()) keys += key + " ";
  EXPECT_EQ(keys, "schema ok exit_code data warnings errors ");
  EXPECT_EQ(*json->find("schema")->text(), "ckpt.convert/1");
  EXPECT_EQ(*json->find("ok")->boolean(), false);
  EXPECT_TRUE(std::holds_alternative<std::nullptr_t>(json->find("data")->v));
  const json::Value& error = json->find("errors")->array()->front();
  EXPECT_EQ(*error.find("id")->text(), "CKPT-E1503");
  EXPECT_EQ(*error.find("offset")->natural(), 7u);
}

TEST(Document, LaysOutDataAsAPartOfIt) {
  Answer answer;
  data_writer(answer.data).begin_object().member("rows", std::vector<int>{1}).end_object();
  EXPECT_EQ(document("x", answer),
            "{\n  \"schema\": \"ckpt.x/1\",\n  \"ok\": true,\n  \"exit_code\": 0,\n  \"data\": {\n    \"rows\": [\n"
            "      1\n    ]\n  },\n  \"warnings\": [],\n  \"errors\": []\n}\n");
}

/// {"x": text}, as put_text writes it.
json::Value put_and_read(std::string_view text) {
  std::string line;
  json::Writer out = line_writer(line);
  out.begin_object();
  put_text(out, "x", text);
  out.end_object();
  auto read = json::parse(line);
  EXPECT_TRUE(read) << line;
  return read ? *std::move(read) : json::Value{};
}

TEST(Document, BytesThatAreNotUtf8KeepTheirTrueFormBesideTheReadableOne) {
  EXPECT_EQ(put_and_read("good/ü").find("x_b64"), nullptr);
  const json::Value object = put_and_read("bad/\xff\xfe");
  EXPECT_EQ(*object.find("x")->text(), "bad/\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(*object.find("x_b64")->text(), "YmFkL//+");
  for (const char* bad : {"\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"})
    EXPECT_NE(put_and_read(bad).find("x_b64"), nullptr) << "overlong, surrogate, too large, cut, stray";
}

TEST(Document, WhatTerminalsHideIsEscapedAndReadsBackEqual) {
  const std::string hidden = "a\x7f\u202e\U000e0041b\"\n";
  std::string line;
  line_writer(line).value(hidden);
  EXPECT_EQ(line, R"("a\u007f\u202e\udb40\udc41b\"\n")");
  EXPECT_EQ(*json::parse(line)->text(), hidden);
}

TEST(Base64, MatchesTheVectorsOfRfc4648) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
}

}  // namespace
}  // namespace ckpt::cli
