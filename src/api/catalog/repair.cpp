#include "api/catalog/repair.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "catalog/scan/entry.hpp"
#include "catalog/scan/marks.hpp"
#include "catalog/trash/strays.hpp"
#include "catalog/trash/trash.hpp"
#include "convert/detection.hpp"
#include "convert/foreign_names.hpp"
#include "convert/metadata_memory.hpp"
#include "engine/io/overlay_io.hpp"
#include "engine/io/replace_file.hpp"
#include "engine/io/stat_if_present.hpp"
#include "engine/locks/claims.hpp"
#include "engine/publish/leftover.hpp"
#include "engine/publish/move_checkpoint.hpp"
#include "engine/publish/publish.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/inbox.hpp"
#include "engine/store/run_directory.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/seal.hpp"

namespace ckpt {
namespace {

using catalog::Mark;

constexpr std::size_t kDeepest = 5;  // a run lies at most four directories below its store
constexpr std::string_view kRepaired = "repaired";

bool is_interrupted(const Error& error) {
  return exit_code(error.code) >= exit_code(Errc::interrupted);
}

/// Bytes of a file or of a tree; unreadable ones count as none.
std::uint64_t bytes_below(Io& io, const std::string& path) {
  std::uint64_t total = 0;
  std::vector<std::string> pending{path};
  while (!pending.empty()) {
    const std::string at = std::move(pending.back());
    pending.pop_back();
    const auto info = io.stat(at);
    if (!info) continue;
    if (info->kind != FileInfo::Kind::directory) {
      total += info->bytes;
      continue;
    }
    const auto entries = io.list(at);
    if (!entries) continue;
    for (const DirEntry& entry : *entries)
      if (!entry.is_link) pending.push_back(join_path(at, entry.name));
  }
  return total;
}

/// If locks do not reach every host: why it is not yet known that no process writes a partial; empty if nothing in it
/// has changed for long enough.
std::string not_watched(Io& io, const std::string& path) {
  const std::string whole = io.lock_scope(path).path;
  const auto stores = stores_above(io, whole);
  if (stores.empty()) return "locks do not reach other hosts here; remove it by hand if no process writes it";
  const auto watched = watch_partial(io, stores.front(), whole);
  if (watched && *watched >= kClaimSilence) return {};
  return fmt::format(
      "a process on another host may be writing it; retry in {}"
      " minutes: it is removed if nothing has changed by then",
      kClaimSilence.count());
}

/// An unfinished deletion, or an unfinished undelete.
bool was_stopped(const catalog::TrashEntry& entry) {
  using Trashed = catalog::TrashRecord::State;
  if (catalog::Deleter::is_half_purged(entry)) return true;
  return !entry.present && entry.recorded &&
         (entry.record.state == Trashed::trashed || entry.record.state == Trashed::purging);
}

/// One of the two texts of a manifest.
struct ManifestText {
  std::string path{};
  std::string text{};
  std::optional<Error> wrong{};  ///< it cannot be read, or contradicts itself
  bool is_right() const { return !wrong; }
  /// A system error, or a file of a later release, prevented the check: no damage is known.
  bool is_unknown() const {
    return wrong && wrong->code != Errc::not_found && wrong->code != Errc::corrupt && wrong->code != Errc::checksum;
  }
  std::string why() const {
    if (wrong->code == Errc::not_found) return base_name(path) + " is missing";
    return wrong->message.starts_with(path) ? wrong->message : path + ": " + wrong->message;
  }
};

ManifestText read_text(Io& io, const std::string& path, std::uint64_t memory_bytes) {
  ManifestText out{.path = path};
  auto text = read_metadata_file(io, path, MetadataCost::json, memory_bytes, universal::kMaxManifestBytes);
  if (!text) {
    out.wrong = std::move(text).error();
    return out;
  }
  out.text = *std::move(text);
  if (const auto manifest = universal::parse_manifest(out.text); !manifest) out.wrong = manifest.error();
  return out;
}

class RepairScan {
 public:
  RepairScan(Session& session, const RepairRequest& request, RepairReport& report)
      : session_(session), io_(session.io), request_(request), report_(report) {}

