#include "engine/publish/publish.hpp"
#include "engine/io/remove_tree.hpp"
#include "engine/io/stat_if_present.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "engine/publish/leftover.hpp"
#include "engine/publish/move_checkpoint.hpp"
#include "engine/store/held_store.hpp"
#include "engine/store/recycle.hpp"
#include "engine/store/run_directory.hpp"
#include "format/checked.hpp"
#include "format/text/error_context.hpp"
#include "format/text/file_name.hpp"
#include "format/text/quantity.hpp"
#include "format/universal/own_names.hpp"

namespace ckpt {
namespace {

Error exists_error(const std::string& target) {
  return {.code = Errc::target_exists,
          .message = target + ": already exists",
          .file = target,
          .hint = "choose another target, or pass --overwrite"};
}

/// `locked` while the target of --overwrite is in use, `usage` if that is unknown.
Result<> check_unread(const LockedCheckpoint& held, const std::string& target) {
  switch (held.outcome) {
    case LockOutcome::free:
      return {};
    case LockOutcome::read:
      return fail({.code = Errc::locked,
                   .message = target + ": cannot overwrite: in use" +
                              (held.reader.empty() ? std::string() : " by " + held.reader),
                   .file = target,
                   .hint = "try again when its readers are done"});
    case LockOutcome::unknown:
      return fail({.code = Errc::usage,
                   .message = fmt::format(
                       "{}: cannot overwrite: this file system has no locks to tell whether it is in use{}{}", target,
                       held.reader.empty() ? "" : ": ", held.reader),
                   .file = target,
                   .hint = "choose another target"});
    case LockOutcome::vanished:
      return fail(
          {.code = Errc::not_found, .message = target + ": cannot overwrite: no longer exists", .file = target});
  }
  return {};
}

/// What --overwrite is to replace.
struct Replaced {
  LockedCheckpoint held{};
  std::vector<OldFile> files{};
};

/// Locks the target of --overwrite. `usage` if it must not be replaced, `locked` while it is in use.
Result<Replaced> lock_replaceable(Io& io, const Publication::Options& options) {
  Replaced out;
  CKPT_TRY(out.files, account_for(io, options.target, options.own_files));
  CKPT_TRY(out.held, lock_checkpoint(io, options.target));
  CKPT_CHECK(check_unread(out.held, options.target));
  return out;
}

/// Makes the target's name durable. `kept`: the replaced target, if it still exists.
Result<> sync_name(Io& io, const std::string& target, const std::string& kept) {
  auto synced = io.sync_dir(parent_path(target));
  if (synced) return {};
  Error error = std::move(synced).error();
  error.code = Errc::not_durable;
  error.message = fmt::format("{}: visible, but possibly not durable: {}", target, error.message);
  error.hint = "verify it, and check the disk";
  if (!kept.empty()) error.hint += "; the old one is " + kept;
  return fail(std::move(error));
}

Error left_over_stays(Error error, const std::string& target, const std::string& partial) {
  error.code = Errc::not_done;
  error.message = fmt::format("{}: done, but could not remove {}: {}", target, partial, error.message);
  error.hint = fmt::format("remove {} by hand", partial);
  return error;
}

Result<std::uint64_t> reserved_bytes(const std::vector<TargetFile>& files) {
  std::uint64_t sum = 0;
  for (const TargetFile& file : files) {
    CKPT_TRY(const std::uint64_t padded, checked_add(file.bytes, kAlignment - 1));
    CKPT_TRY(sum, checked_add(sum, round_down(padded, kAlignment)));
  }
  return sum;
}

/// Creates or opens a file and reserves its space: a new one if no recycled one is used.
Result<> make_file(Io& io, const std::string& path, OpenOptions::Mode mode, std::uint64_t bytes,
                   RecycledFiles& recycled) {
  const std::uint64_t space = round_up(bytes, kAlignment);
  if (mode == OpenOptions::Mode::write_new && recycled.take(path, space)) return {};
  CKPT_TRY(const FileHandle handle, io.open(path, {.mode = mode}));
  auto allocated = io.allocate(handle, space);
  if (!allocated && allocated.error().code == Errc::no_space && recycled.give_up())
    allocated = io.allocate(handle, space);
  auto closed = io.close(handle);
  CKPT_CHECK(std::move(allocated));
  return closed;
}

/// Truncates a file to its exact size, and syncs it.
Result<> trim_and_sync(Io& io, const std::string& path, std::uint64_t bytes) {
  CKPT_TRY(const FileHandle file, io.open(path, {.mode = OpenOptions::Mode::write_existing}));
  const auto finish = [&]() -> Result<> {
    CKPT_TRY(const FileInfo info, io.info(file));
    if (info.bytes > bytes) CKPT_CHECK(io.truncate(file, bytes));
    return io.sync(file);
  };
  auto finished = finish();
  auto closed = io.close(file);
  CKPT_CHECK(std::move(finished));
  return closed;
}

}  // namespace

class Publication::Impl {
 public:
  Impl(Io& io, Options options) : io_(io), options_(std::move(options)), recycled_(io) {
    options_.target = join_path(options_.target, "");  // "out/" is "out"
    partial_ = partial_path(options_.target, options_.id);
    root_ = partial_;
  }
  ~Impl() {
    if (made_ && !committed_ && !left_) remove_partial();
    drop_record();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<> begin(const std::vector<TargetFile>& files);
  const std::string& root() const { return root_; }
  std::string record() const { return options_.resumable ? record_path(partial_) : std::string(); }
  const std::vector<RecordedLeaf>& taken_over() const { return taken_over_; }
  Result<bool> keep_partial();
  Result<> commit(const std::vector<SmallFile>& files, const std::string& target);

 private:
  Result<> check_paths(const std::vector<TargetFile>& files) const;
  Result<> hold_parent();
  Result<> check_target();
  Result<> check_space(const std::vector<TargetFile>& files);
  RecordKey record_key(const std::vector<TargetFile>& files) const;
  OwnName own_names(const std::vector<TargetFile>& files) const;
  Result<bool> take_over_partial(const std::vector<TargetFile>& files);
  Result<> make_partial();
  Result<> reserve(const TargetFile& file);
  Result<> make_folders(std::string_view relative);
  Result<> settle_taken_over();
  Result<> check_sizes();
  Result<> write_small(const SmallFile& file);
  Result<> sync_folders();
  Result<> rename_to_target();
  Result<> give_back_if_used();
  Result<> nothing_came();
  void remove_partial();
  void drop_record();

  Io& io_;
  Options options_;
  std::string partial_;
  std::string root_;
  std::vector<std::pair<std::string, std::uint64_t>> files_;  // relative path, exact size
  std::set<std::string> folders_;                             // made below the root, relative
  std::set<std::string> small_;                               // written by commit, relative
  RecycledFiles recycled_;
  HeldRun held_;  // the directory of the target
  std::unique_ptr<HeldDirectory> readers_;
  std::unique_ptr<HeldLock> lock_;  // on the partial, under any name
  Replaced old_;
  FileInfo identity_{};  // of the partial; its inode is ours while lock_ is held
  RecordKey record_key_{};
  std::vector<RecordedLeaf> taken_over_;
  bool made_ = false;
  bool committed_ = false;
  bool left_ = false;
  bool record_dropped_ = false;
  bool replaced_ = false;  // an old target has the partial's name
  bool linked_ = false;    // the rename said that it failed: the partial's name may still be there too
};

Result<> Publication::Impl::check_paths(const std::vector<TargetFile>& files) const {
  if (options_.target.empty()) return fail(Errc::usage, "no target");
  const bool id_ok = !options_.id.empty() && options_.id.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!id_ok) return fail(Errc::internal, fmt::format("{}: '{}' is not an id", options_.target, options_.id));
  if (!options_.directory && (files.size() != 1 || !files.front().path.empty())) {
    return fail(Errc::internal, options_.target + ": a single file with several parts");
  }
  for (const TargetFile& file : files) {
    if (options_.directory && !stays_inside(file.path)) {
      return fail(Errc::internal, fmt::format("{}: path '{}' leaves the target", options_.target, file.path));
    }
  }
  return {};
}

/// Saves stay in the run's store; conversions go where the caller said.
Result<> Publication::Impl::hold_parent() {
  const std::string parent = parent_path(options_.target);
  if (options_.named_later) {
    CKPT_TRY(held_, hold_run(io_, parent));
  }
  CKPT_TRY(readers_, hold_directory(io_, parent, {.follow = true, .readers = options_.readers}));
  return {};
}

Result<> Publication::Impl::check_target() {
  CKPT_CHECK(check_in_no_checkpoint(parent_path(options_.target)));
  if (options_.named_later) return {};
  CKPT_TRY(const auto existing, stat_if_present(io_, options_.target));
  if (!existing) return {};
  if (!options_.overwrite) return fail(exists_error(options_.target));
  // Checked early, before anything is written; locked only when it is replaced, so that readers need not wait.
  CKPT_TRY(const auto free_to_replace, lock_replaceable(io_, options_));
  return {};
}

Result<> Publication::Impl::check_space(const std::vector<TargetFile>& files) {
  CKPT_TRY(std::uint64_t needed, reserved_bytes(files));
  if (options_.resumable && taken_over_.empty()) needed += round_up(record_bytes(record_key(files).leaves), kAlignment);
  CKPT_TRY(const std::uint64_t free, io_.free_bytes(parent_path(options_.target)));
  if (needed <= free || needed - free <= recycled_.bytes()) return {};
  return fail({.code = Errc::no_space,
               .message = fmt::format("{}: not enough space: {} needed, {} free", options_.target, size_text(needed),
                                      size_text(free)),
               .file = options_.target,
               .hint = "free some space, or choose a target on another file system"});
}

RecordKey Publication::Impl::record_key(const std::vector<TargetFile>& files) const {
  RecordKey key{.id = options_.id, .plan = options_.resumable.value_or(Hash128{}), .inode = identity_.inode};
  for (const TargetFile& file : files) key.leaves += file.leaf_count();
  return key;
}

/// The files and folders that a publication creates.
OwnName Publication::Impl::own_names(const std::vector<TargetFile>& files) const {
  std::set<std::string, std::less<>> names(options_.small_names.begin(), options_.small_names.end());
  for (const std::string& folder : options_.folders) names.insert(folder + "/");
  for (const TargetFile& file : files) {
    names.insert(file.path);
    for (const std::string& folder : folders_of(file.path)) names.insert(folder + "/");
  }
  return [names = std::move(names), others = options_.own_name](std::string_view path) {
    return names.contains(path) || universal::is_own_name(path) || (others && others(path));
  };
}

/// Resumes a leftover instead of a new partial: only missing files are made.
Result<bool> Publication::Impl::take_over_partial(const std::vector<TargetFile>& files) {
  CKPT_TRY(auto leftover,
           take_over(io_, partial_, options_.directory, files, record_key(files), own_names(files), options_.readers));
  if (!leftover) return false;
  lock_ = std::move(leftover->lock);
  identity_ = leftover->identity;
  folders_ = std::move(leftover->folders);
  taken_over_ = std::move(leftover->leaves);
  std::vector<TargetFile> missing;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (leftover->kept[i])
      files_.emplace_back(files[i].path, files[i].bytes);
    else
      missing.push_back({.path = files[i].path, .bytes = files[i].bytes});
  }
  CKPT_CHECK(check_space(missing));
  for (const std::string& folder : options_.folders) CKPT_CHECK(make_folders(folder + "/"));
  for (const TargetFile& file : missing) CKPT_CHECK(reserve(file));
  record_key_ = record_key(files);
  made_ = true;
  return true;
}

