#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/catalog/last_run.hpp"
#include "api/catalog/store_readers.hpp"
#include "catalog/bucket.hpp"
#include "catalog/checkpoint.hpp"
#include "catalog/filter.hpp"
#include "catalog/index/catalog.hpp"
#include "catalog/index/names.hpp"
#include "catalog/index/refresh.hpp"
#include "catalog/index/rows.hpp"
#include "catalog/index/run_summary.hpp"
#include "catalog/scan/entry.hpp"
#include "catalog/scan/marks.hpp"
#include "catalog/scan/scan.hpp"
#include "catalog/trash/trash.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// The catalog of a store, where other tools' checkpoints are found by detection. No file is created in a directory that
/// is no store, unless `trust` is `nothing`. A checkpoint whose manifest may take
/// more than `memory_bytes` to parse is listed as unreadable.
/// errors  as Catalog::open
Result<catalog::Catalog> open_catalog(Io& io, const std::string& store, catalog::Trust trust, catalog::Time now,
                                      std::uint64_t memory_bytes = UINT64_MAX);

/// For scans: the names that all formats supply, and the detection that `inspect` uses.
catalog::OtherTools other_tools();

/// Of directories that could not be listed, those that a run of these globs (none: any run) may be, or lie in.
std::vector<catalog::Unread> unread_among(std::span<const catalog::Unread> unread, std::span<const std::string> runs);
/// Of runs (globs; none: any) of which nothing is known: whether that is for want of looking.
/// errors  that of the directory
Result<> check_seen(std::span<const catalog::Unread> unread, std::span<const std::string> runs);
/// The same of those among them that are names, and not `known`.
Result<> check_seen(std::span<const catalog::Unread> unread, std::span<const std::string> runs,
                    std::span<const std::string> known);

/// ckpt list.
struct CatalogQuery {
  std::string store;
  std::string run{};  ///< a glob; "" = all
  std::string tag{};
  /// As listed_state says; "" = all. "complete": verified ones too; "damaged": incomplete and repairable ones too.
  std::string state{};
  std::optional<catalog::Filter> where{};
  std::optional<catalog::Time> since{};  ///< saved then or later, by the clock of the machine that saved
  std::optional<std::uint64_t> limit{};  ///< at most this many
  enum class Sort : std::uint8_t {
    newest,  ///< by run; in it the newest first
    oldest,
    size,  ///< the largest first
    time,  ///< newest first
  } sort = Sort::newest;
  bool rebuild = false;
  catalog::Time now{};
  std::uint64_t memory_bytes = UINT64_MAX;
};
struct CatalogListing {
  std::vector<catalog::Entry> entries{};
  catalog::ShortNames names{};  ///< of these entries, also where newer saves of their steps were not asked for
  std::uint64_t total = 0;      ///< checkpoints in the store, asked for or not
  bool indexed = true;          ///< false: the catalog could not be used, the disk was scanned
  bool saw_all = true;          ///< false: a directory could not be read, and what is in it is not among these
  std::vector<std::string> warnings{};
};
/// errors  not_found: `run` is no glob, and has no checkpoint; usage: `where` names a metric that no checkpoint has
Result<CatalogListing> list_catalog(Io& io, const CatalogQuery& query);

/// ckpt status.
struct StoreStatus {
  std::vector<catalog::RunSummary> runs{};      ///< their newest: RUN@latest
  std::map<std::string, std::string> newest{};  ///< its name in outputs, by run; "": none can be used
  std::uint64_t free_bytes = 0;
  catalog::Recycled recycled{};  ///< not free: waits for the next save
  catalog::InTrash trash{};      ///< not free either; of the run asked for
  std::string trash_unread{};    ///< why `trash` is unknown
  /// How the newest demoted checkpoint of each run lost its optimizer, if there is a record: they are kept for a year.
  std::vector<catalog::TrashEntry> demotions{};
  const catalog::TrashEntry* demotion_of(const std::string& run) const;
  StoreReaders readers{};  ///< of the whole store
  std::optional<LastRun> last_prune{};
  std::optional<LastRun> last_verify{};
  bool has_policy = false;  ///< there is a STORE/ckpt.toml
  /// The best checkpoint of a run, as RUN@best finds it: by its policy, else by its only metric.
  struct Best {
    std::string run{};
    std::string metric{};
    double value = 0;
    std::uint64_t step = 0;
    std::string name{};  ///< in outputs: catalog::ShortNames
  };
  std::vector<Best> bests{};
  const Best* best_of(const std::string& run) const;
  bool indexed = true;
  bool saw_all = true;  ///< false: a directory could not be read
  std::vector<std::string> warnings{};
};
/// errors  not_found: `run` (where not "") has no checkpoint, with the nearest name
Result<StoreStatus> store_status(Io& io, const std::string& store, const std::string& run, catalog::Time now,
                                 std::uint64_t memory_bytes = UINT64_MAX);

/// Finds a checkpoint by name, writes or removes marks, notifies the catalog. Returns the checkpoint afterwards.
struct MarkChange {
  catalog::Mark mark{};
  bool remove = false;  ///< the mark of this kind and name
};
struct MarksRequest {
  std::string store;
  std::string checkpoint;  ///< as find_checkpoint takes it
  std::vector<MarkChange> changes{};
  catalog::Time now{};
};

/// The same for one mark: ckpt pin, unpin.
struct MarkRequest {
  std::string store;
  std::string checkpoint;  ///< as find_checkpoint takes it
  catalog::Mark mark{};
  bool remove = false;
  catalog::Time now{};
};
struct MarkReport {
  catalog::Entry entry{};
  std::string label{};  ///< its name in outputs: catalog::ShortNames
  std::string path{};
  bool changed = true;  ///< false: there was no such mark to remove
  std::vector<std::string> warnings{};
};
Result<MarkReport> mark_checkpoint(Io& io, const MarkRequest& request);

/// ckpt mark. Each mark is written under the checkpoint's lease, durably, in the given order.
/// errors  not_found: the checkpoint; or a mark to remove, with the nearest name: then nothing is changed. usage: a
///         metric to remove that is part of the save. Those of write_mark: the marks before it are written
Result<MarkReport> change_marks(Io& io, const MarksRequest& request);
/// The same for a checkpoint that was found, of which `request.checkpoint` is the name in outputs.
Result<MarkReport> change_marks_of(Io& io, const MarksRequest& request, const catalog::Entry& entry);

}  // namespace ckpt
