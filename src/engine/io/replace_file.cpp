#include "engine/io/replace_file.hpp"

#include <chrono>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "engine/io/stat_if_present.hpp"

namespace ckpt {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);  // for another writer, which is done within milliseconds
constexpr auto kPause = std::chrono::milliseconds(2);

/// Null where there are no locks.
Result<std::unique_ptr<HeldLock>> lock_in_turn(Io& io, const std::string& directory) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    auto lock = io.lock(directory, LockMode::exclusive);
    if (lock) return lock;
    if (lock.error().code == Errc::unsupported) return nullptr;
    if (lock.error().code != Errc::locked || std::chrono::steady_clock::now() > deadline) return lock;
    std::this_thread::sleep_for(kPause);
  }
}

Result<> write_temporary(Io& io, const std::string& path, std::string_view bytes) {
  // A leftover may be longer than the new content, and creating it again would not make a new file.
  auto removed = io.unlink(path);
  if (!removed && removed.error().code != Errc::not_found) return removed;
  CKPT_TRY(const FileHandle file, io.open(path, {.mode = OpenOptions::Mode::write_new}));
  auto written = io.write_at(file, 0, std::as_bytes(std::span(bytes)));
  if (written) written = io.sync(file);
  auto closed = io.close(file);
  CKPT_CHECK(std::move(written));
  return closed;
}

Result<> put_in_place(Io& io, const std::string& path, std::string_view bytes, RenameMode mode) {
  const std::string temporary = path + std::string(kTemporarySuffix);
  auto done = write_temporary(io, temporary, bytes);
  if (done) done = rename_and_look(io, temporary, path, mode);
  if (!done) {
    static_cast<void>(io.unlink(temporary));
    return done;
  }
  auto synced = io.sync_dir(parent_path(path));
  if (synced) return synced;
  Error error = std::move(synced).error();
  error.code = Errc::not_durable;
  error.message = path + (mode == RenameMode::replace ? ": replaced" : ": created") +
                  ", but possibly not durable: " + error.message;
  return fail(std::move(error));
}

}  // namespace

Result<> rename_and_look(Io& io, const std::string& from, const std::string& to, RenameMode mode) {
  const auto before = io.stat(from);
  auto renamed = io.rename(from, to, mode);
  if (renamed || !before) return renamed;
  const auto here = stat_if_present(io, from);
  const auto there = stat_if_present(io, to);
  const bool done = here && !*here && there && *there && (*there)->is_same_file(*before);
  return done ? Result<>() : renamed;
}

Result<> replace_file(Io& io, const std::string& path, std::string_view bytes) {
  return put_in_place(io, path, bytes, RenameMode::replace);
}

Result<> create_file(Io& io, const std::string& path, std::string_view bytes) {
  return put_in_place(io, path, bytes, RenameMode::no_replace);
}

Result<> replace_shared_file(Io& io, const std::string& path, std::string_view bytes) {
  CKPT_TRY(const auto lock, lock_in_turn(io, parent_path(path)));
  return replace_file(io, path, bytes);
}

}  // namespace ckpt
