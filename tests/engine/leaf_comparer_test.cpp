#include "engine/run/leaf_comparer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/run/plan.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kRoom = std::uint64_t{64} << 20;

/// Two files of several leaves, the last of each not whole, and the hashes that a format stores of them.
struct Hashed {
  Hashed() {
    std::mt19937_64 random(11);
    for (const std::uint64_t bytes : {2 * kLeafBytes + 700, kLeafBytes + 1}) {
      std::string& file = files.emplace_back(bytes, '\0');
      for (std::size_t at = 0; at + 8 <= file.size(); at += 64) file[at] = static_cast<char>(random() & 0xff);
      map.files.push_back({.path = std::to_string(files.size()), .bytes = bytes});
      const std::uint64_t first = map.hashes.leaves.size();
      for (std::uint64_t begin = 0; begin < bytes; begin += kLeafBytes)
        map.hashes.leaves.push_back(hash128(std::string_view(file).substr(begin, kLeafBytes)));
      map.hashes.files.push_back({first, map.hashes.leaves.size()});
    }
  }
  void read(LeafComparer& comparer, std::uint32_t file, std::uint64_t begin, std::uint64_t end) const {
    comparer.take(file, {begin, end}, reinterpret_cast<const std::byte*>(files[file].data()) + begin);
  }

  Map map{};
  std::vector<std::string> files{};
};

std::size_t count(const std::vector<bool>& leaves) {
  return static_cast<std::size_t>(std::count(leaves.begin(), leaves.end(), true));
}

/// Pieces of all files, cut anywhere, in any order, neighbours overlapping as aligned reads do.
struct Piece {
  std::uint32_t file = 0;
  Extent bytes{};
};
std::vector<Piece> cut(const Hashed& hashed, std::mt19937_64& random) {
  std::vector<Piece> out;
  for (std::uint32_t file = 0; file < hashed.files.size(); ++file) {
    const std::uint64_t size = hashed.files[file].size();
    for (std::uint64_t at = 0; at < size;) {
      const std::uint64_t end = std::min(size, at + 1 + random() % (kLeafBytes + kLeafBytes / 2));
      out.push_back({file, {at - std::min<std::uint64_t>(at, random() % 4096), end}});
      at = end;
    }
  }
  std::shuffle(out.begin(), out.end(), random);
  return out;
}

TEST(LeafComparer, ComparesEveryLeafWhateverThePiecesAndTheirOrder) {
  const Hashed hashed;
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 12; ++trial) {
    LeafComparer comparer(hashed.map, kRoom);
    for (const Piece& piece : cut(hashed, random))
      hashed.read(comparer, piece.file, piece.bytes.begin, piece.bytes.end);
    EXPECT_EQ(count(comparer.compared()), hashed.map.hashes.leaves.size()) << trial;
    EXPECT_FALSE(comparer.wrong());
  }
}

TEST(LeafComparer, FindsAChangedByteInTheLeafThatHasIt) {
  std::mt19937_64 random(6);
  for (int trial = 0; trial < 12; ++trial) {
    Hashed hashed;
    const auto file = static_cast<std::uint32_t>(random() % 2);
    const std::uint64_t at = random() % hashed.files[file].size();
    hashed.files[file][at] = static_cast<char>(hashed.files[file][at] ^ 1);
    LeafComparer comparer(hashed.map, kRoom);
    for (const Piece& piece : cut(hashed, random))
      hashed.read(comparer, piece.file, piece.bytes.begin, piece.bytes.end);
    const auto wrong = comparer.wrong();
    ASSERT_TRUE(wrong) << trial;
    EXPECT_EQ(wrong->file, file);
    EXPECT_EQ(wrong->leaf, at / kLeafBytes);
    EXPECT_EQ(count(comparer.compared()), hashed.map.hashes.leaves.size() - 1);
    EXPECT_EQ(as_error(*wrong, hashed.map, "root").code, Errc::checksum);
  }
}