Result<> Publication::Impl::make_partial() {
  Result<> made;
  if (options_.directory) {
    made = io_.make_dir(partial_);
  } else if (auto file = io_.open(partial_, {.mode = OpenOptions::Mode::write_new}); file) {
    made = io_.close(*file);
    if (!made) static_cast<void>(io_.unlink(partial_));
  } else {
    made = fail(std::move(file).error());
  }
  const auto taken = [this](Error error) {
    error.code = Errc::locked;
    error.message = partial_ + ": being written by another process";
    return fail(std::move(error));
  };
  if (!made) return made.error().code == Errc::target_exists ? taken(std::move(made).error()) : std::move(made);

  // Until it is locked another process may take it for a leftover, and then it owns it.
  if (auto held = io_.lock(partial_, LockMode::exclusive); held) {
    lock_ = std::move(*held);
  } else if (held.error().code == Errc::locked || held.error().code == Errc::not_found) {
    return taken(std::move(held).error());
  } else if (held.error().code != Errc::unsupported) {
    // Not locked and not known to be another's: just made, so empty, and this removes nothing else.
    static_cast<void>(options_.directory ? io_.remove_dir(partial_) : io_.unlink(partial_));
    return fail(std::move(held).error());
  }
  if (auto identity = io_.stat(partial_); identity) {
    identity_ = *identity;
  } else {
    static_cast<void>(options_.directory ? io_.remove_dir(partial_) : io_.unlink(partial_));
    return fail(std::move(identity).error());
  }
  made_ = true;
  return io_.sync_dir(parent_path(partial_));
}

