#include "format/universal/ledger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "format/checked.hpp"
#include "format/model/value.hpp"
#include "format/text/utf8.hpp"

namespace ckpt::ledger {
namespace {

tl::unexpected<Error> bad(std::string_view member, std::string_view reason) {
  return fail(Errc::corrupt, fmt::format("data/ledger: {}: {}", member, reason));
}

/// The part of `total` that falls to one of `parts`: contiguous, sizes differ by at most one, the larger ones first.
Extent even_part(std::uint64_t total, std::uint64_t parts, std::uint64_t index) {
  const std::uint64_t size = total / parts;
  const std::uint64_t larger = total % parts;
  const std::uint64_t begin = index * size + std::min(index, larger);
  return {begin, begin + size + (index < larger ? 1 : 0)};
}

std::uint64_t size_of(const std::vector<Range>& ranges) {
  std::uint64_t total = 0;
  for (const Range& range : ranges) total += range.size();
  return total;
}

/// Samples [wanted.begin, wanted.end) of the concatenation of ranges.
std::vector<Range> cut(const std::vector<Range>& ranges, Extent wanted) {
  std::vector<Range> out;
  std::uint64_t at = 0;
  for (const Range& range : ranges) {
    const std::uint64_t begin = std::max(wanted.begin, at);
    const std::uint64_t end = std::min(wanted.end, at + range.size());
    if (begin < end) out.push_back({range.shard, range.begin + (begin - at), range.begin + (end - at)});
    at += range.size();
    if (at >= wanted.end) break;
  }
  return out;
}

/// Divides ranges among ranks, in order, into runs that differ by at most one sample.
std::vector<RankShare> divide(const std::vector<Range>& ranges, std::uint64_t world) {
  std::vector<RankShare> out(static_cast<std::size_t>(world));
  const std::uint64_t total = size_of(ranges);
  std::size_t next = 0;
  std::uint64_t used = 0;  // of ranges[next]
  for (std::uint64_t rank = 0; rank < world; ++rank) {
    std::uint64_t wanted = even_part(total, world, rank).size();
    while (wanted > 0) {
      const Range& range = ranges[next];
      const std::uint64_t taken = std::min(wanted, range.size() - used);
      if (taken > 0) {
        out[static_cast<std::size_t>(rank)].ranges.push_back(
            {range.shard, range.begin + used, range.begin + used + taken});
      }
      used += taken;
      wanted -= taken;
      if (used == range.size()) {
        ++next;
        used = 0;
      }
    }
  }
  return out;
}

/// Samples that no rank has consumed, sorted, adjacent ranges joined.
std::vector<Range> remaining(const Ledger& ledger) {
  std::vector<Range> all;
  for (const RankShare& share : ledger.ranks) {
    for (const Range& range : cut(share.ranges, {share.consumed, size_of(share.ranges)})) all.push_back(range);
  }
  std::sort(all.begin(), all.end(),
            [](const Range& a, const Range& b) { return std::pair(a.shard, a.begin) < std::pair(b.shard, b.begin); });
  std::vector<Range> joined;
  for (const Range& range : all) {
    if (!joined.empty() && joined.back().shard == range.shard && joined.back().end == range.begin) {
      joined.back().end = range.end;
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

Result<> check_world(std::uint64_t world, std::uint64_t global_batch) {
  if (world == 0) return fail(Errc::usage, "data/ledger: no ranks");
  if (global_batch < world) {
    return fail(Errc::usage,
                fmt::format("data/ledger: a global batch of {} gives some of {} ranks no sample", global_batch, world));
  }
  if (world > kMaxWorld) return fail(Errc::usage, fmt::format("data/ledger: {} ranks are too many", world));
  return {};
}

Result<> check_shares(const Ledger& ledger) {
  if (ledger.ranks.size() != ledger.world) return bad("ranks", "not as many as `world`");
  std::uint64_t total = 0;
  for (const Shard& shard : ledger.shards) {
    if (!is_utf8(shard.name)) return bad("shards", "a name that is not UTF-8");
    auto sum = checked_add(total, shard.samples);
    if (!sum) return bad("shards", "samples overflow 64 bits");
    total = *sum;
  }
  if (total != ledger.samples) return bad("samples", "not the sum of the shards' samples");

  std::vector<Range> ranges;
  std::uint64_t consumed_now = 0;
  for (const RankShare& share : ledger.ranks) {
    std::uint64_t size = 0;
    for (const Range& range : share.ranges) {
      if (range.shard >= ledger.shards.size()) return bad("ranks", "a range of a shard that does not exist");
      if (range.begin >= range.end || range.end > ledger.shards[static_cast<std::size_t>(range.shard)].samples) {
        return bad("ranks", "a range that is empty or passes the end of its shard");
      }
      // A sum of ranges can overflow only if they overlap; below the epoch's size it cannot.
      if (range.size() > ledger.samples - size) return bad("ranks", "more samples than the epoch has");
      size += range.size();
      ranges.push_back(range);
    }
    if (share.consumed > size) return bad("ranks", "more consumed than a rank's ranges hold");
    if (share.consumed > ledger.samples - consumed_now) return bad("ranks", "more consumed than the epoch has");
    consumed_now += share.consumed;
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return std::pair(a.shard, a.begin) < std::pair(b.shard, b.begin); });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].shard == ranges[i - 1].shard && ranges[i].begin < ranges[i - 1].end) {
      return bad("ranks", "a sample is in two ranges");
    }
  }
  // The ranges are disjoint, so sizes add up within the epoch. Samples in no range were consumed before the last remap.
  const std::uint64_t before = ledger.samples - size_of(ranges);
  if (ledger.consumed != before + consumed_now) {
    return bad("consumed", fmt::format("{}, but the ranks' ranges leave {}", ledger.consumed, before + consumed_now));
  }
  return {};
}

}  // namespace

