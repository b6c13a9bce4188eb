#include "engine/run/worker_files.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/run/source_files.hpp"

namespace ckpt {

WorkerFiles::WorkerFiles(RunShared& shared, Io& io)
    : shared_(shared), io_(io), source_count_(shared.plan.source().files.size()) {
  files_.resize(2 * source_count_ + shared.plan.targets().size());
}

std::size_t WorkerFiles::index_of(Name name) const {
  if (name.kind == Kind::target) return 2 * source_count_ + name.file;
  return 2 * std::size_t{name.file} + (name.kind == Kind::sparse ? 1 : 0);
}

WorkerFiles::Name WorkerFiles::name_of(std::size_t index) const {
  if (index >= 2 * source_count_) return {Kind::target, static_cast<std::uint32_t>(index - 2 * source_count_)};
  return {index % 2 == 0 ? Kind::dense : Kind::sparse, static_cast<std::uint32_t>(index / 2)};
}

std::string WorkerFiles::source_path(std::uint32_t file) const {
  return path_of(shared_.plan.source(), file, shared_.source_root);
}

Result<std::optional<FileHandle>> WorkerFiles::open(Name name) {
  const std::size_t index = index_of(name);
  OpenFile& wanted = files_[index];
  if (wanted.handle.value >= 0) {
    order_.splice(order_.end(), order_, wanted.place);
    return wanted.handle;
  }
  for (;;) {
    CKPT_TRY(const bool room, make_room());
    if (!room) return std::nullopt;
    auto opened = open_now(name);
    if (opened) {
      wanted.handle = *opened;
      wanted.place = order_.insert(order_.end(), index);
      return wanted.handle;
    }
    leave_slot();
    // Others in this process open files too.
    const int reason = opened.error().system_code;
    if (reason != EMFILE && reason != ENFILE) return fail(std::move(opened).error());
    CKPT_TRY(const bool closed, close_idle());
    if (closed) continue;
    if (order_.empty()) return fail(std::move(opened).error());
    return std::nullopt;
  }
}

/// Takes a descriptor; false if none is free and none of ours is idle.
Result<bool> WorkerFiles::make_room() {
  for (;;) {
    if (slots_ == 0 || shared_.open_files.try_take()) {
      ++slots_;
      return true;
    }
    CKPT_TRY(const bool closed, close_idle());
    if (!closed) return false;
  }
}

void WorkerFiles::leave_slot() {
  if (--slots_ > 0) shared_.open_files.give_back();
}

Result<bool> WorkerFiles::close_idle() {
  const auto find = [&](bool target) {
    return std::find_if(order_.begin(), order_.end(), [&](std::size_t index) {
      return files_[index].in_flight == 0 && (name_of(index).kind == Kind::target) == target;
    });
  };
  auto idle = find(false);
  if (idle == order_.end()) idle = find(true);
  if (idle == order_.end()) return false;
  CKPT_CHECK(close(*idle));
  return true;
}

Result<FileHandle> WorkerFiles::open_now(Name name) {
  if (name.kind == Kind::target) {
    const std::string& path = shared_.plan.targets()[name.file].path;
    CKPT_TRY(const FileHandle handle,
             io_.open(path.empty() ? shared_.target_root : join_path(shared_.target_root, path),
                      {.mode = OpenOptions::Mode::write_existing, .direct = true}));
    if (!io_.is_direct(handle)) all_direct_ = false;
    return handle;
  }
  // Recently decoded data is still in memory, and need not go to the disk first.
  const MapFile& file = shared_.plan.source().files[name.file];
  const bool direct = name.kind == Kind::dense && !is_temporary(file);
  const std::string path = source_path(name.file);
  CKPT_TRY(const FileHandle handle, io_.open(path, {.mode = OpenOptions::Mode::read, .direct = direct}));
  CKPT_TRY(const FileInfo now, io_.info(handle));
  CKPT_CHECK(check_unchanged(path, file, now));
  if (direct && !io_.is_direct(handle)) all_direct_ = false;
  return handle;
}

/// Data read from a source is useless if the source changed in the meantime. In a target, the padding of its last block
/// is cut off first.
Result<> WorkerFiles::close(std::size_t index) {
  OpenFile& file = files_[index];
  const Name name = name_of(index);
  if (name.kind == Kind::target) {
    const std::uint64_t bytes = shared_.plan.targets()[name.file].bytes;
    if (std::exchange(file.has_tail, false) && bytes % kAlignment != 0) CKPT_CHECK(io_.truncate(file.handle, bytes));
    CKPT_CHECK(io_.sync(file.handle));
  } else {
    CKPT_TRY(const FileInfo now, io_.info(file.handle));
    CKPT_CHECK(check_unchanged(source_path(name.file), shared_.plan.source().files[name.file], now));
  }
  order_.erase(file.place);
  leave_slot();
  return io_.close(std::exchange(file.handle, {}));
}

Result<> WorkerFiles::close_all() {
  // Targets first: their files are synced in the plan's order.
  for (std::size_t index = 2 * source_count_; index < files_.size(); ++index)
    if (files_[index].handle.value >= 0) CKPT_CHECK(close(index));
  while (!order_.empty()) CKPT_CHECK(close(order_.front()));
  return {};
}

}  // namespace ckpt
