#include "api/catalog/undelete.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>

#include "api/catalog/store_place.hpp"
#include "catalog/index/names.hpp"
#include "catalog/scan/entry.hpp"
#include "convert/foreign_names.hpp"
#include "engine/store/run_directory.hpp"
#include "format/text/glob.hpp"

namespace ckpt {
namespace {

using catalog::Deleter;
using catalog::TrashEntry;

constexpr std::size_t kLeastDigits = 6;

/// Greatest first: the newest; and a checkpoint before its optimizer, which needs it, whatever the clocks said when
/// they were deleted.
std::tuple<std::uint64_t, bool, catalog::Time> rank_of(const TrashEntry& entry) {
  const auto name = CheckpointName::parse(entry.name);
  return {name ? name->generation : 0, entry.record.dropped.empty(), entry.record.deleted};
}

bool can_return(const TrashEntry& entry) {
  return entry.present || Deleter::is_half_moved(entry);
}

bool is_same_place(const TrashEntry& a, const TrashEntry& b) {
  return a.run == b.run && a.kept_as == b.kept_as;
}

/// The newest of a name that is not in `taken`.
Result<TrashEntry> find(const std::vector<TrashEntry>& entries, const std::string& name,
                        const std::vector<TrashEntry>& taken) {
  const TrashEntry* found = nullptr;
  for (const TrashEntry& entry : entries) {
    if (!can_return(entry)) continue;
    if (std::ranges::any_of(taken, [&](const TrashEntry& other) { return is_same_place(entry, other); })) continue;
    if (!names_checkpoint(name, entry.run, entry.name, entry.record.step, entry.record.id)) continue;
    const bool newer = found == nullptr || rank_of(entry) > rank_of(*found);
    if (newer) found = &entry;
  }
  if (found != nullptr) return *found;
  for (const TrashEntry& entry : entries) {
    if (!names_checkpoint(name, entry.run, entry.name, entry.record.step, entry.record.id)) continue;
    if (entry.recorded && entry.record.recycled && entry.record.state == catalog::TrashRecord::State::purged)
      return fail({.code = Errc::not_found,
                   .message = fmt::format("{}: its files were recycled", name),
                   .hint = "with recycle = 0 deleted checkpoints stay in the trash"});
  }
  const bool any = std::ranges::any_of(entries, &TrashEntry::present);
  return fail({.code = Errc::not_found,
               .message = fmt::format("{}: not in the trash", name),
               .hint = any ? "'ckpt list --trash' lists the trash" : "the trash is empty"});
}

/// Everything in the trash that passes, checkpoints before optimizers, which need them.
std::vector<TrashEntry> select(const std::vector<TrashEntry>& entries,
                               const std::function<bool(const TrashEntry&)>& passes) {
  std::vector<TrashEntry> out;
  for (const TrashEntry& entry : entries) {
    if (can_return(entry) && passes(entry)) out.push_back(entry);
  }
  std::stable_partition(out.begin(), out.end(), [](const TrashEntry& entry) { return entry.record.dropped.empty(); });
  return out;
}

/// A checkpoint of this name or id that was restored before.
std::optional<TrashEntry> find_restored(Io& io, const std::string& store, const std::vector<TrashEntry>& entries,
                                        const std::string& name) {
  for (const TrashEntry& entry : entries) {
    const bool is_it = entry.recorded && entry.record.state == catalog::TrashRecord::State::restored &&
                       names_checkpoint(name, entry.run, entry.name, entry.record.step, entry.record.id);
    if (is_it && io.stat(join_path(catalog::run_path(store, entry.run), entry.name))) return entry;
  }
  return std::nullopt;
}

/// Such a name in its run; an id is not searched.
std::optional<TrashEntry> find_in_run(Io& io, const std::string& store, const std::string& name) {
  const std::size_t separator = catalog::find_separator(name);
  const std::size_t at = separator != std::string::npos ? separator : name.rfind('/');
  if (at == std::string::npos) return std::nullopt;
  const std::string run = name.substr(0, at);
  const std::string which = name.substr(at + 1);
  if (run.empty() || which.empty() || which.find('/') != std::string::npos || which.starts_with('.'))
    return std::nullopt;
  const std::string directory = catalog::run_path(store, run);
  const auto names = list_checkpoints(io, directory);
  if (names) {
    for (const std::string& one : *names) {
      const std::uint64_t step = CheckpointName::parse(one)->step;
      // A listing of a network file system may be old; of a file that is opened its server is asked.
      if (names_checkpoint(name, run, one, step, "") && read_manifest(io, join_path(directory, one)))
        return TrashEntry{.run = run, .name = one, .record = {.step = step}};
    }
  }
  const auto there = io.stat(join_path(directory, which));
  const auto step = foreign_names().step_in(which);
  if (!there || !step) return std::nullopt;
  return TrashEntry{.run = run, .name = which, .record = {.step = *step}};
}

/// Whether the optimizer of a checkpoint of such a name was dropped and then purged: the checkpoint exists, but is
/// incomplete.
bool lost_its_optimizer(const std::vector<TrashEntry>& entries, const std::string& name) {
  return std::ranges::any_of(entries, [&](const TrashEntry& entry) {
    return entry.recorded && !entry.record.dropped.empty() &&
           entry.record.state == catalog::TrashRecord::State::purged &&
           names_checkpoint(name, entry.run, entry.name, entry.record.step, entry.record.id);
  });
}

/// Whether a restoration that an earlier process began was finished when the trash was opened.
bool is_back(const std::vector<TrashEntry>& entries, const TrashEntry& before) {
  using State = catalog::TrashRecord::State;
  return before.recorded && before.record.state == State::restoring &&
         std::ranges::any_of(entries, [&](const TrashEntry& entry) {
           return entry.run == before.run && entry.kept_as == before.kept_as && entry.recorded &&
                  entry.record.state == State::restored;
         });
}

}  // namespace

bool names_checkpoint(std::string_view name, const std::string& run, const std::string& directory, std::uint64_t step,
                      const std::string& id) {
  const std::size_t at = catalog::find_separator(name);
  if (at != std::string_view::npos && name.substr(0, at) == run) {
    const std::string_view which = name.substr(at + 1);
    const auto own = CheckpointName::parse(directory);
    const bool by_generation = own && which == fmt::format("{}.g{}", own->step, own->generation);
    return which == fmt::format("{}", step) || which == directory || by_generation;
  }
  if (name == join_path(run, directory) || name == directory) return true;
  const bool digits =
      name.size() >= kLeastDigits && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return digits && id.starts_with(name);
}

namespace {

/// What the request means, with the words that named each.
struct Wanted {
  std::vector<TrashEntry> entries{};
  std::vector<std::string> names{};

