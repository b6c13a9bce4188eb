#include "catalog/index/run_lineage.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "catalog/index/sqlite.hpp"
#include "catalog/index/trash_index.hpp"
#include "catalog/trash/trash.hpp"

namespace ckpt::catalog {

Result<Lineage> lineage_of_run(Database& database, const std::string& run, std::span<const SeriesBirth> births) {
  return asked(database.file(), [&]() -> Result<Lineage> {
    std::map<std::uint64_t, SeriesStart> starts;
    const auto add = [&](const SeriesStart& start) {  // where two disagree on its beginning, the later supersedes less
      SeriesStart& known = starts.try_emplace(start.series, SeriesStart{.series = start.series}).first->second;
      if (start.from) known.from = std::max(known.from.value_or(0), *start.from);
      if (!known.after) known.after = start.after;
    };
    SQLite::Statement begun(database.sqlite(),
                            "SELECT series, max(series_from), max(series_after) FROM checkpoints "
                            "WHERE run=?1 AND series_from IS NOT NULL GROUP BY series");
    Binder(begun).add(run);
    while (begun.executeStep()) {
      Columns row(begun);
      const std::uint64_t series = row.natural();
      const auto from = row.optional_natural();
      add({series, from, row.optional_natural()});
    }
    for (const SeriesBirth& birth : births) add({birth.series, birth.from, birth.after});
    std::vector<SeriesStart> all;
    for (const auto& [series, start] : starts) all.push_back(start);
    return lineage_of(std::move(all));
  });
}

Result<std::vector<SeriesBirth>> births_of_run(Io& io, Catalog& catalog, const std::string& run) {
  CKPT_TRY(auto out, indexed_births(io, catalog.store(), catalog.database(), run, catalog.now()));
  CKPT_TRY(const auto others, births_above(io, run_path(catalog.store(), run), catalog.store()));
  out.insert(out.end(), others.begin(), others.end());
  return out;
}

Lineages::Lineages(Io& io, Catalog& catalog, const std::string& run) : io_(io), catalog_(catalog) {
  if (auto found = indexed_births(io, catalog.store(), catalog.database(), run, catalog.now()))
    births_ = *std::move(found);
  else
    warnings_.push_back(found.error().message);
  std::ranges::sort(births_, {}, &SeriesBirth::run);
}

void Lineages::note(Entry& entry) {
  entry.checkpoint.superseded =
      lineage_of(entry.checkpoint.run).supersedes(entry.checkpoint.series, entry.checkpoint.step);
}

const Lineage& Lineages::lineage_of(const std::string& run) {
  const auto [known, is_new] = lineages_.try_emplace(run);
  if (!is_new) return known->second;
  const auto begin = std::ranges::lower_bound(births_, run, {}, &SeriesBirth::run);
  const auto end = std::ranges::upper_bound(births_, run, {}, &SeriesBirth::run);
  std::vector<SeriesBirth> of_run(begin, end);
  if (auto others = births_above(io_, run_path(catalog_.store(), run), catalog_.store()))
    of_run.insert(of_run.end(), others->begin(), others->end());
  else
    warnings_.push_back(others.error().message);
  if (auto lineage = lineage_of_run(catalog_.database(), run, of_run))
    known->second = *std::move(lineage);
  else
    warnings_.push_back(lineage.error().message);
  return known->second;
}

}  // namespace ckpt::catalog
