#include "api/catalog/metrics_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "engine/io/replace_file.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kMetricsBegin = "# HELP ckpt_";

/// Metrics replace only metrics: not a device, a pipe, a manifest, or a link.
Result<> check_metrics_file(Io& io, const std::string& file) {
  const auto refused = [&](const char* why) {
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: {}", file, why),
                 .file = file,
                 .hint = "name a new file, or one written by --prom"});
  };
  CKPT_TRY(const auto entries, io.list(parent_path(file)));
  const auto there = std::ranges::find(entries, base_name(file), &DirEntry::name);
  if (there == entries.end()) return {};
  if (there->is_link) return refused("is a symbolic link");
  if (there->kind != FileInfo::Kind::file) return refused("is not a regular file");
  CKPT_TRY(const FileInfo info, io.stat(file));
  if (info.bytes == 0) return {};
  std::string first(std::min<std::size_t>(kMetricsBegin.size(), info.bytes), '\0');
  CKPT_TRY(const FileHandle handle, io.open(file, {}));
  const auto read = io.read_at(handle, 0, std::as_writable_bytes(std::span(first)));
  static_cast<void>(io.close(handle));
  if (!read) return fail(read.error());
  return first == kMetricsBegin ? Result<>() : refused("holds something other than metrics of ckpt");
}

}  // namespace

Result<> write_metrics(Io& io, const std::string& file, std::string_view text) {
  CKPT_CHECK(check_metrics_file(io, file));
  return replace_shared_file(io, file, text);
}

}  // namespace ckpt
