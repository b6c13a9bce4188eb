#include "convert/place.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace ckpt {

bool Place::has(std::string_view name) const {
  const auto at = std::lower_bound(entries.begin(), entries.end(), name,
                                   [](const DirEntry& entry, std::string_view n) { return entry.name < n; });
  return at != entries.end() && at->name == name;
}

Result<std::vector<DirEntry>> Place::list_below(std::string_view name) const {
  const bool is_there = std::ranges::any_of(
      entries, [&](const DirEntry& entry) { return entry.name == name && entry.kind == FileInfo::Kind::directory; });
  if (!is_there) return std::vector<DirEntry>{};
  auto listed = io.list(join_path(root, name));
  if (!listed && listed.error().code == Errc::not_found) return std::vector<DirEntry>{};
  return listed;
}

void Place::read_first() {
  if (auto read = head("", kFirstBytes)) first = *std::move(read);
}

Result<std::string> Place::head(std::string_view relative, std::size_t bytes) const {
  if (relative.empty() && !first.empty() && bytes <= kFirstBytes) return first.substr(0, bytes);
  const std::string path = relative.empty() ? root : join_path(root, relative);
  // Asked before opening: opening a FIFO would wait for its writer.
  CKPT_TRY(const FileInfo info, io.stat(path));
  if (info.kind != FileInfo::Kind::file) return fail(about_path(path, Errc::unsupported, "not a file"));
  CKPT_TRY(const FileHandle file, io.open(path, {}));
  std::string out(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, info.bytes)), '\0');
  auto read = io.read_at(file, 0, std::as_writable_bytes(std::span(out)));
  const auto closed = io.close(file);
  if (!read) return fail(std::move(read).error());
  if (!closed) return fail(closed.error());
  return out;
}

Error about_path(const std::string& path, Errc code, const std::string& reason, std::string hint) {
  return {.code = code, .message = fmt::format("{}: {}", path, reason), .file = path, .hint = std::move(hint)};
}

}  // namespace ckpt
