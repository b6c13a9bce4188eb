#include "engine/io/io.hpp"

#include <fmt/format.h>

#include "engine/io/system_error.hpp"
#include "engine/io/thread_io.hpp"
#include "engine/io/uring_io.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kMaxQueueDepth = 4096;
constexpr unsigned kTries = 4;  // to read a small file that other hosts replace in the meantime

std::string_view without_trailing_slashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

}  // namespace

Result<std::unique_ptr<Io>> open_io(IoKind kind, std::size_t queue_depth) {
  if (queue_depth == 0 || queue_depth > kMaxQueueDepth) {
    return fail(Errc::internal, fmt::format("open_io: a queue of {} requests", queue_depth));
  }
  if (kind == IoKind::threads) return make_thread_io(queue_depth);
  auto uring = open_uring_io(queue_depth);
  if (uring || kind == IoKind::uring) return uring;
  return make_thread_io(queue_depth);
}

void Io::beat() {
  // By index: a callback may attend one more.
  for (std::size_t i = 0; i < attended_.size(); ++i) attended_[i]->beat();
}

void Io::add_heartbeat(HeartbeatClient& one) {
  attended_.push_back(&one);
}

void Io::remove_heartbeat(HeartbeatClient& one) {
  std::erase(attended_, &one);
}

namespace {

Result<std::string> read_once(Io& io, const std::string& path, std::uint64_t limit) {
  CKPT_TRY(const FileHandle file, io.open(path, {.mode = OpenOptions::Mode::read}));
  const auto read = [&]() -> Result<std::string> {
    CKPT_TRY(const FileInfo info, io.info(file));
    if (info.bytes > limit) {
      return fail({.code = Errc::corrupt,
                   .message = fmt::format("{}: {} bytes, over the limit of {}", path, info.bytes, limit),
                   .file = path});
    }
    std::string text(static_cast<std::size_t>(info.bytes), '\0');
    CKPT_CHECK(io.read_at(file, 0, std::as_writable_bytes(std::span(text))));
    return text;
  };
  auto text = read();
  auto closed = io.close(file);
  if (text && !closed) return fail(std::move(closed).error());
  return text;
}

}  // namespace

Result<std::string> read_small_file(Io& io, const std::string& path, std::uint64_t limit) {
  auto text = read_once(io, path, limit);
  // Marks, manifests and claims are replaced by rename: the next one has the name.
  for (unsigned n = 1; n < kTries && !text && is_stale(text.error()); ++n) text = read_once(io, path, limit);
  return text;
}

std::string join_path(std::string_view directory, std::string_view name) {
  directory = without_trailing_slashes(directory);
  while (!name.empty() && name.front() == '/') name.remove_prefix(1);
  if (name.empty()) return std::string(directory);
  if (directory.empty()) return std::string(name);
  return directory == "/" ? fmt::format("/{}", name) : fmt::format("{}/{}", directory, name);
}

std::string base_name(std::string_view path) {
  path = without_trailing_slashes(path);
  if (path == "/") return "/";
  return std::string(path.substr(path.rfind('/') + 1));  // npos + 1 is 0
}

std::string parent_path(std::string_view path) {
  path = without_trailing_slashes(path);
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(without_trailing_slashes(path.substr(0, slash)));
}

}  // namespace ckpt
