#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "catalog/index/catalog.hpp"
#include "catalog/index/database.hpp"
#include "catalog/retain.hpp"
#include "catalog/scan/entry.hpp"
#include "catalog/superseded.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt::catalog {

/// Which checkpoints of a run are superseded, by those that the catalog holds and by the series in `births`, of which
/// none may be left.
/// errors  those of `asked`
Result<Lineage> lineage_of_run(Database& database, const std::string& run, std::span<const SeriesBirth> births);

/// How series of a run began that something was deleted of: by the index of this store, and the trash of others that the
/// run is in.
/// errors  io
Result<std::vector<SeriesBirth>> births_of_run(Io& io, Catalog& catalog, const std::string& run);

/// The lineages of runs, each found when it is first needed. For display: what the trash says is taken from the index.
class Lineages {
 public:
  /// `run`: the only one that will be asked about; "" = any.
  Lineages(Io& io, Catalog& catalog, const std::string& run);

  /// Sets Checkpoint::superseded.
  void note(Entry& entry);
  /// What could not be read: its series are not taken into account.
  std::vector<std::string>& warnings() { return warnings_; }

 private:
  const Lineage& lineage_of(const std::string& run);

  Io& io_;
  Catalog& catalog_;
  std::vector<SeriesBirth> births_{};  ///< by run
  std::map<std::string, Lineage> lineages_{};
  std::vector<std::string> warnings_{};
};

}  // namespace ckpt::catalog