Result<> Publication::Impl::make_folders(std::string_view relative) {
  for (const std::string& folder : folders_of(relative)) {
    if (folders_.count(folder) != 0) continue;
    CKPT_CHECK(io_.make_dir(join_path(partial_, folder)));
    folders_.insert(folder);
  }
  return {};
}

Result<> Publication::Impl::reserve(const TargetFile& file) {
  CKPT_CHECK(make_folders(file.path));
  const auto mode = options_.directory ? OpenOptions::Mode::write_new : OpenOptions::Mode::write_existing;
  CKPT_CHECK(make_file(io_, join_path(partial_, file.path), mode, file.bytes, recycled_));
  files_.emplace_back(file.path, file.bytes);
  return {};
}

Result<> Publication::Impl::begin(const std::vector<TargetFile>& files) {
  CKPT_CHECK(check_paths(files));
  CKPT_CHECK(hold_parent());
  CKPT_CHECK(check_target());
  const bool for_all = options_.readers == Options{}.readers;
  if (options_.directory && !files.empty() && for_all)
    recycled_ = RecycledFiles::above(io_, parent_path(options_.target));
  if (options_.resumable && !options_.restart) {
    CKPT_TRY(const bool taken, take_over_partial(files));
    if (taken) return {};
  }
  CKPT_CHECK(sweep_leftover(io_, partial_, own_names(files)));
  CKPT_CHECK(check_space(files));
  CKPT_CHECK(make_partial());
  record_key_ = record_key(files);
  if (options_.resumable) CKPT_CHECK(make_record(io_, record(), record_key_));
  for (const std::string& folder : options_.folders) CKPT_CHECK(make_folders(folder + "/"));
  for (const TargetFile& file : files) CKPT_CHECK(reserve(file));
  return {};
}