Result<> check(const Ledger& ledger) {
  if (auto world = check_world(ledger.world, ledger.global_batch); !world) {
    return fail(Errc::corrupt, world.error().message);
  }
  if (ledger.consumed > ledger.samples) return bad("consumed", "more than the epoch's samples");
  if (ledger.order == Order::sharded) return check_shares(ledger);
  if (!ledger.shards.empty() || !ledger.ranks.empty()) return bad("shards", "not of a global order");
  return {};
}

Result<Ledger> begin_global(std::uint64_t epoch, std::uint64_t seed, std::uint64_t samples, std::uint64_t global_batch,
                            std::uint64_t world) {
  CKPT_CHECK(check_world(world, global_batch));
  return Ledger{.epoch = epoch, .seed = seed, .samples = samples, .global_batch = global_batch, .world = world};
}

Result<Ledger> begin_sharded(std::uint64_t epoch, std::uint64_t seed, std::vector<Shard> shards,
                             std::uint64_t global_batch, std::uint64_t world) {
  CKPT_CHECK(check_world(world, global_batch));
  Ledger out{.epoch = epoch,
             .seed = seed,
             .global_batch = global_batch,
             .world = world,
             .order = Order::sharded,
             .shards = std::move(shards)};
  std::vector<Range> all;
  for (std::size_t i = 0; i < out.shards.size(); ++i) {
    if (!is_utf8(out.shards[i].name)) return fail(Errc::usage, "data/ledger: a shard's name that is not UTF-8");
    auto total = checked_add(out.samples, out.shards[i].samples);
    if (!total) return fail(Errc::usage, "data/ledger: samples overflow 64 bits");
    out.samples = *total;
    if (out.shards[i].samples > 0) all.push_back({i, 0, out.shards[i].samples});
  }
  out.ranks = divide(all, world);
  return out;
}

std::uint64_t steps_left(const Ledger& ledger) {
  const auto steps = [](std::uint64_t samples, std::uint64_t a_step) {
    return samples / a_step + (samples % a_step != 0 ? 1 : 0);
  };
  if (ledger.order == Order::global) return steps(ledger.samples - ledger.consumed, ledger.global_batch);
  std::uint64_t most = 0;
  for (std::uint64_t rank = 0; rank < ledger.world; ++rank) {
    const RankShare& share = ledger.ranks[static_cast<std::size_t>(rank)];
    const std::uint64_t a_step = even_part(ledger.global_batch, ledger.world, rank).size();
    most = std::max(most, steps(size_of(share.ranges) - share.consumed, a_step));
  }
  return most;
}

std::vector<Range> share_of(const Ledger& ledger, std::uint64_t rank, std::uint64_t step) {
  if (rank >= ledger.world || step >= steps_left(ledger)) return {};
  // Below steps_left the products stay below the number of samples, plus one batch.
  const Extent of_batch = even_part(ledger.global_batch, ledger.world, rank);
  if (ledger.order == Order::global) {
    const std::uint64_t first = ledger.consumed + step * ledger.global_batch;
    const std::uint64_t left = ledger.samples - first;
    const std::uint64_t begin = first + std::min(left, of_batch.begin);
    const std::uint64_t end = first + std::min(left, of_batch.end);
    return begin < end ? std::vector<Range>{{0, begin, end}} : std::vector<Range>{};
  }
  const RankShare& share = ledger.ranks[static_cast<std::size_t>(rank)];
  const std::uint64_t left = size_of(share.ranges) - share.consumed;
  const std::uint64_t a_step = of_batch.size();
  if (step > left / a_step) return {};
  const std::uint64_t begin = step * a_step;
  const std::uint64_t end = begin + std::min(a_step, left - begin);
  return cut(share.ranges, {share.consumed + begin, share.consumed + end});
}

Ledger advance(Ledger ledger, std::uint64_t steps) {
  if (ledger.order == Order::global) {
    const std::uint64_t left = ledger.samples - ledger.consumed;
    ledger.consumed += steps > left / ledger.global_batch ? left : steps * ledger.global_batch;
    return ledger;
  }
  for (std::uint64_t rank = 0; rank < ledger.world; ++rank) {
    RankShare& share = ledger.ranks[static_cast<std::size_t>(rank)];
    const std::uint64_t left = size_of(share.ranges) - share.consumed;
    const std::uint64_t a_step = even_part(ledger.global_batch, ledger.world, rank).size();
    const std::uint64_t taken = steps > left / a_step ? left : steps * a_step;
    share.consumed += taken;
    ledger.consumed += taken;
  }
  return ledger;
}

Result<Ledger> remap(const Ledger& ledger, std::uint64_t world) {
  CKPT_CHECK(check_world(world, ledger.global_batch));
  Ledger out = ledger;
  if (world == ledger.world) return out;
  out.world = world;
  if (ledger.order == Order::sharded) out.ranks = divide(remaining(ledger), world);
  return out;
}

}  // namespace ckpt::ledger
