#include "engine/run/crc_joiner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/hash.hpp"

namespace ckpt {
namespace {

std::string some_bytes(std::size_t count) {
  std::string out(count, '\0');
  std::mt19937 random(7);
  for (char& c : out) c = static_cast<char>(random() & 0xff);
  return out;
}

std::uint32_t crc_of(std::string_view bytes) {
  return crc32(0, std::as_bytes(std::span(bytes)));
}

/// An entry whose bytes stand at 1000 of file 3, and the joiner that takes parts of it.
struct Entry {
  std::string bytes = some_bytes(5000);
  CrcJoiner::Entry entry{.file = 3, .crc = {.begin = 1000, .end = 6000, .value = crc_of(bytes)}, .tensor = 2};
  CrcJoiner joiner{};

  /// Reads a part; the verdict if that completed the entry.
  std::optional<CrcJoiner::Verdict> read(std::uint64_t begin, std::uint64_t end) {
    std::optional<CrcJoiner::Verdict> out;
    for (const Extent part : joiner.take(entry, {begin, end})) {
      const auto verdict =
          joiner.add(entry, part, crc_of(std::string_view(bytes).substr(part.begin - 1000, part.size())));
      if (verdict) out = verdict;
    }
    return out;
  }
};

TEST(CrcJoiner, PiecesInAnyOrderGiveTheEntrysChecksumOnce) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::vector<std::uint64_t> cuts{1000, 6000};
    for (unsigned i = 0; i < random() % 8; ++i) cuts.push_back(1000 + random() % 5000);
    std::sort(cuts.begin(), cuts.end());
    std::vector<Extent> parts;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      if (cuts[i] < cuts[i + 1]) parts.push_back({cuts[i], cuts[i + 1]});
    }
    std::shuffle(parts.begin(), parts.end(), random);
    Entry e;
    unsigned verdicts = 0;
    for (const Extent part : parts) {
      // Some pieces reach into their neighbours, as aligned reads do.
      const std::uint64_t more = random() % 3 == 0 ? random() % 400 : 0;
      const auto verdict =
          e.read(part.begin - std::min(more, part.begin - 1000), std::min<std::uint64_t>(6000, part.end + more));
      if (!verdict) continue;
      ++verdicts;
      EXPECT_TRUE(verdict->right);
    }
    EXPECT_EQ(verdicts, 1u);
    EXPECT_EQ(e.joiner.unread(), 0u);
    EXPECT_FALSE(e.read(1000, 6000)) << "an entry that was checked is checked again";
  }
}

TEST(CrcJoiner, AByteThatChangedInAnyPieceIsFound) {
  for (const std::uint64_t at : {0u, 1u, 2499u, 2500u, 4999u}) {
    Entry e;
    e.bytes[at] = static_cast<char>(e.bytes[at] ^ 4);
    EXPECT_FALSE(e.read(3500, 6000));
    const auto verdict = e.read(1000, 3500);
    ASSERT_TRUE(verdict);
    EXPECT_FALSE(verdict->right);
    EXPECT_EQ(verdict->computed, crc_of(e.bytes));
  }
}

TEST(CrcJoiner, SaysWhatIsMissingOfAnEntryThatWasReadInPart) {
  Entry e;
  EXPECT_FALSE(e.read(1500, 2000));
  EXPECT_FALSE(e.read(3000, 6000));
  EXPECT_EQ(e.joiner.unread(), 1u);
  const auto open = e.joiner.open();
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].entry.file, 3u);
  EXPECT_EQ(open[0].entry.tensor, 2u);
  EXPECT_EQ(open[0].missing, (std::vector<Extent>{{1000, 1500}, {2000, 3000}}));
  EXPECT_FALSE(e.read(1000, 1500));
  EXPECT_TRUE(e.read(2000, 3000));
  EXPECT_TRUE(e.joiner.open().empty());
}

TEST(CrcJoiner, FollowsABoundedNumberOfEntriesAndCountsTheOthers) {
  CrcJoiner joiner;
  CrcJoiner::Entry entry{.file = 0, .crc = {.begin = 0, .end = 100}};
  for (std::size_t i = 0; i < CrcJoiner::kMostEntries + 10; ++i) {
    entry.crc.begin = 100 * i;
    entry.crc.end = entry.crc.begin + 100;
    for (const Extent part : joiner.take(entry, {entry.crc.begin, entry.crc.begin + 50})) joiner.add(entry, part, 0);
  }
  EXPECT_EQ(joiner.open().size(), CrcJoiner::kMostEntries);
  EXPECT_EQ(joiner.unread(), CrcJoiner::kMostEntries + 10);
  // What is read whole needs no following.
  entry = {.file = 1, .crc = {.begin = 0, .end = 4, .value = crc_of("abcd")}};
  const auto parts = joiner.take(entry, {0, 4});
  ASSERT_EQ(parts.size(), 1u);
  const auto verdict = joiner.add(entry, parts[0], crc_of("abcd"));
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(verdict->right);
}

TEST(CrcJoiner, EqualPlacesInTwoStreamsOfAFileAreTwoEntries) {
  const std::string first = some_bytes(100);
  const std::string second(100, 'x');
  CrcJoiner joiner;
  for (const auto& [stream, bytes] : {std::pair{std::uint64_t{0}, first}, std::pair{std::uint64_t{64}, second}}) {
    const CrcJoiner::Entry entry{.crc = {.begin = 0, .end = 100, .value = crc_of(bytes)}, .stream = stream};
    ASSERT_EQ(joiner.take(entry, {0, 50}).size(), 1u);
    EXPECT_FALSE(joiner.add(entry, {0, 50}, crc_of(bytes.substr(0, 50))));
  }
  CrcJoiner joined;
  joined.absorb(joiner.unfinished(), [](const CrcJoiner::Entry&, const CrcJoiner::Verdict&) { FAIL(); });
  EXPECT_EQ(joined.unread(), 2u);
  for (const auto& [stream, bytes] : {std::pair{std::uint64_t{0}, first}, std::pair{std::uint64_t{64}, second}}) {
    const CrcJoiner::Entry entry{.crc = {.begin = 0, .end = 100, .value = crc_of(bytes)}, .stream = stream};
    ASSERT_EQ(joined.take(entry, {50, 100}).size(), 1u);
    const auto verdict = joined.add(entry, {50, 100}, crc_of(bytes.substr(50)));
    ASSERT_TRUE(verdict);
    EXPECT_TRUE(verdict->right);
  }
}

TEST(Crc32, OfTwoPiecesIsThatOfBothTogether) {
  const std::string bytes = some_bytes(70000);
  const std::string_view all(bytes);
  for (const std::size_t cut : {0u, 1u, 7u, 4096u, 65536u, 69999u, 70000u}) {
    EXPECT_EQ(crc32_combine(crc_of(all.substr(0, cut)), crc_of(all.substr(cut)), all.size() - cut), crc_of(all)) << cut;
  }
}

}  // namespace
}  // namespace ckpt