/// Files written by another process: their last blocks are cut and they are synced, as the run's workers do. Their
/// leaves were read from the disk itself if possible; an error that their writer never saw is reported at the first
/// sync.
Result<> Publication::Impl::settle_taken_over() {
  if (taken_over_.empty()) return {};
  for (const auto& [path, bytes] : files_) CKPT_CHECK(trim_and_sync(io_, join_path(partial_, path), bytes));
  return {};
}

/// A file of another size than planned would be published wrong: it was not written to its end, or not cut.
Result<> Publication::Impl::check_sizes() {
  for (const auto& [path, bytes] : files_) {
    const std::string name = join_path(partial_, path);
    CKPT_TRY(const FileInfo info, io_.stat(name));
    if (info.bytes != bytes) {
      return fail({.code = Errc::internal,
                   .message = fmt::format("{}: {} bytes, planned {}", name, info.bytes, bytes),
                   .file = name});
    }
  }
  return {};
}

Result<> Publication::Impl::write_small(const SmallFile& file) {
  if (!options_.directory || !stays_inside(file.path)) {
    return fail(Errc::internal, fmt::format("{}: '{}' cannot be written there", options_.target, file.path));
  }
  CKPT_CHECK(make_folders(file.path));
  const std::string path = join_path(partial_, file.path);
  if (!small_.insert(file.path).second) CKPT_CHECK(io_.unlink(path));  // of a commit whose name was taken
  CKPT_TRY(const FileHandle handle, io_.open(path, {.mode = OpenOptions::Mode::write_new}));
  auto written = io_.write_at(handle, 0, std::as_bytes(std::span(file.bytes)));
  if (written) written = io_.sync(handle);
  auto closed = io_.close(handle);
  CKPT_CHECK(std::move(written));
  return closed;
}

/// Innermost first: a folder's own entry is in its parent.
Result<> Publication::Impl::sync_folders() {
  if (!options_.directory) return {};
  for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder) {
    CKPT_CHECK(io_.sync_dir(join_path(partial_, *folder)));
  }
  return io_.sync_dir(partial_);
}