TEST(LeafComparer, WhatIsReadInPartStaysOpen) {
  const Hashed hashed;
  LeafComparer comparer(hashed.map, kRoom);
  hashed.read(comparer, 0, 1, kLeafBytes + 10);               // without its first byte
  hashed.read(comparer, 0, kLeafBytes + 11, 2 * kLeafBytes);  // without one in the middle
  EXPECT_EQ(count(comparer.compared()), 0u);
  hashed.read(comparer, 0, kLeafBytes + 9, kLeafBytes + 12);
  EXPECT_EQ(comparer.compared(), (std::vector<bool>{false, true, false, false, false}));
  EXPECT_FALSE(comparer.wrong());
}

TEST(LeafComparer, WithoutRoomPiecesInOrderAreComparedAndOthersGivenUp) {
  const Hashed hashed;
  LeafComparer comparer(hashed.map, 0);
  hashed.read(comparer, 0, 100, kLeafBytes);
  hashed.read(comparer, 0, 0, 100);
  hashed.read(comparer, 1, 0, 100);
  hashed.read(comparer, 1, 100, kLeafBytes);
  EXPECT_EQ(comparer.compared(), (std::vector<bool>{false, false, false, true, false}));
  // A piece that waits in vain gives way to those that come later.
  LeafComparer small(hashed.map, kLeafBytes);
  hashed.read(small, 0, 100, kLeafBytes);
  hashed.read(small, 1, 100, kLeafBytes);
  hashed.read(small, 1, 0, 100);
  hashed.read(small, 0, 0, 100);
  EXPECT_EQ(small.compared(), (std::vector<bool>{false, false, false, true, false}));
  EXPECT_FALSE(small.wrong());
}

TEST(LeafComparer, LeavesThatAreNeverReadToTheirEndDoNotKeepLaterOnesFromBeingCompared) {
  Hashed hashed;
  constexpr std::uint64_t kMany = 10'000;
  const std::uint64_t first = hashed.map.hashes.leaves.size();
  hashed.map.files.push_back({.path = "of headers", .bytes = kMany * kLeafBytes});
  hashed.map.hashes.leaves.resize(first + kMany);
  hashed.map.hashes.files.push_back({first, first + kMany});
  constexpr std::uint64_t kPiece = 100;
  const std::vector<std::byte> bytes(kPiece);
  for (const std::uint64_t at : {std::uint64_t{0}, kPiece}) {  // hashed at once, or kept until there is no room
    LeafComparer comparer(hashed.map, kLeafBytes);
    for (std::uint64_t leaf = 0; leaf < kMany; ++leaf) {
      const std::uint64_t begin = leaf * kLeafBytes + at;
      comparer.take(2, {begin, begin + kPiece}, bytes.data());
    }
    hashed.read(comparer, 0, 0, kPiece);
    hashed.read(comparer, 0, kPiece, kLeafBytes);
    hashed.read(comparer, 1, kPiece, kLeafBytes);
    hashed.read(comparer, 1, 0, kPiece);
    EXPECT_EQ(count(comparer.compared()), 2u) << at;
    EXPECT_FALSE(comparer.wrong());
  }
}

TEST(LeafComparer, ThreadsMayReadPiecesOfOneLeafAtATime) {
  const Hashed hashed;
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 6; ++trial) {
    LeafComparer comparer(hashed.map, kRoom);
    const std::vector<Piece> pieces = cut(hashed, random);
    std::vector<std::jthread> threads;
    for (std::size_t first = 0; first < 3; ++first) {
      threads.emplace_back([&, first] {
        for (std::size_t i = first; i < pieces.size(); i += 3)
          hashed.read(comparer, pieces[i].file, pieces[i].bytes.begin, pieces[i].bytes.end);
      });
    }
    threads.clear();
    EXPECT_EQ(count(comparer.compared()), hashed.map.hashes.leaves.size()) << trial;
  }
}

}  // namespace
}  // namespace ckpt
