#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "convert/formats.hpp"
#include "convert/megatron/iteration.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

using megatron::Iteration;
using megatron::Layout;

bool is_rank_directory(const DirEntry& entry) {
  return entry.kind == FileInfo::Kind::directory && entry.name.starts_with("mp_rank_");
}

Result<std::optional<Match>> detect_legacy(const Place& place) {
  CKPT_TRY(auto found, megatron::find_iteration(place));
  if (!found || (found->layout != Layout::rank_files && found->layout != Layout::other)) return std::nullopt;
  return Match{.where = std::move(found->directory), .why = std::move(found->why)};
}

tl::unexpected<Error> incomplete_megatron(const std::string& path, const std::string& reason) {
  return fail({.code = Errc::incomplete, .message = fmt::format("{}: {}", path, reason), .file = path});
}

/// 1, 3 of `mp_rank_01_003`; nothing if a part is not a number.
std::vector<std::uint64_t> rank_of(std::string_view name) {
  name.remove_prefix(std::string_view("mp_rank").size());
  std::vector<std::uint64_t> out;
  while (name.starts_with('_')) {
    name.remove_prefix(1);
    const auto value = take_number<std::uint64_t>(name);
    if (!value) return {};
    out.push_back(*value);
  }
  return name.empty() ? out : std::vector<std::uint64_t>{};
}

/// The ranks are a full grid, and each has the same files, none of them empty.
Result<std::uint64_t> count_ranks(Io& io, const std::string& root, const std::vector<DirEntry>& entries) {
  std::uint64_t ranks = 0;
  std::uint64_t files = 0;
  std::vector<std::uint64_t> most;
  std::set<std::string> expected;
  for (const DirEntry& entry : entries) {
    if (!is_rank_directory(entry)) continue;
    const std::string path = join_path(root, entry.name);
    const std::vector<std::uint64_t> rank = rank_of(entry.name);
    if (rank.empty() || (ranks != 0 && rank.size() != most.size()))
      return incomplete_megatron(path, "not named like the other ranks");
    most.resize(rank.size());
    for (std::size_t axis = 0; axis < rank.size(); ++axis) most[axis] = std::max(most[axis], rank[axis]);
    CKPT_TRY(const std::vector<DirEntry> inside, io.list(path));
    std::set<std::string> names;
    for (const DirEntry& file : inside) {
      if (file.kind != FileInfo::Kind::file || !file.name.ends_with(".pt")) continue;
      CKPT_TRY(const FileInfo info, io.stat(join_path(path, file.name)));
      if (info.bytes == 0) return incomplete_megatron(join_path(path, file.name), "the file is empty");
      names.insert(file.name);
    }
    if (ranks++ == 0) expected = names;
    if (names.empty() || names != expected) return incomplete_megatron(path, "lacks files that other ranks have");
    files += names.size();
  }
  std::uint64_t grid = 1;
  for (const std::uint64_t last : most) grid = last < ranks ? grid * (last + 1) : 0;
  if (ranks == 0 || grid != ranks)
    return incomplete_megatron(root, fmt::format("{} ranks do not form a full grid", ranks));
  return files;
}

Result<std::uint64_t> count_legacy_files(Io& io, const std::string& root) {
  CKPT_TRY(const std::vector<DirEntry> entries, io.list(root));
  if (std::ranges::any_of(entries, is_rank_directory)) return count_ranks(io, root, entries);
  return static_cast<std::uint64_t>(std::ranges::count(entries, FileInfo::Kind::file, &DirEntry::kind));
}

}  // namespace

Format megatron_legacy_format() {
  return {.name = "megatron-legacy",
          .summary = "a Megatron-LM checkpoint with a file for each rank, or zarr arrays",
          .detect = detect_legacy,
          .has_folders = true,
          .count_files = count_legacy_files};
}

}  // namespace ckpt
