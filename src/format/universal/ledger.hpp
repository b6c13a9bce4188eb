#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/box.hpp"
#include "format/result.hpp"

/// The blob `data/ledger`: which samples of an epoch were consumed, and how another number of ranks continues.
/// Specified in LEDGER.md.
namespace ckpt::ledger {

constexpr std::string_view kLedgerBlob = "data/ledger";
constexpr std::uint64_t kMaxLedgerBytes = 64u << 20;
constexpr std::uint64_t kMaxWorld = 1u << 20;

/// How an epoch's samples reach the ranks.
enum class Order : std::uint8_t {
  /// One order of all samples, positions 0 .. samples, from the loader's own permutation. Every global batch takes the
  /// next `global_batch` positions and is cut into one contiguous piece per rank.
  global,
  /// Every rank has its own list: ranges of shards, read one after the other.
  sharded,
};

struct Shard {
  std::string name;
  std::uint64_t samples = 0;
  bool operator==(const Shard&) const = default;
};

/// Samples [begin, end) of a shard; without shards of the global order, with `shard` 0.
struct Range {
  std::uint64_t shard = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// The samples that one rank reads since the last remap, and how many of them are done.
struct RankShare {
  std::vector<Range> ranges{};
  std::uint64_t consumed = 0;
  bool operator==(const RankShare&) const = default;
};

struct Ledger {
  std::uint64_t epoch = 0;
  std::uint64_t seed = 0;          ///< of the loader's permutation
  std::uint64_t samples = 0;       ///< of the epoch
  std::uint64_t consumed = 0;      ///< of this epoch, by all ranks together
  std::uint64_t global_batch = 0;  ///< samples of one step on all ranks; at least `world`
  std::uint64_t world = 0;         ///< data-parallel ranks that divide a batch
  Order order = Order::global;
  std::vector<Shard> shards{};     ///< sharded: of the whole epoch
  std::vector<RankShare> ranks{};  ///< sharded: one per rank
  bool operator==(const Ledger&) const = default;
};

/// Checks the invariants of a ledger: numbers within their bounds; sharded: ranges inside their shards, no sample in
/// two ranges, and every sample consumed or in a range.
/// errors   corrupt: the message names the member
Result<> check(const Ledger& ledger);

/// errors   corrupt: not JSON, not this document, a member that is missing, unknown or of the wrong kind, or `check`;
///          newer: a version that this build does not know
Result<Ledger> parse(std::string_view text);
/// `ledger` must pass `check`; equal ledgers give equal text.
std::string build(const Ledger& ledger);

/// A ledger at the start of an epoch. Sharded: the shards in their
/// order are cut into one run per rank, which differ by at most one
/// sample.
/// errors  usage: no rank, a batch below the number of ranks, samples that overflow, a shard's name that is not UTF-8
Result<Ledger> begin_global(std::uint64_t epoch, std::uint64_t seed, std::uint64_t samples, std::uint64_t global_batch,
                            std::uint64_t world);
Result<Ledger> begin_sharded(std::uint64_t epoch, std::uint64_t seed, std::vector<Shard> shards,
                             std::uint64_t global_batch, std::uint64_t world);

/// Steps until every remaining sample is consumed; the last one may be short.
std::uint64_t steps_left(const Ledger& ledger);
/// The samples that a rank consumes `step` steps after the ledger's position, in order; empty past the end.
std::vector<Range> share_of(const Ledger& ledger, std::uint64_t rank, std::uint64_t step);
/// The ledger after some steps.
Ledger advance(Ledger ledger, std::uint64_t steps);

/// The same position for another number of ranks: every remaining sample is in exactly one share, and equal ledgers
/// give equal results. `global_batch` stays.
/// errors  usage: no rank, or more ranks than `global_batch`
Result<Ledger> remap(const Ledger& ledger, std::uint64_t world);

}  // namespace ckpt::ledger