  Result<> run() {
    const std::string path = join_path(request_.path, "");
    const std::string name = base_name(path);
    CKPT_TRY(const FileInfo info, io_.stat(path));
    if (parse_partial_name(name)) return leftover(path, true);
    if (info.kind != FileInfo::Kind::directory)
      return fail({.code = Errc::usage, .message = path + ": not a directory", .file = path});
    const Recognition known = recognise(io_, path);
    if (CheckpointName::parse(name) || is_ours(known)) return checkpoint(path, true);
    CKPT_CHECK(deletions(path));
    CKPT_CHECK(claims(path));
    const std::size_t before = report_.items.size();
    CKPT_CHECK(walk(path));
    if (known.format == nullptr || report_.checkpoints > 0 || report_.items.size() > before) return {};
    return fail({.code = Errc::unsupported,
                 .message = fmt::format("{}: a {} checkpoint, which has no redundancy to repair from", path,
                                        known.format->name),
                 .file = path});
  }

 private:
  static bool is_ours(const Recognition& known) { return known.format != nullptr && known.format->name == "ckpt"; }

  void add(RepairItem item) { report_.items.push_back(std::move(item)); }

  Result<> walk(const std::string& root) {
    std::vector<std::pair<std::string, std::size_t>> pending{{root, 0}};
    while (!pending.empty()) {
      const auto [path, depth] = std::move(pending.back());
      pending.pop_back();
      const auto entries = io_.list(path);
      if (!entries) {
        if (depth == 0) return fail(entries.error());
        if (entries.error().code != Errc::not_found)
          add({.defect = Defect::unread,
               .path = path,
               .text = "it cannot be listed",
               .kept_because = entries.error().message});
        continue;
      }
      for (const DirEntry& entry : *entries) {
        const std::string below = join_path(path, entry.name);
        if (entry.name.starts_with('.') || entry.is_link) continue;
        if (entry.name.find(kPartialMark) != std::string::npos) {
          if (parse_partial_name(entry.name)) CKPT_CHECK(leftover(below, false));
          CKPT_CHECK(lone_record(below));
          continue;
        }
        if (entry.kind != FileInfo::Kind::directory) continue;
        const bool ours = CheckpointName::parse(entry.name).has_value();
        const Recognition known = ours ? Recognition{} : recognise(io_, below);
        if (ours || is_ours(known)) {
          CKPT_CHECK(checkpoint(below, false));
        } else if (known.format == nullptr && depth + 1 < kDeepest) {
          pending.emplace_back(below, depth + 1);
        } else if (known.format != nullptr && depth + 1 < kDeepest && holds_ours(below)) {
          pending.emplace_back(below, depth + 1);  // a run that also holds other tools' checkpoints
        }
      }
    }
    return {};
  }

  bool holds_ours(const std::string& path) {
    const auto entries = io_.list(path);
    return entries && std::ranges::any_of(*entries, [](const DirEntry& entry) {
             return entry.kind == FileInfo::Kind::directory && CheckpointName::parse(entry.name).has_value();
           });
  }

  /// The record of a conversion whose partial no longer exists.
  Result<> lone_record(const std::string& path) {
    std::string partial;
    if (!is_record(path, partial) || !parse_partial_name(base_name(partial))) return {};
    CKPT_TRY(const auto there, stat_if_present(io_, partial));
    if (!there)
      add({.defect = Defect::leftover, .path = path, .text = "the record of a conversion that no longer exists"});
    return {};
  }

  Result<> leftover(const std::string& path, bool named) {
    RepairItem item{.defect = Defect::leftover, .path = path, .bytes = bytes_below(io_, path)};
    CKPT_TRY(const auto record, stat_if_present(io_, record_path(path)));
    item.text = record ? "a stopped conversion" : "an unfinished save";
    // Its maker locks it just after making it: one that is empty yet may be about to be.
    if (item.bytes > 0) {
      const auto held = io_.lock(path, LockMode::exclusive);
      const Errc code = held ? Errc::internal : held.error().code;
      if (code == Errc::not_found) return {};
      if (code == Errc::locked) item.kept_because = "being written by another process";
      const bool reaches = io_.lock_scope(path).reach == LockReach::everyone;
      if (!reaches && (held || code == Errc::unsupported)) item.kept_because = not_watched(io_, path);
      if (reaches && code == Errc::unsupported)
        item.kept_because = "this file system has no locks; remove it by hand if no process writes it";
      if (!held && item.kept_because.empty() && code != Errc::unsupported) {
        item.defect = Defect::unread;
        item.kept_because = held.error().message;
      }
    }
    if (item.kept_because.empty() && record && !named)
      item.kept_because = "the same conversion would resume from it; 'ckpt repair " + path + " --apply' removes it";
    // With a record, a conversion made it, in any format; else it is from a save, or its name only looks like one.
    if (item.kept_because.empty() && !record) {
      auto besides = holds_besides(path);
      if (!besides) item.defect = Defect::unread, item.text = "it cannot be listed";
      item.kept_because = besides ? *std::move(besides) : besides.error().message;
    }
    add(std::move(item));
    return {};
  }

