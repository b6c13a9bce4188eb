#include "cli/words/words.hpp"

#include <gtest/gtest.h>

#include <map>

namespace ckpt::cli {
namespace {

Parsed parse(const std::vector<std::string>& words, const std::map<std::string, std::string>& variables = {}) {
  return parse_words(words, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(Words, FlagsOfTheProgramStandAnywhere) {
  for (const auto& words : std::vector<std::vector<std::string>>{{"--memory", "4G", "-q", "convert", "a", "b"},
                                                                 {"convert", "--memory=4G", "a", "-q", "b"},
                                                                 {"convert", "a", "b", "-q", "--memory", "4G"}}) {
    const Parsed parsed = parse(words);
    ASSERT_FALSE(parsed.error) << parsed.error->message;
    EXPECT_EQ(parsed.words.verb->name, "convert");
    EXPECT_EQ(parsed.words.arguments, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(parsed.words.text("memory"), "4G");
    EXPECT_TRUE(parsed.words.on("quiet"));
  }
}

TEST(Words, AliasesMeanTheirVerbs) {
  const std::map<std::string, std::string> aliases{
      {"load", "export"},     {"consolidate", "convert"}, {"extract", "export"},
      {"reshard", "convert"}, {"check", "verify"},        {"fsck", "verify"},
      {"show", "inspect"},    {"info", "inspect"},        {"tree", "ls"}};
  for (const auto& [alias, verb] : aliases) {
    const Parsed parsed = parse({alias, "a", "b"});
    ASSERT_NE(parsed.words.verb, nullptr) << alias;
    EXPECT_EQ(parsed.words.verb->name, verb);
  }
}

TEST(Words, DiffComparesTwoCheckpoints) {
  for (const auto& words : std::vector<std::vector<std::string>>{{"diff", "a", "b"}, {"-q", "compare", "a", "b"}}) {
    const Parsed parsed = parse(words);
    ASSERT_FALSE(parsed.error) << parsed.error->message;
    EXPECT_EQ(parsed.words.verb->name, "diff");
    EXPECT_EQ(parsed.words.arguments, (std::vector<std::string>{"a", "b"}));
  }
  EXPECT_TRUE(parse({"diff", "a"}).error);
  EXPECT_TRUE(parse({"diff", "a", "b", "c"}).error);
}

TEST(Words, SynonymsMeanTheirValues) {
  EXPECT_EQ(parse({"convert", "a", "b", "--dtype", "bfloat16"}).words.text("dtype"), "bf16");
  EXPECT_EQ(parse({"convert", "a", "b", "--to=huggingface"}).words.text("to"), "safetensors");
  EXPECT_EQ(parse({"convert", "a", "b", "--from", "pytorch"}).words.text("from"), "torch");
}

TEST(Words, PathsMayBeNamedLikeVerbsHoldBracketsOrFollowTwoDashes) {
  EXPECT_EQ(parse({"convert", "ls", "verify"}).words.arguments, (std::vector<std::string>{"ls", "verify"}));
  EXPECT_EQ(parse({"convert", "[a,b]", "[c]"}).words.arguments, (std::vector<std::string>{"[a,b]", "[c]"}));
  EXPECT_EQ(parse({"convert", "--", "-a", "--json"}).words.arguments, (std::vector<std::string>{"-a", "--json"}));
  EXPECT_EQ(parse({"ls", "-"}).words.arguments, (std::vector<std::string>{"-"}));
  EXPECT_EQ(parse({"convert", "a", "", "--json"}).words.arguments, (std::vector<std::string>{"a", ""}));
}

TEST(Words, RepeatableFlagsCollectAndOthersTakeTheLast) {
  const Parsed parsed =
      parse({"convert", "a", "b", "--only", "weights", "--only", "[ab]*", "--verify", "none", "--verify", "full"});
  ASSERT_FALSE(parsed.error);
  EXPECT_EQ(parsed.words.all("only"), (std::vector<std::string>{"weights", "[ab]*"}));
  EXPECT_EQ(parsed.words.text("verify"), "full");
  EXPECT_EQ(parse({"ls", "a", "-vv"}).words.count("verbose"), 2u);
}

TEST(Words, AnEmptyValueAfterTheEqualsSignDoesNotEatTheNextWord) {
  const Parsed parsed = parse({"convert", "--strip-prefix=", "a", "b"});
  ASSERT_FALSE(parsed.error);
  EXPECT_EQ(parsed.words.arguments.size(), 2u);
  EXPECT_EQ(parsed.words.text("strip-prefix"), "");
}

TEST(Words, TheEnvironmentGivesDefaultsAndFlagsWin) {
  const std::map<std::string, std::string> variables{
      {"CKPT_MEMORY", "2G"}, {"CKPT_OVERWRITE", "1"}, {"CKPT_JSON", "0"}, {"CKPT_SHARD_SIZE", "5GB"}};
  const Parsed parsed = parse({"convert", "a", "b", "--shard-size", "1GB"}, variables);
  ASSERT_FALSE(parsed.error);
  EXPECT_EQ(parsed.words.value("memory")->origin, "CKPT_MEMORY");
  EXPECT_TRUE(parsed.words.on("overwrite"));
  EXPECT_FALSE(parsed.words.on("json"));
  EXPECT_EQ(parsed.words.text("shard-size"), "1GB");
  EXPECT_FALSE(parse({"inspect", "a"}, {{"CKPT_OVERWRITE", "1"}}).error) << "a variable of another verb";
}

struct Mistake {
  std::vector<std::string> words;
  std::string hint;
};

TEST(Words, MistakesAreAnsweredWithWhatWasMeant) {
  const std::vector<Mistake> mistakes{
      {{"convrt", "a", "b"}, "did you mean 'ckpt convert'?"},
      {{"verfy", "--json"}, "did you mean 'ckpt verify'?"},
      {{"convert", "a", "b", "--ovewrite"}, "did you mean '--overwrite'?"},
      {{"convert", "a", "b", "--max-shard-size", "5GB"}, "did you mean '--shard-size'?"},
      {{"convert", "a", "b", "-f"}, "did you mean '--to'?"},
      {{"convert", "a", "b", "--verify", "ful"}, "did you mean '--verify full'?"},
      {{"verify", "a", "--overwrite"}, "'--overwrite' is an option of 'ckpt convert'"},
      {{"ls", "a", "--sort", "sizes"}, "did you mean '--sort size'?"},
      {{"inspect", "a", "--colour", "never"}, "did you mean '--color'?"},
      {{"convert", "a"}, "usage: ckpt convert SRC DST"},
  };
  for (const Mistake& mistake : mistakes) {
    const Parsed parsed = parse(mistake.words);
    ASSERT_TRUE(parsed.error) << mistake.hint;
    EXPECT_EQ(parsed.error->code, Errc::usage);
    EXPECT_EQ(parsed.error->hint, mistake.hint) << parsed.error->message;
  }
}

TEST(Words, FormatNamesAreCheckedAgainstTheRegistry) {
  EXPECT_FALSE(parse({"convert", "a", "b", "--to", "safetensors"}).error);
  const Parsed parsed = parse({"convert", "a", "b", "--to", "safetensor"});
  ASSERT_TRUE(parsed.error);
  EXPECT_EQ(parsed.error->hint, "did you mean '--to safetensors'?");
}

TEST(Words, AFailureStillKnowsTheVerbAndThatJsonWasAsked) {
  for (const auto& words : std::vector<std::vector<std::string>>{{"convert", "--json", "a", "--bogus"},
                                                                 {"convert", "--json", "a", "b", "--to"}}) {
    const Parsed parsed = parse(words);
    ASSERT_TRUE(parsed.error);
    ASSERT_NE(parsed.words.verb, nullptr);
    EXPECT_EQ(parsed.words.verb->name, "convert");
    EXPECT_TRUE(parsed.words.on("json"));
  }
}

TEST(Words, HelpAndVersionAreVerbsInEveryForm) {
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"convert", "--help"}, {"-h", "convert"}, {"convert", "a", "-h"}}) {
    const Parsed parsed = parse(words);
    ASSERT_FALSE(parsed.error);
    EXPECT_EQ(parsed.words.verb->name, "help");
    EXPECT_EQ(parsed.words.arguments, (std::vector<std::string>{"convert"}));
  }
  EXPECT_EQ(parse({"--version"}).words.verb->name, "version");
  EXPECT_EQ(parse({"--help"}).words.verb->name, "help");
}

TEST(Grammar, EveryFlagHasHelpAndNoNameTwiceInReach) {
  for (const Verb& verb : verbs()) {
    std::map<std::string, int> seen;
    for (const Flag& flag : global_flags()) ++seen["--" + std::string(flag.name)];
    for (const Flag& flag : verb.flags) {
      ++seen["--" + std::string(flag.name)];
      if (flag.letter != 0) ++seen[std::string("-") + flag.letter];
      EXPECT_FALSE(flag.help.empty()) << flag.name;
    }
    for (const auto& [name, count] : seen) EXPECT_EQ(count, 1) << verb.name << " " << name;
  }
}

}  // namespace
}  // namespace ckpt::cli
