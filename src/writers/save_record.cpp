#include "writers/save_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "engine/comm/comm_text.hpp"
#include "format/text/json_writer.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kNumber = sizeof(std::uint64_t);
constexpr std::size_t kNumbersAFile = 5;
constexpr std::size_t kHeadNumbers = 6;

std::uint64_t nanoseconds(double seconds) {
  return static_cast<std::uint64_t>(std::llround(seconds * 1e9));
}

}  // namespace

std::string to_text(const RankRecord& record) {
  std::string text;
  append_number(text, record.files.size());
  append_number(text, record.leaves.size());
  append_number(text, nanoseconds(record.times.plan_s));
  append_number(text, nanoseconds(record.times.stage_s));
  append_number(text, nanoseconds(record.times.write_s));
  append_number(text, record.times.bytes);
  for (const universal::FileRecord& file : record.files) {
    append_number(text, static_cast<std::uint64_t>(file.key.file_class));
    append_number(text, file.key.writer);
    append_number(text, file.key.volume);
    append_number(text, file.bytes);
    append_number(text, file.data_begin);
  }
  for (const Hash128& leaf : record.leaves) {
    text.append(reinterpret_cast<const char*>(leaf.bytes.data()), leaf.bytes.size());
  }
  return text;
}

Result<RankRecord> record_from_text(std::string_view text) {
  const auto number = [&](std::size_t n) { return first_number(text.substr(n * kNumber)); };
  const auto strange = [] { return fail(Errc::internal, "another rank sent an unreadable description of its files"); };
  if (text.size() < kHeadNumbers * kNumber) return strange();
  const std::uint64_t files = number(0);
  const std::uint64_t leaves = number(1);
  const std::uint64_t rest = text.size() - kHeadNumbers * kNumber;
  if (files > rest / (kNumbersAFile * kNumber) || leaves > rest / sizeof(Hash128) ||
      files * kNumbersAFile * kNumber + leaves * sizeof(Hash128) != rest) {
    return strange();
  }
  RankRecord record;
  record.times = {.plan_s = static_cast<double>(number(2)) / 1e9,
                  .stage_s = static_cast<double>(number(3)) / 1e9,
                  .write_s = static_cast<double>(number(4)) / 1e9,
                  .bytes = number(5)};
  std::size_t at = kHeadNumbers;
  for (std::uint64_t i = 0; i < files; ++i, at += kNumbersAFile) {
    record.files.push_back({.key = {.file_class = static_cast<universal::FileClass>(number(at)),
                                    .writer = static_cast<std::uint32_t>(number(at + 1)),
                                    .volume = static_cast<std::uint32_t>(number(at + 2))},
                            .bytes = number(at + 3),
                            .data_begin = number(at + 4)});
  }
  record.leaves.resize(leaves);
  for (std::uint64_t i = 0; i < leaves; ++i) {
    std::memcpy(record.leaves[i].bytes.data(), text.data() + at * kNumber + i * sizeof(Hash128), sizeof(Hash128));
  }
  return record;
}

MergedRecords merge(const std::vector<RankRecord>& ranks) {
  struct Place {
    const RankRecord* rank;
    std::size_t file;
    std::uint64_t first_leaf;
  };
  std::vector<Place> places;
  for (const RankRecord& rank : ranks) {
    std::uint64_t leaf = 0;
    for (std::size_t i = 0; i < rank.files.size(); ++i) {
      places.push_back({&rank, i, leaf});
      leaf += universal::leaf_count(rank.files[i].bytes);
    }
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.rank->files[a.file].key < b.rank->files[b.file].key; });
  MergedRecords merged;
  for (const Place& place : places) {
    const universal::FileRecord& file = place.rank->files[place.file];
    merged.files.push_back(file);
    const auto begin = place.rank->leaves.begin() + static_cast<std::ptrdiff_t>(place.first_leaf);
    merged.leaves.insert(merged.leaves.end(), begin,
                         begin + static_cast<std::ptrdiff_t>(universal::leaf_count(file.bytes)));
  }
  return merged;
}

std::string statistics_text(const std::vector<RankRecord>& ranks) {
  std::size_t slowest = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].times.write_s > ranks[slowest].times.write_s) slowest = i;
  }
  std::string text;
  json::Writer out(text);
  out.begin_object().member("schema", "ckpt.save-statistics/1").member("slowest_rank", slowest);
  out.key("ranks").begin_array();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const SaveTimes& times = ranks[i].times;
    const auto put_seconds = [&](std::string_view key, double value) {
      out.key(key).raw(fmt::format("{:.6f}", value));
    };
    out.line().begin_object().member("rank", i).member("bytes", times.bytes);
    put_seconds("plan_s", times.plan_s);
    put_seconds("stage_s", times.stage_s);
    put_seconds("write_s", times.write_s);
    out.end_object();
  }
  out.end_array().end_object();
  return text + '\n';
}

}  // namespace ckpt