  /// Files in a partial that no save writes; "" if there are none, and for a file.
  Result<std::string> holds_besides(const std::string& path) {
    CKPT_TRY(const auto info, stat_if_present(io_, path));
    if (!info || info->kind != FileInfo::Kind::directory) return std::string();
    CKPT_TRY(const std::vector<std::string> strays, catalog::find_strays(io_, path));
    return strays.empty() ? std::string() : strays_text(strays) + ", not written by a save; remove it by hand";
  }

  Result<> deletions(const std::string& store) {
    const std::string trash = catalog::trash_path(store);
    CKPT_TRY(const auto there, stat_if_present(io_, trash));
    if (!there) return {};
    auto entries = catalog::list_trash(io_, store);
    if (!entries) {
      add({.defect = Defect::unread,
           .path = trash,
           .text = "the trash cannot be listed",
           .kept_because = entries.error().message});
      return {};
    }
    if (const auto begun = std::ranges::count_if(*entries, was_stopped); begun > 0)
      add({.defect = Defect::deletion, .path = trash, .text = fmt::format("{} interrupted by a crash", begun)});
    return {};
  }

  Result<> claims(const std::string& store) {
    CKPT_TRY(const auto there, stat_if_present(io_, claims_path(store)));
    if (!there) return {};
    const auto seen = request_.names_only ? list_claims(io_, store) : watch_claims(io_, store, Dead::left);
    if (!seen) {
      add({.defect = Defect::unread,
           .path = claims_path(store),
           .text = "claims of readers cannot be read",
           .kept_because = seen.error().message});
      return {};
    }
    for (const FoundClaim& claim : seen->found) {
      if (claim.state == FoundClaim::State::lives) continue;
      RepairItem item{.defect = Defect::claim,
                      .path = claim.path,
                      .text = fmt::format("{} ended without removing it", claim.name.who())};
      if (claim.state == FoundClaim::State::silent) {
        item.text = fmt::format("{} silent for {} seconds", claim.name.who(),
                                std::chrono::duration_cast<std::chrono::seconds>(claim.watched).count());
        item.kept_because =
            fmt::format("retry later: a reader counts as ended after {} minutes of silence", kClaimSilence.count());
      }
      add(std::move(item));
    }
    return {};
  }

  Result<> checkpoint(const std::string& path, bool named) {
    ++report_.checkpoints;
    if (request_.names_only) return {};
    const ManifestText manifest = read_text(io_, join_path(path, universal::kManifestPath), session_.memory_bytes);
    const ManifestText copy = read_text(io_, join_path(path, universal::kManifestCopyPath), session_.memory_bytes);
    for (const ManifestText* text : {&manifest, &copy}) {
      if (!text->is_unknown()) continue;
      add({.defect = Defect::unread, .path = path, .text = "cannot be checked now", .kept_because = text->why()});
      return {};
    }
    if (!manifest.is_right() && !copy.is_right()) {
      if (!named && !io_.stat(path)) return {};  // deleted in the meantime
      add({.path = path,
           .text = fmt::format("{}; and {}", manifest.why(), copy.why()),
           .kept_because = "the list of tensors is lost; each file in shards/ is a separate safetensors file"});
      return {};
    }
    if (!manifest.is_right()) return one_manifest(path, Defect::manifest, copy, manifest);
    if (!copy.is_right() || copy.text != manifest.text)
      return one_manifest(path, Defect::manifest_copy, manifest, copy);
    return named ? data(path) : marks(path);
  }

  /// Every record of sums.bin, as if the good copy were in both places.
  Result<> one_manifest(const std::string& path, Defect defect, const ManifestText& right, const ManifestText& wrong) {
    RepairItem item{.defect = defect,
                    .path = path,
                    .text = wrong.is_right() ? wrong.path + " differs from manifest.json" : wrong.why(),
                    .from = right.path,
                    .to = wrong.path,
                    .text_hash = hash128(right.text)};
    const auto io = make_overlay_io(io_, {.path = wrong.path, .bytes_of = right.path});
    CKPT_TRY(const bool whole, check(*io, path, item));
    if (!whole) item.defect = Defect::damage;
    add(std::move(item));
    return {};
  }

