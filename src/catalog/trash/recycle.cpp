// Data files of deleted checkpoints go to recycle/, as many sets as a policy allows. Steps: trash.hpp; their use by a
// save: engine/store/recycle.hpp.
#include "catalog/trash/recycle.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "engine/publish/publish.hpp"
#include "engine/store/run_directory.hpp"
#include "format/hash.hpp"

namespace ckpt::catalog {

bool can_recycle(const TrashEntry& entry) {
  return entry.recorded && !entry.record.id.empty() && CheckpointName::parse(entry.name).has_value();
}

RecycledSet set_of(const TrashEntry& entry) {
  const auto ms_of = [](Time time) {
    const auto ms = time.time_since_epoch().count();
    return ms < 0 ? 0 : static_cast<std::uint64_t>(ms);
  };
  // One prune deletes many at the same moment. Milliseconds until the year 2527, then the name's share.
  constexpr int kNameBits = 20;
  const std::uint64_t saved_ms = std::min(ms_of(entry.record.created), UINT64_MAX >> kNameBits);
  const std::uint64_t name = hash64(join_path(entry.run, entry.kept_as)) >> (64 - kNameBits);
  return {.retired_ms = ms_of(entry.record.deleted), .order = saved_ms << kNameBits | name};
}

Result<Recycled> measure_recycled(Io& io, const std::string& store) {
  CKPT_TRY(const auto files, list_recycled(io, recycle_path(store)));
  Recycled out;
  std::set<RecycledSet> sets;
  for (const RecycledFile& file : files) {
    sets.insert(file.set);
    ++out.files;
    out.bytes += std::min(file.bytes, UINT64_MAX - out.bytes);
  }
  out.sets = sets.size();
  return out;
}

/// Chooses the sets that recycle/ is to hold, and unlinks the files of all others there.
Result<> Deleter::make_way(const std::vector<TrashEntry>& going, std::uint64_t sets, std::set<RecycledSet>& kept,
                           Purged& out) {
  const std::string directory = recycle_path(store_);
  CKPT_TRY(const auto files, list_recycled(io_, directory));
  std::set<RecycledSet, std::greater<>> youngest;
  for (const RecycledFile& file : files) youngest.insert(file.set);
  const bool gains = sets != 0 && io_.recycles(trash_path(store_));
  for (const TrashEntry& entry : going) {
    if (can_recycle(entry)) youngest.insert(set_of(entry));
  }
  for (const RecycledSet& set : youngest) {
    if (!gains || kept.size() >= sets) break;
    kept.insert(set);
  }
  for (const RecycledFile& file : files) {
    if (kept.contains(file.set)) continue;
    const auto gone = io_.unlink(join_path(directory, file.name()));
    if (gone) out.emptied_bytes += file.bytes;
    if (!gone && gone.error().code != Errc::not_found) return gone;  // a save may have taken it
  }
  return {};
}

Result<std::uint64_t> Deleter::retire(const TrashEntry& entry) {
  const std::string path = join_path(place(entry.run), entry.kept_as);
  if (!entry.record.dropped.empty()) return retire_files(io_, store_, set_of(entry), {path});
  return retire_files(io_, store_, set_of(entry), {join_path(path, "shards/weights"), join_path(path, "shards/optim")});
}

}  // namespace ckpt::catalog