Result<> Publication::Impl::rename_to_target() {
  RenameMode mode = RenameMode::no_replace;
  if (options_.overwrite) {
    CKPT_TRY(const auto existing, stat_if_present(io_, options_.target));
    if (existing) {
      CKPT_TRY(old_, lock_replaceable(io_, options_));
      const bool both_files = !options_.directory && existing->kind == FileInfo::Kind::file;
      mode = both_files ? RenameMode::replace : RenameMode::exchange;
    }
  }
  auto renamed = io_.rename(partial_, options_.target, mode);
  if (!renamed) {
    // The reply may have been lost (NFS): the file at the name decides.
    const auto now = stat_if_present(io_, options_.target);
    if (!now || !*now || !(*now)->is_same_file(identity_)) {
      Error error = std::move(renamed).error();
      if (mode == RenameMode::no_replace && error.code == Errc::target_exists)
        return fail(exists_error(options_.target));
      if (mode == RenameMode::exchange && error.code == Errc::unsupported) {
        error.code = Errc::usage;
        error.message = options_.target + ": cannot overwrite: this file system cannot swap two directories atomically";
        error.hint = "remove the old checkpoint first, or choose another target";
      }
      return fail(std::move(error));
    }
  }
  if (mode == RenameMode::exchange) CKPT_CHECK(give_back_if_used());
  committed_ = true;
  linked_ = !renamed;
  replaced_ = mode == RenameMode::exchange;
  root_ = options_.target;
  return {};
}

/// A reader of the old target that started before the exchange, on another host, has its claim by now; and files added
/// until then are there.
Result<> Publication::Impl::give_back_if_used() {
  auto looked = check_no_readers(io_, old_.held);
  if (looked) looked = check_unread(old_.held, options_.target);
  if (looked) looked = nothing_came();
  if (looked) return {};
  auto back = io_.rename(partial_, options_.target, RenameMode::exchange);
  const auto now = io_.stat(partial_);
  if (back || (now && now->is_same_file(identity_))) return looked;
  return fail(with_context(std::move(back).error(),
                           fmt::format("{}: overwritten; the old one is {}", options_.target, partial_)));
}

/// The old target still holds only accounted files. If that is unknown, the others stay: only accounted files are
/// removed.
Result<> Publication::Impl::nothing_came() {
  const auto now = account_for(io_, partial_, [this](const std::string&) -> Result<std::vector<std::string>> {
    std::vector<std::string> own;
    for (const OldFile& file : old_.files) own.push_back(file.path);
    return own;
  });
  if (now || now.error().code != Errc::usage) return {};
  Error error = now.error();
  error.message = options_.target + ": cannot overwrite: files were added to it meanwhile";
  error.file = options_.target;
  return fail(std::move(error));
}

Result<> Publication::Impl::commit(const std::vector<SmallFile>& files, const std::string& target) {
  if (committed_) return fail(Errc::internal, options_.target + ": committed twice");
  if (options_.named_later != !target.empty())
    return fail(Errc::internal, options_.target + ": the name is missing, or given twice");
  if (options_.named_later) options_.target = target;
  CKPT_CHECK(settle_taken_over());
  CKPT_CHECK(check_sizes());
  for (const SmallFile& file : files) CKPT_CHECK(write_small(file));
  CKPT_CHECK(sync_folders());  // once: no reader trusts these files before the rename, in any order
  if (options_.directory) CKPT_CHECK(sync_recycling(io_, parent_path(options_.target)));
  CKPT_CHECK(rename_to_target());
  drop_record();
  CKPT_CHECK(sync_name(io_, options_.target, replaced_ ? partial_ : ""));
  if (linked_ && !replaced_) remove_partial();
  if (replaced_) {
    auto removed = remove_old(io_, partial_, old_.files);
    if (!removed) return fail(left_over_stays(std::move(removed).error(), options_.target, partial_));
  }
  old_ = {};
  lock_.reset();
  return {};
}

/// Only files known to be ours: after a rename with unknown outcome, another checkpoint may have the name. (A file
/// linked to the target before its old name was removed has both names; this removes the old one.)
void Publication::Impl::remove_partial() {
  const auto now = io_.stat(partial_);
  if (!now || !now->is_same_file(identity_)) return;
  if (options_.resumable) static_cast<void>(remove_record(io_, record()));  // first: never resume half a partial
  static_cast<void>(remove_tree(io_, partial_));
}

