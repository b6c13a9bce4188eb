#include "catalog/superseded.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

namespace ckpt::catalog {
namespace {

struct Birth {
  std::optional<std::uint64_t> from{};
  std::optional<std::uint64_t> after{};
  std::optional<Time> began{};
  bool known = false;  ///< known from the catalog, rather than computed from the rest of the series
};

using Births = std::map<std::uint64_t, Birth>;  // by series

/// Where checkpoints of one series disagree on its beginning, the later step supersedes less.
void begin_from(Birth& birth, const std::optional<std::uint64_t>& from) {
  if (from) birth.from = std::max(birth.from.value_or(0), *from);
}

Lineage lineage_of_births(const Births& births) {
  std::vector<SeriesStart> starts;
  for (const auto& [series, birth] : births) starts.push_back({series, birth.from, birth.after});
  return lineage_of(std::move(starts));
}

}  // namespace

Lineage lineage_of(std::vector<SeriesStart> starts) {
  std::ranges::sort(starts, std::ranges::greater(), &SeriesStart::series);
  Lineage out;
  for (const SeriesStart& one : starts) {
    if (out.left_by(one.series)) continue;
    out.standing.push_back(one);
    if (one.after && one.from && *one.after < one.series) out.returns.push_back(one);
  }
  return out;
}

std::optional<std::uint64_t> Lineage::left_by(std::uint64_t series) const {
  // What they leave behind are ranges that do not overlap, greatest first.
  const auto end = std::ranges::partition_point(returns, [&](const SeriesStart& one) { return one.series > series; });
  if (end == returns.begin() || *(end - 1)->after >= series) return std::nullopt;
  return (end - 1)->series;
}

bool Lineage::supersedes(std::uint64_t series, std::uint64_t step) const {
  return left_by(series) || std::ranges::any_of(standing, [&](const SeriesStart& start) {
           return start.series > series && start.from && *start.from < step;
         });
}

std::vector<std::optional<Time>> superseded_since(std::span<const Checkpoint> checkpoints,
                                                  std::span<const SeriesBirth> births) {
  struct Run {
    Births births{};
    std::vector<std::size_t> members{};
  };
  std::map<std::string_view, Run> runs;
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    const Checkpoint& one = checkpoints[i];
    Run& run = runs[one.run];
    run.members.push_back(i);
    Birth& birth = run.births[one.series];
    begin_from(birth, one.series_from);
    if (!birth.after) birth.after = one.series_after;
    // Imports were saved long before; their grace begins with the commit.
    const Time began = std::max(one.created, one.committed);
    birth.began = std::min(birth.began.value_or(began), began);
  }
  for (const SeriesBirth& born : births) {
    const auto run = runs.find(born.run);
    if (run == runs.end()) continue;
    Birth& birth = run->second.births[born.series];
    begin_from(birth, born.from);
    if (!birth.after) birth.after = born.after;
    birth.began = birth.known ? std::min(*birth.began, born.began) : born.began;
    birth.known = true;
  }

  std::vector<std::optional<Time>> out(checkpoints.size());
  for (auto& [name, run] : runs) {
    std::stable_sort(run.members.begin(), run.members.end(),
                     [&](std::size_t a, std::size_t b) { return checkpoints[a].series > checkpoints[b].series; });
    // Later series that could be the first to supersede a step, the earliest of them last: a series with a lower start
    // and a lower number hides others, so the starts ascend towards the end.
    const Lineage lineage = lineage_of_births(run.births);
    std::vector<const Birth*> later;
    auto birth = run.births.rbegin();
    for (const std::size_t i : run.members) {
      if (const auto left_by = lineage.left_by(checkpoints[i].series)) {
        out[i] = run.births.at(*left_by).began;
        continue;
      }
      for (; birth != run.births.rend() && birth->first > checkpoints[i].series; ++birth) {
        if (!birth->second.from || lineage.left_by(birth->first)) continue;
        while (!later.empty() && *later.back()->from >= *birth->second.from) later.pop_back();
        later.push_back(&birth->second);
      }
      const std::uint64_t step = checkpoints[i].step;
      const auto end =
          std::partition_point(later.begin(), later.end(), [&](const Birth* b) { return *b->from < step; });
      if (end != later.begin()) out[i] = (*(end - 1))->began;
    }
  }
  return out;
}

}  // namespace ckpt::catalog
