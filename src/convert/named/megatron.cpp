#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "convert/formats.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kTracker = "latest_checkpointed_iteration.txt";
constexpr std::array kTrackers{kTracker};
constexpr std::array<std::string_view, 1> kSteps{"iter_#"};
constexpr std::array<std::string_view, 1> kMarkers{"metadata.json"};

/// `iter_0000002/mp_rank_01_003/`: a directory per tensor-, pipeline- and expert-parallel rank (DeepSpeed has files of
/// that name, never directories).
bool is_rank_directory(const DirEntry& entry) {
  return entry.kind == FileInfo::Kind::directory && entry.name.starts_with("mp_rank_");
}

Result<std::optional<Match>> detect_megatron(const Place& place) {
  if (!place.directory) return std::nullopt;
  // torch_dist is a DCP checkpoint, too.
  const std::string hint = place.has(".metadata") ? "--from dcp reads its tensors, under the names in .metadata" : "";
  if (place.has(kTracker)) return Match{.where = {}, .why = std::string(kTracker), .hint = hint};
  if (place.has("metadata.json")) {
    CKPT_TRY(const std::string head, place.head("metadata.json", 4096));
    if (head.find("\"sharded_backend\"") != std::string::npos)
      return Match{.where = {}, .why = "metadata.json with a sharded_backend", .hint = hint};
  }
  for (const DirEntry& entry : place.entries) {
    if (is_rank_directory(entry) &&
        place.io.stat(join_path(join_path(place.root, entry.name), "model_optim_rng.pt")).has_value())
      return Match{.where = {}, .why = fmt::format("{}/model_optim_rng.pt", entry.name), .hint = hint};
  }
  return std::nullopt;
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
Result<std::uint64_t> count_legacy(Io& io, const std::string& root, const std::vector<DirEntry>& entries) {
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

/// An iteration's directory. With `torch_dist` it is a DCP checkpoint, whose reader compares the sizes of all files.
Result<std::uint64_t> count_iteration(Io& io, const std::string& root) {
  CKPT_TRY(const std::vector<DirEntry> entries, io.list(root));
  if (std::any_of(entries.begin(), entries.end(), is_rank_directory)) return count_legacy(io, root, entries);
  const auto is_metadata = [](const DirEntry& entry) { return entry.name == ".metadata"; };
  if (!std::any_of(entries.begin(), entries.end(), is_metadata))
    return incomplete_megatron(root, "contains neither mp_rank_* nor .metadata");
  CKPT_TRY(const Map map, dcp_format().reader->open(io, root, {}));
  for (const Finding& finding : map.findings) {
    if (finding.severity == Severity::incomplete || finding.severity == Severity::damage)
      return incomplete_megatron(root, finding.text);
  }
  return map.files.size();
}

Result<std::uint64_t> count_megatron_files(Io& io, const std::string& root) {
  constexpr std::uint64_t kLimit = 4096;
  const std::string tracker = join_path(root, kTracker);
  if (!io.stat(tracker)) return count_iteration(io, root);
  CKPT_TRY(std::string text, read_small_file(io, tracker, kLimit));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  if (text.empty()) return incomplete_megatron(tracker, "the file is empty");
  const bool number = text.find_first_not_of("0123456789") == std::string::npos;
  if (!number && text != "release") return incomplete_megatron(tracker, "names no iteration");
  const std::string name = number ? "iter_" + std::string(7 - std::min<std::size_t>(7, text.size()), '0') + text : text;
  if (!io.stat(join_path(root, name)))
    return incomplete_megatron(tracker, fmt::format("names {}, which is missing", name));
  return count_iteration(io, join_path(root, name));
}

}  // namespace

Format megatron_format() {
  return {.name = "megatron",
          .summary = "a Megatron-LM checkpoint",
          .detect = detect_megatron,
          .names = {.steps = kSteps, .trackers = kTrackers, .markers = kMarkers},
          .count_files = count_megatron_files};
}

}  // namespace ckpt