/// Of a published target: it is useless now, and if it stays no process uses it.
void Publication::Impl::drop_record() {
  if (!committed_ || !options_.resumable || record_dropped_) return;
  record_dropped_ = remove_record(io_, record()).has_value();
}

Result<bool> Publication::Impl::keep_partial() {
  if (!made_ || committed_ || !options_.resumable) return false;
  CKPT_TRY(const auto leaves, read_record(io_, record(), record_key_));
  left_ = std::any_of(leaves.begin(), leaves.end(), [](const RecordedLeaf& leaf) { return leaf.is_finished(); });
  return left_;
}

Publication::Publication(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Publication::~Publication() = default;

const std::string& Publication::root() const {
  return impl_->root();
}

std::string Publication::record() const {
  return impl_->record();
}

const std::vector<RecordedLeaf>& Publication::taken_over() const {
  return impl_->taken_over();
}

Result<bool> Publication::keep_partial() {
  return impl_->keep_partial();
}

Result<> Publication::commit(const std::vector<SmallFile>& files, const std::string& target) {
  return impl_->commit(files, target);
}

Result<> check_name_length(const std::string& target) {
  const std::size_t most = kLongestFileName - record_path(partial_path("", std::string(kPartialIdDigits, '0'))).size();
  const std::size_t bytes = base_name(target).size();
  if (bytes <= most) return {};
  return fail(
      {.code = Errc::usage,
       .message = fmt::format("{}: the name has {} bytes; the limit for a target is {}, because its temporary file "
                              "has a longer name, and {} is the limit of file systems",
                              target, bytes, most, kLongestFileName),
       .file = target,
       .hint = "choose a shorter name"});
}

Result<std::unique_ptr<Publication>> Publication::begin(Io& io, Options options, const std::vector<TargetFile>& files) {
  auto impl = std::make_unique<Impl>(io, std::move(options));
  CKPT_CHECK(impl->begin(files));
  return std::unique_ptr<Publication>(new Publication(std::move(impl)));
}

Result<> make_files(Io& io, const std::string& root, const std::vector<TargetFile>& files) {
  RecycledFiles recycled = files.empty() ? RecycledFiles(io) : RecycledFiles::above(io, parent_path(root));
  for (const TargetFile& file : files) {
    CKPT_CHECK(make_file(io, join_path(root, file.path), OpenOptions::Mode::write_new, file.bytes, recycled));
  }
  return {};
}

Result<> finish_published(Io& io, const std::string& target, const std::string& id) {
  const std::string final_path = join_path(target, "");
  const std::string partial = partial_path(final_path, id);
  CKPT_TRY(const auto held, hold_directory(io, parent_path(final_path), {.follow = true}));
  CKPT_TRY(const auto leftover, stat_if_present(io, partial));
  CKPT_CHECK(sync_name(io, final_path, leftover ? partial : ""));
  auto swept = sweep_leftover(io, partial, {});  // every replaced file was accounted for
  if (swept && !leftover) swept = remove_record(io, record_path(partial));
  if (swept || swept.error().code == Errc::locked) return {};
  return fail(left_over_stays(std::move(swept).error(), final_path, partial));
}

Result<RemovedCheckpoint> remove_published(Io& io, const std::string& target, const std::string& id,
                                           const CheckRemovable& check) {
  CKPT_TRY(const HeldRun run, hold_run(io, parent_path(target)));
  CKPT_TRY(LockedCheckpoint held, lock_checkpoint(io, target));
  if (held.outcome != LockOutcome::free) return RemovedCheckpoint{};
  if (check) {
    const auto removable = check(io, target);
    if (!removable) return RemovedCheckpoint{.kept_because = removable.error().message};
  }
  const std::string partial = partial_path(target, id);
  CKPT_CHECK(move_checkpoint(io, target, partial));
  CKPT_CHECK(check_no_readers(io, held));
  if (held.outcome != LockOutcome::free) {
    CKPT_CHECK(move_checkpoint(io, partial, target));
    return RemovedCheckpoint{};
  }
  CKPT_CHECK(remove_tree(io, partial));
  return RemovedCheckpoint{.gone = true};
}

}  // namespace ckpt
