// Demotion: the optimizer's state goes to the trash, the checkpoint stays. Steps: trash.hpp.
#include <fmt/format.h>

#include <utility>

#include "catalog/trash/place.hpp"
#include "catalog/trash/strays.hpp"
#include "catalog/trash/trash.hpp"
#include "catalog/trash/whole.hpp"
#include "engine/io/replace_file.hpp"
#include "engine/io/stat_if_present.hpp"
#include "engine/publish/leftover.hpp"
#include "engine/store/inbox.hpp"
#include "engine/store/run_directory.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/own_names.hpp"
#include "format/universal/seal.hpp"

namespace ckpt::catalog {
namespace {

using RecordState = TrashRecord::State;
using universal::FileClass;
using universal::kOptimizerFolder;
using universal::Manifest;

struct ManifestFile {
  std::string path{};
  std::string text{};
  Manifest manifest{};
};

/// The directory of its run does not show that a manifest below it was revised.
void update_catalog(Io& io, const std::string& run, const std::string& name, const Manifest& manifest) {
  drop_note(io, run, name, fmt::format("revision {} of {}", manifest.revision, manifest.id.hex()));
}

Result<ManifestFile> open_manifest(Io& io, const std::string& checkpoint) {
  ManifestFile out{.path = join_path(checkpoint, universal::kManifestPath)};
  CKPT_TRY(out.text, read_small_file(io, out.path, kMostManifestBytes));
  auto manifest = universal::parse_manifest(out.text);
  if (!manifest) return fail(with_file(std::move(manifest).error(), out.path));
  out.manifest = *std::move(manifest);
  return out;
}

}  // namespace

Result<LockOutcome> Deleter::demote(const Deletion& deletion) {
  const std::string path = join_path(run_path(deletion.run), deletion.name);
  CKPT_TRY(LockedCheckpoint held, hold_unchanged(deletion));
  if (held.outcome != LockOutcome::free) return held.outcome;
  CKPT_TRY(const auto whole, hold_whole(io_, path));
  CKPT_TRY(const ManifestFile now, open_manifest(io_, path));
  if (now.manifest.is_dropped(FileClass::optim)) return LockOutcome::vanished;
  CKPT_CHECK(universal::check_weights_alone(now.manifest));
  CKPT_CHECK(check_no_strays(find_strays(io_, path, kOptimizerFolder)));
  CKPT_TRY(const std::string revised, universal::revise_manifest(now.text, {FileClass::optim}));
  CKPT_TRY(const TrashEntry entry, announce(deletion, class_name(FileClass::optim)));
  CKPT_CHECK(replace_file(io_, now.path, revised));
  // A reader that started before this has its claim by now, and may need the files.
  CKPT_CHECK(check_no_readers(io_, held));
  if (held.outcome != LockOutcome::free) {
    reader_ = held.reader;
    CKPT_TRY(const std::string undone, universal::revise_manifest(revised, {}));
    CKPT_CHECK(replace_file(io_, now.path, undone));
    CKPT_CHECK(replace_file(io_, join_path(path, universal::kManifestCopyPath), undone));
    static_cast<void>(io_.unlink(join_path(place(entry.run), entry.kept_as + std::string(kRecordSuffix))));
    return held.outcome;
  }
  CKPT_CHECK(finish_demotion(entry, revised));
  update_catalog(io_, run_path(entry.run), entry.name, now.manifest);
  return LockOutcome::free;
}

/// The steps after the manifest says that the optimizer is dropped.
Result<> Deleter::finish_demotion(const TrashEntry& entry, const std::string& manifest) {
  const std::string path = join_path(run_path(entry.run), entry.name);
  CKPT_CHECK(replace_file(io_, join_path(path, universal::kManifestCopyPath), manifest));
  return move_checkpoint(io_, join_path(path, kOptimizerFolder), join_path(place(entry.run), entry.kept_as));
}

/// A record of a demotion whose files are not in the trash: the manifest shows how far it got.
Result<> Deleter::resume_demotion(const TrashEntry& entry) {
  const std::string path = join_path(run_path(entry.run), entry.name);
  CKPT_TRY(const LockedCheckpoint held, hold_here(path));
  if (held.outcome != LockOutcome::free) return {};  // being read: the next one
  const auto whole = hold_whole(io_, path);
  if (!whole) return {};  // it contains links: as for damage
  const auto now = open_manifest(io_, path);
  if (!now) return {};  // damaged, or not readable now: nothing is known, and nothing done
  static_cast<void>(io_.unlink(join_path(path, universal::kManifestPath) + std::string(kTemporarySuffix)));
  CKPT_CHECK(io_.sync_dir(path));  // its writer may have been killed right after the rename
  update_catalog(io_, run_path(entry.run), entry.name, now->manifest);
  if (!now->manifest.is_dropped(FileClass::optim)) {
    // It was never demoted, or is restored but for the copy.
    if (now->manifest.revision != 0)
      CKPT_CHECK(replace_file(io_, join_path(path, universal::kManifestCopyPath), now->text));
    CKPT_CHECK(io_.unlink(join_path(place(entry.run), entry.kept_as + std::string(kRecordSuffix))));
    return io_.sync_dir(place(entry.run));
  }
  CKPT_TRY(const auto left, stat_if_present(io_, join_path(path, kOptimizerFolder)));
  if (left) return finish_demotion(entry, now->text);
  TrashRecord record = entry.record;
  record.state = RecordState::purged;
  return write(entry, record);
}

Result<LockOutcome> Deleter::restore_optimizer(const TrashEntry& entry, Time now, const std::string& by) {
  const std::string path = join_path(run_path(entry.run), entry.name);
  const auto refused = [&](const char* why) {
    return fail(Errc::not_found, fmt::format("{}/{}: undelete its optimizer: {}", entry.run, entry.name, why));
  };
  CKPT_TRY(const LockedCheckpoint held, hold_here(path));
  if (held.outcome == LockOutcome::vanished) return refused("the checkpoint no longer exists");
  if (held.outcome != LockOutcome::free) return held.outcome;
  CKPT_TRY(const auto whole, hold_whole(io_, path));
  CKPT_TRY(const ManifestFile demoted, open_manifest(io_, path));
  const bool its = demoted.manifest.id.hex() == entry.record.id &&
                   (demoted.manifest.is_dropped(FileClass::optim) || entry.record.state == RecordState::restoring);
  if (!its) return refused("another checkpoint has this name");
  TrashEntry now_restoring = entry;
  now_restoring.record.state = RecordState::restoring;
  now_restoring.record.changed = now;
  now_restoring.record.changed_by = by;
  CKPT_CHECK(write(entry, now_restoring.record));
  CKPT_CHECK(finish_restoration(now_restoring));
  return LockOutcome::free;
}

/// A record of a restoration that was not finished.
Result<> Deleter::resume_restoration(const TrashEntry& entry) {
  const std::string path = join_path(run_path(entry.run), entry.name);
  CKPT_TRY(const LockedCheckpoint held, hold_here(path));
  if (held.outcome == LockOutcome::vanished) {  // there is no checkpoint to restore it to
    TrashRecord record = entry.record;
    record.state = entry.present ? RecordState::trashed : RecordState::purged;
    return write(entry, record);
  }
  if (held.outcome != LockOutcome::free) return {};
  CKPT_TRY(const auto whole, hold_whole(io_, path));
  static_cast<void>(io_.unlink(join_path(path, universal::kManifestPath) + std::string(kTemporarySuffix)));
  CKPT_CHECK(io_.sync_dir(path));  // its writer may have been killed right after the rename
  return finish_restoration(entry);
}

/// The remaining steps after the record says that it is being restored. The checkpoint is held.
Result<> Deleter::finish_restoration(const TrashEntry& entry) {
  const std::string path = join_path(run_path(entry.run), entry.name);
  const std::string to = join_path(path, kOptimizerFolder);
  CKPT_TRY(const ManifestFile now, open_manifest(io_, path));
  std::string revised = now.text;
  if (now.manifest.is_dropped(FileClass::optim)) {
    CKPT_TRY(revised, universal::revise_manifest(now.text, {}));
    CKPT_TRY(const auto back, stat_if_present(io_, to));
    if (!back) CKPT_CHECK(move_checkpoint(io_, join_path(place(entry.run), entry.kept_as), to));
    CKPT_CHECK(replace_file(io_, now.path, revised));
  }
  CKPT_CHECK(replace_file(io_, join_path(path, universal::kManifestCopyPath), revised));
  TrashRecord record = entry.record;
  record.state = RecordState::restored;
  CKPT_CHECK(write(entry, record));
  update_catalog(io_, run_path(entry.run), entry.name, now.manifest);
  return {};
}

}  // namespace ckpt::catalog