  Result<> data(const std::string& path) {
    RepairItem item{.path = path};
    CKPT_TRY(const bool whole, check(io_, path, item));
    if (!whole) add(std::move(item));
    return {};
  }

  /// The result of `verify --all` for it.
  Result<> marks(const std::string& path) {
    for (const Mark& mark : catalog::read_marks(io_, catalog::marks_path(path, false)).marks) {
      if (mark.kind != Mark::Kind::verified || mark.value == 1) continue;
      add({.path = path, .text = "verify found damage: " + mark.text, .kept_because = no_remedy(path)});
    }
    return {};
  }

  /// Compares every checksum; false: `item` has the finding.
  /// errors  interrupted
  Result<bool> check(Io& io, const std::string& path, RepairItem& item) {
    Session session = session_with(io);
    auto report = verify(session, {.path = path, .from = "ckpt"});
    if (!report) {
      if (is_interrupted(report.error())) return fail(std::move(report).error());
      item.text += (item.text.empty() ? "" : "; and ") + report.error().message;
      item.kept_because = report.error().code == Errc::incomplete ? no_remedy(path) : "cannot be read completely";
      const auto manifest = read_manifest(io, path);
      if (manifest && manifest->is_virtual() && !report.error().hint.empty()) item.kept_because = report.error().hint;
      return false;
    }
    report_.bytes += report->bytes;
    if (report->damage.empty()) return true;
    item.text += (item.text.empty() ? "" : "; and ") + fmt::format("{} damaged", report->damage.size());
    item.damage = std::move(report->damage);
    item.kept_because = no_remedy(path);
    return false;
  }

  static std::string no_remedy(const std::string& path) {
    return fmt::format("'ckpt repair {} --out NEW' salvages the intact tensors", path);
  }

  Session session_with(Io& io) const {
    return {.io = io,
            .comm = session_.comm,
            .memory_bytes = session_.memory_bytes,
            .threads = session_.threads,
            .stop = session_.stop,
            .progress = session_.progress};
  }

  Session& session_;
  Io& io_;
  const RepairRequest& request_;
  RepairReport& report_;
};

class RepairApply {
 public:
  RepairApply(const Session& session, const RepairRequest& request)
      : io_(session.io), memory_bytes_(session.memory_bytes), request_(request) {}

  void mend(RepairItem& item) {
    if (!item.planned) return;
    auto done = carry_out(item);
    item.done = done.has_value();
    if (!done) item.kept_because = done.error().message;
  }

 private:
  Result<> carry_out(const RepairItem& item) {
    switch (item.defect) {
      case Defect::leftover:
        return sweep(item);
      case Defect::claim:
        return forget(item);
      case Defect::manifest:
      case Defect::manifest_copy:
        return restore(item);
      case Defect::deletion:
        return finish(item);
      case Defect::damage:
      case Defect::unread:
        break;
    }
    return fail(Errc::internal, item.path + ": no repair for this defect");
  }

  Result<> sweep(const RepairItem& item) {
    CKPT_TRY(const HeldRun run, hold_run(io_, parent_path(item.path)));
    std::string partial;
    if (is_record(item.path, partial)) {
      CKPT_TRY(const auto there, stat_if_present(io_, partial));
      if (!there) CKPT_CHECK(remove_record(io_, item.path));
    } else {
      if (io_.lock_scope(item.path).reach != LockReach::everyone) {
        if (auto why = not_watched(io_, item.path); !why.empty()) return fail(Errc::locked, std::move(why));
      }
      CKPT_CHECK(sweep_leftover(io_, item.path, {}, true));
    }
    return io_.sync_dir(parent_path(item.path));
  }

  /// Of all dead claims, as each observation finds them.
  Result<> forget(const RepairItem& item) {
    CKPT_CHECK(watch_claims(io_, parent_path(parent_path(parent_path(item.path)))));
    CKPT_TRY(const auto left, stat_if_present(io_, item.path));
    return left ? fail(Errc::locked, item.path + ": its process is alive again") : Result<>();
  }

