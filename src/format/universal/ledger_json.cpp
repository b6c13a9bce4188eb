#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "format/model/scalar_json.hpp"
#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"
#include "format/universal/ledger.hpp"

namespace ckpt::ledger {
namespace {

using universal::put_natural;
using universal::read_natural;

constexpr std::uint64_t kVersion = 1;
constexpr std::string_view kVersionKey = "data_ledger";

tl::unexpected<Error> bad_ledger(std::string_view member, std::string_view reason) {
  return fail(Errc::corrupt, fmt::format("data/ledger: {}: {}", member, reason));
}

/// Every member is one of these, and there once (json::parse refuses a second one).
template <std::size_t Count>
Result<> only_members(const json::Object& object, const std::array<std::string_view, Count>& known) {
  for (const auto& [key, value] : object) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      return bad_ledger(key.substr(0, 80), "unknown member");
  }
  return {};
}

Result<std::uint64_t> natural_of(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  if (value == nullptr) return bad_ledger(key, "missing");
  auto number = read_natural(*value);
  if (!number) return bad_ledger(key, number.error().message);
  return *number;
}

Result<const json::Array*> array_of(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  if (value == nullptr || value->array() == nullptr) return bad_ledger(key, "missing or not an array");
  return value->array();
}

Result<std::vector<Shard>> read_shards(const json::Value& document) {
  CKPT_TRY(const json::Array* array, array_of(document, "shards"));
  std::vector<Shard> out;
  out.reserve(array->size());
  for (const json::Value& value : *array) {
    const json::Array* pair = value.array();
    if (pair == nullptr || pair->size() != 2 || (*pair)[0].text() == nullptr) {
      return bad_ledger("shards", "holds something other than [name, samples]");
    }
    auto samples = read_natural((*pair)[1]);
    if (!samples) return bad_ledger("shards", samples.error().message);
    out.push_back({.name = *(*pair)[0].text(), .samples = *samples});
  }
  return out;
}

Result<Range> read_range(const json::Value& value) {
  const json::Array* numbers = value.array();
  if (numbers == nullptr || numbers->size() != 3)
    return bad_ledger("ranges", "holds something other than [shard, begin, end]");
  std::array<std::uint64_t, 3> read{};
  for (std::size_t i = 0; i < read.size(); ++i) {
    auto number = read_natural((*numbers)[i]);
    if (!number) return bad_ledger("ranges", number.error().message);
    read[i] = *number;
  }
  return Range{.shard = read[0], .begin = read[1], .end = read[2]};
}

Result<std::vector<RankShare>> read_ranks(const json::Value& document) {
  CKPT_TRY(const json::Array* array, array_of(document, "ranks"));
  std::vector<RankShare> out;
  out.reserve(array->size());
  for (const json::Value& value : *array) {
    if (value.object() == nullptr) return bad_ledger("ranks", "holds something other than objects");
    CKPT_CHECK(only_members(*value.object(), std::array<std::string_view, 2>{"consumed", "ranges"}));
    RankShare& share = out.emplace_back();
    CKPT_TRY(share.consumed, natural_of(value, "consumed"));
    CKPT_TRY(const json::Array* ranges, array_of(value, "ranges"));
    share.ranges.reserve(ranges->size());
    for (const json::Value& each : *ranges) {
      CKPT_TRY(const Range range, read_range(each));
      share.ranges.push_back(range);
    }
  }
  return out;
}

}  // namespace

Result<Ledger> parse(std::string_view text) {
  CKPT_TRY(const json::Value document, json::parse(text, {.max_bytes = kMaxLedgerBytes, .max_depth = 8}));
  if (document.object() == nullptr) return bad_ledger("document", "not an object");
  CKPT_TRY(const std::uint64_t version, natural_of(document, kVersionKey));
  if (version > kVersion) {
    return fail(Errc::newer, fmt::format("data/ledger: version {}; this build reads {}", version, kVersion));
  }
  if (version != kVersion) return bad_ledger(kVersionKey, "no such version");
  CKPT_CHECK(only_members(*document.object(),
                          std::array<std::string_view, 10>{kVersionKey, "epoch", "seed", "samples", "consumed",
                                                           "global_batch", "world", "order", "shards", "ranks"}));
  Ledger out;
  CKPT_TRY(out.epoch, natural_of(document, "epoch"));
  CKPT_TRY(out.seed, natural_of(document, "seed"));
  CKPT_TRY(out.samples, natural_of(document, "samples"));
  CKPT_TRY(out.consumed, natural_of(document, "consumed"));
  CKPT_TRY(out.global_batch, natural_of(document, "global_batch"));
  CKPT_TRY(out.world, natural_of(document, "world"));
  const json::Value* order = document.find("order");
  const std::string word = order == nullptr || order->text() == nullptr ? "" : *order->text();
  if (word == "sharded") {
    out.order = Order::sharded;
    CKPT_TRY(out.shards, read_shards(document));
    CKPT_TRY(out.ranks, read_ranks(document));
  } else if (word != "global") {
    return bad_ledger("order", "neither \"global\" nor \"sharded\"");
  } else if (document.find("shards") != nullptr || document.find("ranks") != nullptr) {
    return bad_ledger("shards", "not of a global order");
  }
  CKPT_CHECK(check(out));
  return out;
}

std::string build(const Ledger& ledger) {
  std::string text;
  json::Writer out(text, {.spaced = true});
  out.begin_object().member(kVersionKey, kVersion);
  const auto member = [&](std::string_view key, std::uint64_t value) { put_natural(out.line("\n ").key(key), value); };
  member("epoch", ledger.epoch);
  member("seed", ledger.seed);
  member("samples", ledger.samples);
  member("consumed", ledger.consumed);
  member("global_batch", ledger.global_batch);
  member("world", ledger.world);
  out.line("\n ").member("order", ledger.order == Order::global ? "global" : "sharded");
  if (ledger.order == Order::sharded) {
    out.line("\n ").key("shards").begin_array();
    for (const Shard& shard : ledger.shards) {
      out.line("\n  ").begin_array().value(shard.name);
      put_natural(out, shard.samples);
      out.end_array();
    }
    out.end_array().line("\n ").key("ranks").begin_array();
    for (const RankShare& share : ledger.ranks) {
      put_natural(out.line("\n  ").begin_object().key("consumed"), share.consumed);
      out.key("ranges").begin_array();
      for (const Range& range : share.ranges) {
        out.begin_array();
        for (const std::uint64_t number : {range.shard, range.begin, range.end}) put_natural(out, number);
        out.end_array();
      }
      out.end_array().end_object();
    }
    out.end_array();
  }
  out.end_object();
  return text + '\n';
}

}  // namespace ckpt::ledger
