#include "convert/universal/referenced_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "convert/extras.hpp"
#include "engine/io/real_path.hpp"
#include "format/text/quantity.hpp"
#include "format/universal/format_check.hpp"

namespace ckpt::universal {
namespace {

tl::unexpected<Error> differs(const std::string& path, std::string_view how) {
  return violates(
      Check::referenced_same,
      Error{.message = fmt::format("{}: {} since the virtual checkpoint was written", path, how),
            .file = path,
            .hint = "convert its checkpoint again; copies keep their times only with 'cp -a' or 'rsync -a'"});
}

/// A path relative to a directory without links: "../src" from "/a/v" is "/a/src".
std::string seen_from(std::string directory, std::string_view path) {
  for (; path.starts_with("../") && directory.starts_with('/'); path.remove_prefix(3))
    directory = parent_path(directory);
  return join_path(directory, path);
}

/// The record was made when the virtual checkpoint was written. Nothing is opened that is not a regular file.
Result<FileInfo> recognise_file(Io& io, const std::string& path, const ReferencedFile& record) {
  const auto info = io.stat(path);
  if (!info && info.error().code == Errc::not_found)
    return violates(Check::referenced_present,
                    Error{.message = path + ": missing, but the virtual checkpoint refers to it",
                          .file = path,
                          .hint = "put the file back, or convert its checkpoint again"});
  CKPT_TRY(const FileInfo now, info);
  if (now.kind != FileInfo::Kind::file) return differs(path, "replaced by something other than a file");
  if (now.bytes != record.bytes)
    return differs(path, fmt::format("size changed from {} to {} bytes", record.bytes, now.bytes));
  if (now.mtime_ns != record.mtime_ns) return differs(path, "written or copied");
  CKPT_TRY(const Hash128 head, hash_range(io, path, {0, std::min(now.bytes, kHeadBytes)}));
  if (head != record.head) return differs(path, "its first bytes changed");
  return now;
}

}  // namespace

Result<> add_referenced_files(Io& io, const std::string& root, std::span<const ReferencedSource> sources,
                              bool report_references, Map& map) {
  const std::string directory = real_path(root).value_or(root);
  for (const ReferencedSource& source : sources) {
    const std::string named = source.path.starts_with('/') ? source.path : seen_from(directory, source.path);
    const std::string base = real_path(named).value_or(named);
    std::uint64_t bytes = 0;
    for (const ReferencedFile& record : source.files) {
      MapFile file{.path = record.path, .bytes = record.bytes, .mtime_ns = record.mtime_ns, .root = base};
      const std::string path = record.path.empty() ? base : join_path(base, record.path);
      const auto now = recognise_file(io, path, record);
      if (!now && !report_references) return fail(now.error());
      if (!now)
        map.findings.push_back(
            {.severity = Severity::incomplete, .text = now.error().message, .file = now.error().file});
      // Of a file that is another one: it is not used, only named.
      if (const auto other = now ? now : io.stat(path)) {
        file.bytes = other->bytes;
        file.mtime_ns = other->mtime_ns;
      }
      bytes += file.bytes;
      map.files.push_back(std::move(file));
    }
    map.findings.push_back({.severity = Severity::note,
                            .text = fmt::format("virtual: refers to {} {} ({}) in {}", source.files.size(),
                                                source.files.size() == 1 ? "file" : "files", size_text(bytes), base)});
  }
  return {};
}

}  // namespace ckpt::universal