  Result<> restore(const RepairItem& item) {
    CKPT_TRY(const LockedCheckpoint held, lock_checkpoint(io_, item.path));
    switch (held.outcome) {
      case LockOutcome::free:
        break;
      case LockOutcome::read:
        return fail(Errc::locked, item.path + ": in use");
      case LockOutcome::unknown:
        return fail(Errc::locked, item.path + ": cannot tell whether it is in use");
      case LockOutcome::vanished:
        return fail(Errc::not_found, item.path + ": no longer exists");
    }
    CKPT_TRY(const HeldRun run, hold_run(io_, parent_path(item.path)));
    CKPT_TRY(const auto whole, hold_directory(io_, item.path, {.reads = true}));
    const ManifestText right = read_text(io_, item.from, memory_bytes_);
    const ManifestText wrong = read_text(io_, item.to, memory_bytes_);
    if (wrong.is_unknown()) return fail(*wrong.wrong);
    const bool mended = wrong.is_right() && wrong.text == right.text;
    const bool same = right.is_right() && hash128(right.text) == item.text_hash &&
                      (item.defect == Defect::manifest_copy || !wrong.is_right() || mended);
    if (!same) return fail(Errc::locked, item.path + ": changed in the meantime; run repair again");
    const catalog::Time now = request_.clock();
    const std::string marks = catalog::marks_path(item.path, false);
    const std::string said = fmt::format("{} was restored from {}", relative(item, item.to), relative(item, item.from));
    CKPT_CHECK(catalog::write_mark(
        io_, marks,
        {.kind = Mark::Kind::note, .name = std::string(kRepaired), .text = said, .owner = request_.by, .at = now},
        catalog::Holding::ours));
    CKPT_CHECK(make_directory(io_, parent_path(item.to)));
    CKPT_CHECK(replace_file(io_, item.to, right.text));
    auto verified = catalog::write_mark(
        io_, marks, {.kind = Mark::Kind::verified, .text = "by repair", .owner = request_.by, .at = now, .value = 1},
        catalog::Holding::ours);
    drop_note(io_, parent_path(item.path), base_name(item.path),
              fmt::format("repaired {}", now.time_since_epoch().count()));
    return verified;
  }

  static std::string relative(const RepairItem& item, const std::string& path) {
    return path.substr(std::min(path.size(), item.path.size() + 1));
  }

  /// Opening the trash finishes interrupted deletions; then interrupted purges are finished.
  Result<> finish(const RepairItem& item) {
    const std::string store = parent_path(parent_path(item.path));
    CKPT_TRY(
        const auto trash,
        catalog::Deleter::open(io_, store, std::chrono::steady_clock::now() + request_.lock_timeout, foreign_names()));
    CKPT_TRY(const auto purged,
             trash->purge(request_.clock(), request_.by, [](const catalog::TrashEntry&) { return false; }));
    CKPT_TRY(const auto entries, catalog::list_trash(io_, store));
    if (std::ranges::none_of(entries, was_stopped)) return {};
    return fail(Errc::not_done, purged.kept.empty() ? item.path + ": not finished" : purged.kept.front());
  }

  Io& io_;
  std::uint64_t memory_bytes_;
  const RepairRequest& request_;
};

}  // namespace

const char* defect_name(Defect defect) {
  switch (defect) {
    case Defect::leftover:
      return "left-over";
    case Defect::claim:
      return "claim";
    case Defect::manifest:
      return "manifest";
    case Defect::manifest_copy:
      return "manifest-copy";
    case Defect::deletion:
      return "deletion";
    case Defect::damage:
      return "damage";
    case Defect::unread:
      return "unread";
  }
  return "";
}

bool RepairReport::is_broken() const {
  return std::ranges::any_of(items, [](const RepairItem& item) {
    const bool of_checkpoint =
        item.defect == Defect::manifest || item.defect == Defect::manifest_copy || item.defect == Defect::damage;
    return of_checkpoint && !item.done;
  });
}

bool RepairReport::is_complete() const {
  return std::ranges::all_of(items, [this](const RepairItem& item) {
    return item.defect != Defect::unread && (!applied || !item.planned || item.done);
  });
}

Result<RepairReport> repair(Session& session, const RepairRequest& request) {
  RepairReport report{.path = request.path, .applied = request.apply};
  CKPT_CHECK(RepairScan(session, request, report).run());
  std::ranges::stable_sort(report.items, {}, &RepairItem::path);
  for (RepairItem& item : report.items) item.planned = item.kept_because.empty();
  if (!request.apply) return report;
  RepairApply mender(session, request);
  for (RepairItem& item : report.items) {
    if (session.is_stopped()) return fail(Errc::interrupted, "stopped");
    mender.mend(item);
  }
  return report;
}

}  // namespace ckpt
