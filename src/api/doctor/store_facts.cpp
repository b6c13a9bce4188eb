#include "api/doctor/store_facts.hpp"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/catalog/repair.hpp"
#include "api/catalog/store_catalog.hpp"
#include "catalog/index/catalog.hpp"
#include "catalog/trash/trash.hpp"
#include "engine/io/file_system.hpp"
#include "engine/publish/leftover.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/holds_store.hpp"
#include "engine/store/inbox.hpp"
#include "engine/store/recycle.hpp"

namespace ckpt {
namespace {

using Group = StoreFacts::Group;

/// A file of this name is made and removed again.
constexpr std::string_view kProbe = "doctor.tmp";

void add(Group& group, std::uint64_t bytes, std::string what) {
  if (group.count == 0) group.first = std::move(what);
  ++group.count;
  group.bytes += bytes;
}

std::optional<Error> try_to_write(Io& io, const std::string& directory) {
  const std::string path = join_path(directory, kProbe);
  const auto held = hold_run(io, directory);
  if (!held) return held.error();
  static_cast<void>(io.unlink(path));  // of one that was killed
  auto file = io.open(path, {.mode = OpenOptions::Mode::write_new});
  if (!file) return file.error();
  const auto closed = io.close(*file);
  const auto removed = io.unlink(path);
  if (!closed) return closed.error();
  return removed ? std::nullopt : std::optional<Error>(removed.error());
}

void add_leftovers(const RepairReport& report, StoreFacts& out) {
  for (const RepairItem& item : report.items) {
    if (item.defect == Defect::leftover && item.kept_because.empty()) add(out.leftover, item.bytes, item.path);
    if (item.defect == Defect::claim) add(out.claims, 0, item.path + ": " + item.text);
    if (item.defect == Defect::deletion) add(out.stopped, 0, item.path);
    if (item.defect == Defect::unread) out.unlistable.push_back(item.path + ": " + item.kept_because);
  }
}

void look_at_trash(Io& io, catalog::Time now, StoreFacts& out) {
  const auto entries = catalog::list_trash(io, out.path);
  if (!entries) return;  // reported with the leftovers
  for (const catalog::TrashEntry& entry : *entries) {
    const std::string path = join_path(join_path(catalog::trash_path(out.path), entry.run), entry.kept_as);
    if (entry.present && !entry.recorded) add(out.unrecorded, 0, path);
    if (entry.present && entry.recorded && entry.record.purge_at < now) add(out.past_grace, entry.record.bytes, path);
  }
}

void look_at_recycled(Io& io, StoreFacts& out) {
  const std::string directory = recycle_path(out.path);
  const auto entries = io.list(directory);
  if (!entries) {
    if (entries.error().code != Errc::not_found) out.unlistable.push_back(directory + ": " + entries.error().message);
    return;
  }
  if (const auto recycled = catalog::measure_recycled(io, out.path)) out.recycled = *recycled;
  for (const DirEntry& entry : *entries) {
    const bool known = entry.kind == FileInfo::Kind::file && !entry.is_link && RecycledFile::parse(entry.name);
    if (!known) add(out.unknown_recycled, 0, join_path(directory, entry.name));
  }
}

/// Checkpoints that the one listing has otherwise than the other, or not at all. Both by run and name.
std::uint64_t differences(const std::vector<catalog::Entry>& before, const std::vector<catalog::Entry>& after) {
  using Key = std::pair<std::string, std::string>;
  std::map<Key, const catalog::Entry*> known;
  for (const catalog::Entry& entry : before) known.emplace(Key{entry.checkpoint.run, entry.name}, &entry);
  std::uint64_t out = 0;
  for (const catalog::Entry& entry : after) {
    const auto at = known.find({entry.checkpoint.run, entry.name});
    const bool same = at != known.end() && at->second->directory == entry.directory &&
                      at->second->marks_directory == entry.marks_directory &&
                      at->second->checkpoint.state == entry.checkpoint.state;
    out += same ? 0 : 1;
    if (at != known.end()) known.erase(at);
  }
  return out + known.size();
}

/// All checkpoints: by the refreshed catalog; by the disk alone if it is damaged, because a listing would move
/// it aside.
Result<std::vector<catalog::Entry>> listed(Io& io, catalog::Time now, const std::vector<catalog::Entry>& before,
                                           StoreFacts& out) {
  if (out.catalog) {
    CKPT_TRY(catalog::Scan scanned, catalog::scan(io, out.path, other_tools()));
    return std::move(scanned.entries);
  }
  CKPT_TRY(catalog::Catalog catalog, open_catalog(io, out.path, catalog::Trust::nothing_unseen, now));
  CKPT_TRY(auto entries, catalog::select_entries(catalog.database(), {}));
  if (out.has_catalog && catalog.is_indexed()) out.catalog_late = differences(before, entries);
  return entries;
}

/// At the paths of these runs and above them.
void look_for_stores(Io& io, const std::set<std::string>& runs, StoreFacts& out) {
  std::set<std::string> seen{"."};
  for (const std::string& run : runs) {
    for (std::string at = run; !at.empty() && seen.insert(at).second; at = parent_path(at)) {
      const std::string path = join_path(out.path, at);
      if (holds_store(io, path).value_or(false)) add(out.inner, 0, path);
    }
  }
}

void look_at_catalog(Io& io, catalog::Time now, StoreFacts& out) {
  const std::string file = catalog::catalog_file(out.path);
  const auto there = io.stat(file);
  out.has_catalog = there.has_value();
  if (!there && there.error().code != Errc::not_found) out.catalog = there.error();
  std::vector<catalog::Entry> before;
  if (out.has_catalog) {
    auto database = catalog::Database::open(file, {.shared = !is_local_file_system(out.path)});
    auto checked = database ? database->check() : Result<>(fail(database.error()));
    auto rows = checked ? catalog::select_entries(*database, {})
                        : Result<std::vector<catalog::Entry>>(fail(std::move(checked).error()));
    if (rows)
      before = *std::move(rows);
    else
      out.catalog = std::move(rows).error();
  }
  auto entries = listed(io, now, before, out);
  if (!entries) {
    out.unlistable.push_back(entries.error().message);
    return;
  }
  std::set<std::string> runs;
  for (const catalog::Entry& entry : *entries) runs.insert(entry.checkpoint.run);
  look_for_stores(io, runs, out);
  for (const catalog::Entry& entry : *entries) {
    std::string what = entry.path(out.path);
    if (!entry.reason.empty()) what += ": " + entry.reason;
    const catalog::Checkpoint& one = entry.checkpoint;
    if (one.marks_unreadable) add(out.marks_unreadable, one.bytes, what);
    const bool damaged = one.state == catalog::State::corrupt || one.state == catalog::State::repairable;
    if (damaged) add(out.corrupt, one.bytes, what);
    if (one.state == catalog::State::unreadable) add(out.unreadable, one.bytes, what);
  }
}

}  // namespace

Result<std::optional<StoreFacts>> read_store_facts(Session& session, const std::string& path, catalog::Time now) {
  Io& io = session.io;
  const std::string own = join_path(path, kStoreDirectory);
  const auto info = io.stat(own);
  if (!info || info->kind != FileInfo::Kind::directory) return std::nullopt;
  StoreFacts out{.path = join_path(path, ""), .own = own};
  out.unwritable = try_to_write(io, own);
  auto found = repair(session, {.path = path, .names_only = true});
  if (found) {
    add_leftovers(*found, out);
  } else if (exit_code(found.error().code) >= exit_code(Errc::interrupted)) {
    return fail(std::move(found).error());
  } else {
    out.unlistable.push_back(found.error().message);
  }
  look_at_trash(io, now, out);
  look_at_recycled(io, out);
  look_at_catalog(io, now, out);
  return out;
}

}  // namespace ckpt
