#include "api/convert/inspect_unread.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "api/convert/model_facts.hpp"
#include "convert/detection.hpp"
#include "convert/foreign_names.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kMostFiles = 100'000;
constexpr std::size_t kDeepest = 8;
constexpr std::uint64_t kTrackerBytes = 4096;

struct Files {
  std::vector<std::pair<std::string, std::uint64_t>> files{};
  std::uint64_t bytes = 0;
  std::int64_t newest_ns = 0;
};

/// Every file below a directory, links not followed.
Result<> collect(Io& io, const std::string& root, const std::string& below, std::size_t depth, Files& out) {
  CKPT_TRY(const std::vector<DirEntry> entries, io.list(join_path(root, below)));
  for (const DirEntry& entry : entries) {
    const std::string path = below.empty() ? entry.name : join_path(below, entry.name);
    if (entry.is_link || out.files.size() == kMostFiles) continue;
    if (entry.kind == FileInfo::Kind::directory && depth < kDeepest)
      CKPT_CHECK(collect(io, root, path, depth + 1, out));
    if (entry.kind != FileInfo::Kind::file) continue;
    const auto info = io.stat(join_path(root, path));
    if (!info) continue;
    out.files.emplace_back(path, info->bytes);
    out.bytes += info->bytes;
    out.newest_ns = std::max(out.newest_ns, info->mtime_ns);
  }
  return {};
}

/// The step in its name, or in a tracker next to the checkpoints; else the greatest of the directories below.
std::optional<std::uint64_t> step_of(Io& io, const std::string& root) {
  const ForeignNames names = foreign_names();
  if (const auto step = names.step_in(base_name(root))) return step;
  for (const std::string_view tracker : names.trackers) {
    const auto text = read_small_file(io, join_path(root, tracker), kTrackerBytes);
    if (!text) continue;
    const std::string word = text->substr(0, text->find_last_not_of(" \t\r\n") + 1);
    if (const auto step = parse_number<std::uint64_t>(word)) return step;
    if (const auto step = names.step_in(word)) return step;
  }
  std::optional<std::uint64_t> greatest;
  const auto entries = io.list(root);
  if (!entries) return greatest;
  for (const DirEntry& entry : *entries)
    if (entry.kind == FileInfo::Kind::directory) greatest = std::max(greatest, names.step_in(entry.name));
  return greatest;
}

}  // namespace

Result<std::optional<InspectReport>> inspect_unread(Session& session, const std::string& path,
                                                    const std::string& from) {
  CKPT_TRY(auto found, find_unread(session.io, path, from));
  if (!found) return std::nullopt;
  InspectReport out{.path = path, .root = found->root, .format = std::string(found->format->name)};
  out.is_readable = false;
  out.summary = found->format->summary;
  out.why = found->match.why;
  out.hint = found->match.hint;
  CKPT_TRY(const FileInfo info, session.io.stat(found->root));
  Files files;
  if (info.kind == FileInfo::Kind::directory) {
    CKPT_CHECK(collect(session.io, found->root, "", 0, files));
    out.meta.step = step_of(session.io, found->root);
  } else {
    files = {.files = {{base_name(found->root), info.bytes}}, .bytes = info.bytes, .newest_ns = info.mtime_ns};
  }
  out.file_count = files.files.size();
  out.file_bytes = files.bytes;
  out.files = std::move(files.files);
  std::ranges::sort(out.files);
  if (files.newest_ns > 0) out.facts.push_back(saved_fact(files.newest_ns));
  if (found->format->describe != nullptr) {
    CKPT_TRY(auto described, found->format->describe(session.io, found->root));
    for (auto& [name, text] : described) out.facts.push_back({std::move(name), std::move(text)});
  }
  out.is_checked = found->format->count_files != nullptr;
  if (!out.is_checked) return out;
  if (const auto counted = found->format->count_files(session.io, found->root); !counted) {
    const Error& error = counted.error();
    if (error.code != Errc::incomplete) return fail(error);
    out.complete = false;
    out.findings.push_back({.severity = Severity::incomplete, .text = error.message, .file = error.file});
  }
  return out;
}

}  // namespace ckpt
