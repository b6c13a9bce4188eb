#include "api/catalog/undelete.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "catalog/scan/entry.hpp"
#include "convert/foreign_names.hpp"
#include "engine/store/run_directory.hpp"

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

Result<TrashEntry> find(const std::vector<TrashEntry>& entries, const std::string& name) {
  const TrashEntry* found = nullptr;
  for (const TrashEntry& entry : entries) {
    if (!entry.present && !Deleter::is_half_moved(entry)) continue;
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
  std::string there;
  for (const TrashEntry& entry : entries) {
    if (!entry.present || there.size() > 200) continue;
    there += fmt::format("{}{}@{}", there.empty() ? "" : ", ", entry.run, entry.record.step);
  }
  return fail({.code = Errc::not_found,
               .message = fmt::format("{}: not in the trash", name),
               .hint = there.empty() ? "the trash is empty" : "in the trash: " + there});
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
  const std::size_t at = name.find('@') != std::string::npos ? name.rfind('@') : name.rfind('/');
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
      if (names_checkpoint(name, run, one, step, ""))
        return TrashEntry{.run = run, .name = one, .record = {.step = step}};
    }
  }
  const auto there = io.stat(join_path(directory, which));
  if (!there) return std::nullopt;
  return TrashEntry{.run = run, .name = which, .record = {.step = foreign_names().step_in(which).value_or(0)}};
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
  const std::size_t at = name.rfind('@');
  if (at != std::string_view::npos && name.substr(0, at) == run) {
    const std::string_view which = name.substr(at + 1);
    return which == fmt::format("{}", step) || which == directory;
  }
  if (name == join_path(run, directory) || name == directory) return true;
  const bool digits =
      name.size() >= kLeastDigits && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return digits && id.starts_with(name);
}

Result<UndeleteReport> undelete(Io& io, const UndeleteRequest& request) {
  const std::string store = join_path(request.store, "");
  CKPT_TRY(const auto first, catalog::list_trash(io, store));
  std::vector<TrashEntry> wanted;
  UndeleteReport out;
  std::vector<std::string> names;
  for (const std::string& name : request.names) {
    auto found = find(first, name);
    std::optional<TrashEntry> in_place;
    if (!found && !lost_its_optimizer(first, name)) {
      in_place = find_restored(io, store, first, name);
      if (!in_place) in_place = find_in_run(io, store, name);
    }
    if (in_place) {
      out.in_place.push_back(*std::move(in_place));
      continue;
    }
    if (!found) return fail(std::move(found).error());
    wanted.push_back(*std::move(found));
    names.push_back(name);
  }
  if (wanted.empty()) return out;
  CKPT_TRY(const auto trash,
           Deleter::open(io, store, std::chrono::steady_clock::now() + request.lock_timeout, foreign_names()));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::string& name = names[i];
    CKPT_TRY(const auto entries, catalog::list_trash(io, store));
    if (is_back(entries, wanted[i])) {
      out.restored.push_back(wanted[i]);
      continue;
    }
    auto entry = find(entries, name);
    auto claim = entry ? trash->restore(*entry, request.now, request.by) : Result<Claim>(fail(entry.error()));
    if (claim && *claim == Claim::free) {
      out.restored.push_back(*std::move(entry));
    } else {
      out.refused.emplace_back(name, claim ? "in use, or this cannot be determined" : claim.error().message);
    }
  }
  return out;
}

}  // namespace ckpt