  void add(TrashEntry entry, std::string name) {
    entries.push_back(std::move(entry));
    names.push_back(std::move(name));
  }
  void add_all(std::vector<TrashEntry> all) {
    for (TrashEntry& entry : all) {
      const bool twice = std::ranges::any_of(entries, [&](const TrashEntry& one) { return is_same_place(one, entry); });
      std::string name = join_path(entry.run, entry.name);
      if (!twice) add(std::move(entry), std::move(name));
    }
  }
};

Result<Wanted> find_wanted(Io& io, const std::string& store, const UndeleteRequest& request,
                           const std::vector<TrashEntry>& trash, const std::vector<catalog::Unread>& unread,
                           UndeleteReport& out) {
  Wanted wanted;
  const auto in_time = [&](const TrashEntry& entry) {
    return !request.since || (entry.recorded && entry.record.deleted >= *request.since);
  };
  if (request.names.empty()) wanted.add_all(select(trash, in_time));
  for (const std::string& name : request.names) {
    auto of_run = select(trash, [&](const TrashEntry& entry) { return matches_glob(entry.run, name); });
    if (!of_run.empty()) {
      std::erase_if(of_run, [&](const TrashEntry& entry) { return !in_time(entry); });
      wanted.add_all(std::move(of_run));
      continue;
    }
    auto found = find(trash, name, wanted.entries);
    if (found) {
      if (in_time(*found)) wanted.add(*std::move(found), name);
      continue;
    }
    if (find(trash, name, {})) continue;  // named twice
    std::optional<TrashEntry> in_place;
    if (!lost_its_optimizer(trash, name)) {
      in_place = find_restored(io, store, trash, name);
      if (!in_place) in_place = find_in_run(io, store, name);
    }
    if (!in_place) return fail(unread.empty() ? std::move(found).error() : unread.front().error);
    out.in_place.push_back(*std::move(in_place));
  }
  return wanted;
}

/// The checkpoint has a new grace in any case: a failure to pin it is reported, and changes nothing else.
void pin_restored(Io& io, const std::string& store, const UndeleteRequest& request, UndeleteReport& out) {
  if (!request.pin) return;
  for (const TrashEntry& entry : out.restored) {
    const std::string path = join_path(catalog::run_path(store, entry.run), entry.name);
    auto pinned =
        catalog::write_mark(io, catalog::marks_path(path), *request.pin, catalog::Holding::lease, foreign_names());
    if (!pinned) out.unpinned.emplace_back(join_path(entry.run, entry.name), pinned.error().message);
  }
}

}  // namespace

Result<UndeleteReport> undelete(Io& io, const UndeleteRequest& request) {
  const std::string store = join_path(request.store, "");
  CKPT_CHECK(check_outermost(io, store));
  catalog::TrashFaults faults;
  CKPT_TRY(const auto first, catalog::list_trash(io, store, catalog::TrashScope::all, &faults));
  UndeleteReport out;
  CKPT_TRY(const Wanted wanted, find_wanted(io, store, request, first, faults.unread, out));
  if (request.names.empty()) out.unread = faults.unread;
  if (wanted.entries.empty()) return out;
  CKPT_TRY(const auto trash,
           Deleter::open(io, store, std::chrono::steady_clock::now() + request.lock_timeout, foreign_names()));
  for (std::size_t i = 0; i < wanted.entries.size(); ++i) {
    const TrashEntry& one = wanted.entries[i];
    CKPT_TRY(const auto entries, catalog::list_trash(io, store, catalog::TrashScope::all, &faults));
    TrashEntry back = one;
    back.record.state = catalog::TrashRecord::State::restored;
    back.record.changed = request.now;
    if (is_back(entries, one)) {
      out.restored.push_back(std::move(back));
      continue;
    }
    const auto entry =
        std::ranges::find_if(entries, [&](const TrashEntry& other) { return is_same_place(one, other); });
    auto outcome = entry != entries.end()
                       ? trash->restore(*entry, request.now, request.by)
                       : Result<LockOutcome>(fail(Errc::not_found, wanted.names[i] + ": no longer in the trash"));
    if (outcome && *outcome == LockOutcome::free) {
      out.restored.push_back(std::move(back));
    } else {
      out.refused.emplace_back(wanted.names[i],
                               outcome ? "in use, or this cannot be determined" : outcome.error().message);
    }
  }
  pin_restored(io, store, request, out);
  catalog::note_shared_steps(io, store, out.restored, foreign_names());
  catalog::note_shared_steps(io, store, out.in_place, foreign_names());
  return out;
}

Result<TrashListing> list_deleted(Io& io, const std::string& store) {
  CKPT_CHECK(io.stat(store));
  TrashListing out;
  catalog::TrashFaults faults;
  CKPT_TRY(out.entries, catalog::list_trash(io, store, catalog::TrashScope::present, &faults));
  std::erase_if(out.entries, [](const TrashEntry& entry) { return !entry.present; });
  catalog::note_shared_steps(io, store, out.entries, foreign_names());
  out.unread = std::move(faults.unread);
  return out;
}

}  // namespace ckpt
