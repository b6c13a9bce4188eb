// Random streams by what they are for.
#include "format/universal/rng_streams.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace ckpt::rng {
namespace {

const Stream kDropout{.identity = {.stream = "dropout", .coords = {{"dp", 3}, {"tp", 0}}},
                      .algorithm = "torch.cuda",
                      .state = std::string("\0\x01\xff", 3)};

TEST(RngStream, IsReadAsItWasWritten) {
  for (const Stream& stream : {kDropout, Stream{.identity = {.stream = "python"}, .algorithm = "", .state = ""}}) {
    const auto built = build(stream);
    ASSERT_TRUE(built) << built.error().message;
    const auto read = parse(*built);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, stream);
  }
  EXPECT_EQ(build(kDropout).value(),
            "{\"rng_stream\": 1, \"stream\": \"dropout\", \"coords\": {\"dp\": 3, \"tp\": 0}, \"algorithm\": "
            "\"torch.cuda\", \"state\": \"0001ff\"}\n");
}

TEST(RngStream, NamesAreIdentities) {
  EXPECT_EQ(blob_name(kDropout.identity), "rng/dropout@dp=3,tp=0");
  EXPECT_EQ(blob_name({.stream = "a/../b@=,%", .coords = {{"x=y", 1}}}), "rng/a%2F..%2Fb%40%3D%2C%25@x%3Dy=1");
}

TEST(RngStream, ThatCouldNotBeReadBackIsNotBuilt) {
  Stream largest = kDropout;
  largest.state.assign(kMaxStateBytes, '\xff');
  const auto built = build(largest);
  ASSERT_TRUE(built) << built.error().message;
  EXPECT_EQ(parse(*built).value(), largest);
  Stream larger = largest;
  larger.state += 'x';
  for (const Stream& stream : {larger, Stream{.identity = {.stream = ""}}, Stream{.identity = {.stream = "\xff"}},
                               Stream{.identity = {.stream = "a", .coords = {{"", 0}}}},
                               Stream{.identity = {.stream = "a"}, .algorithm = "\xff"},
                               Stream{.identity = {.stream = std::string(kMaxNameBytes, 'a')}}}) {
    const auto refused = build(stream);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::usage) << refused.error().message;
  }
}

TEST(RngStream, OfAnotherShapeIsCorruptAndOfALaterVersionNewer) {
  for (const char* text :
       {"", "[]", "{}", R"({"rng_stream": 0})",
        R"({"rng_stream": 1, "stream": "", "coords": {}, "algorithm": "", "state": ""})",
        R"({"rng_stream": 1, "stream": "a", "coords": [], "algorithm": "", "state": ""})",
        R"({"rng_stream": 1, "stream": "a", "coords": {"": 1}, "algorithm": "", "state": ""})",
        R"({"rng_stream": 1, "stream": "a", "coords": {"dp": -1}, "algorithm": "", "state": ""})",
        R"({"rng_stream": 1, "stream": "a", "coords": {}, "algorithm": 1, "state": ""})",
        R"({"rng_stream": 1, "stream": "a", "coords": {}, "algorithm": "", "state": "0"})",
        R"({"rng_stream": 1, "stream": "a", "coords": {}, "algorithm": "", "state": "AB"})",
        R"({"rng_stream": 1, "stream": "a", "coords": {}, "algorithm": "", "state": "", "more": 1})"}) {
    const auto read = parse(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, Errc::corrupt) << text;
  }
  EXPECT_EQ(parse(R"({"rng_stream": 2})").error().code, Errc::newer);
}

TEST(RngSeed, IsTheDocumentedHashAndDiffersWithEachThingItIsMadeOf) {
  const Identity identity{.stream = "dropout", .coords = {{"dp", 3}, {"tp", 0}}};
  std::string bytes("ckpt.rng.1\0", 11);
  bytes += std::string("\x07\0\0\0\0\0\0\0", 8) + std::string("\x02\x01\0\0\0\0\0\0", 8) + "rng/dropout@dp=3,tp=0";
  EXPECT_EQ(derive_seed(7, 258, identity), hash128(bytes));
  const std::set<std::string> seeds = {
      derive_seed(7, 258, identity).hex(), derive_seed(8, 258, identity).hex(), derive_seed(7, 259, identity).hex(),
      derive_seed(7, 258, {.stream = "dropout", .coords = {{"dp", 4}, {"tp", 0}}}).hex(),
      derive_seed(7, 258, {.stream = "noise", .coords = {{"dp", 3}, {"tp", 0}}}).hex()};
  EXPECT_EQ(seeds.size(), 5U);
}

TEST(RngResume, ContinuesWhatIsStoredAndDerivesTheRest) {
  Stream other = kDropout;
  other.identity.coords["dp"] = 4;
  const std::vector<Stream> stored{kDropout, other, {.identity = {.stream = "gone"}, .algorithm = "x", .state = "s"}};
  const Identity added{.stream = "dropout", .coords = {{"dp", 5}, {"tp", 0}}};
  const std::vector<Wanted> wanted{{other.identity, "torch.cuda"},
                                   {kDropout.identity, "torch.cpu"},
                                   {added, "torch.cuda"},
                                   {other.identity, "torch.cuda"}};
  const auto sources = resolve(stored, wanted, 7, 100);
  ASSERT_EQ(sources.size(), 4U);
  EXPECT_EQ(sources[0].stored, 1U);
  EXPECT_FALSE(sources[1].stored);  // another algorithm's state is of no use
  EXPECT_FALSE(sources[2].stored);
  EXPECT_EQ(sources[2].seed, derive_seed(7, 100, added));
  EXPECT_EQ(sources[3].stored, 1U);
}

}  // namespace
}  // namespace ckpt::rng
