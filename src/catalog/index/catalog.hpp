#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "catalog/index/database.hpp"
#include "catalog/index/refresh.hpp"
#include "catalog/index/rows.hpp"
#include "catalog/scan/scan.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt::catalog {

/// The checkpoints of a store: STORE/.ckpt/catalog.sqlite, refreshed on opening. If that file is unusable (lost,
/// corrupt, locked, read-only, made by a later release) the disk is scanned into a database in memory; a warning says
/// so, and every answer is the same. One thread; `io` is used while opening only.
class Catalog {
 public:
  struct Options {
    OtherTools tools{};
    Trust trust = Trust::notes;
    std::chrono::milliseconds patience{2000};  ///< for other processes that write the catalog
    Time now{};
    /// False: no file is created in a directory that is no store: one without .ckpt/, a policy file or a checkpoint of
    /// ours. It is scanned each time.
    bool makes_store = true;
    std::uint64_t manifest_bytes = kMostManifestBytes;  ///< larger manifests are unreadable now, and read the next time
  };
  /// errors   not_found: the store does not exist; io: its directory cannot be listed
  static Result<Catalog> open(Io& io, const std::string& store, const Options& options);

  const std::string& store() const { return store_; }
  /// Options::now
  Time now() const { return now_; }
  /// Of all queries: rows.hpp.
  Database& database() { return database_; }
  /// False: a scan of the disk, in memory.
  bool is_indexed() const { return indexed_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// What opening did.
  const Refreshed& refreshed() const { return refreshed_; }

 private:
  Catalog(std::string store, Database database, Time now)
      : store_(std::move(store)), database_(std::move(database)), now_(now) {}
  static Result<Catalog> open_scanned(Io& io, const std::string& store, const Options& options);
  static Result<Catalog> open_indexed(Io& io, const std::string& store, const Options& options);

  std::string store_;
  Database database_;
  Time now_;
  bool indexed_ = true;
  std::vector<std::string> warnings_{};
  Refreshed refreshed_{};
};

/// STORE/.ckpt/catalog.sqlite
std::string catalog_file(const std::string& store);

}  // namespace ckpt::catalog
