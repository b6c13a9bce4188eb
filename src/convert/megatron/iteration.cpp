#include "convert/megatron/iteration.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/io/stat_if_present.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::uint64_t kMostTrackerBytes = 4096;
constexpr std::size_t kDigits = 7;
constexpr std::string_view kIteration = "iter_";

tl::unexpected<Error> wrong_tracker(const std::string& tracker, const std::string& reason) {
  return fail({.code = Errc::incomplete,
               .message = fmt::format("{}: {}", tracker, reason),
               .file = tracker,
               .hint = "give the path of an iteration"});
}

}  // namespace

std::string iteration_folder(std::optional<std::uint64_t> step) {
  return step ? fmt::format("iter_{:0{}}", *step, kDigits) : std::string(kRelease);
}

std::string tracker_text(std::optional<std::uint64_t> step) {
  return step ? std::to_string(*step) : std::string(kRelease);
}

void note_renamed(const std::string& root, Map& map) {
  const std::string name = base_name(root);
  if (!name.starts_with(kIteration)) return;
  const auto number = parse_number<std::uint64_t>(std::string_view(name).substr(kIteration.size()));
  if (number && map.meta.step && *number != *map.meta.step)
    map.findings.push_back(
        {.severity = Severity::warning,
         .text = fmt::format("the directory is named {}, but its files are of iteration {}", name, *map.meta.step)});
}

Result<std::string> tracked_iteration(Io& io, const std::string& root) {
  const std::string tracker = join_path(root, kTracker);
  CKPT_TRY(std::string text, read_small_file(io, tracker, kMostTrackerBytes));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  if (text.empty()) return wrong_tracker(tracker, "the file is empty");
  const bool is_number = text.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number && text != kRelease) return wrong_tracker(tracker, "names no iteration");
  const std::string name =
      is_number ? "iter_" + std::string(kDigits - std::min(kDigits, text.size()), '0') + text : text;
  CKPT_TRY(const auto there, stat_if_present(io, join_path(root, name)));
  if (!there) return wrong_tracker(tracker, fmt::format("names {}, which is missing", name));
  return name;
}

namespace {

/// verl has a tracker of the same name, for directories of other names.
/// source  verl/utils/checkpoint/checkpoint_manager.py: find_latest_ckpt_path
bool is_verls_step(const DirEntry& entry) {
  return entry.kind == FileInfo::Kind::directory && entry.name.starts_with("global_step_");
}

}  // namespace

Result<Layout> layout_of(const Place& place) {
  // DeepSpeed has files of such names, never directories.
  for (const DirEntry& entry : place.entries) {
    const bool is_rank = entry.kind == FileInfo::Kind::directory && entry.name.starts_with("mp_rank_");
    if (!is_rank) continue;
    CKPT_TRY(const auto file,
             stat_if_present(place.io, join_path(join_path(place.root, entry.name), "model_optim_rng.pt")));
    if (file) return Layout::rank_files;
  }
  if (!place.has("metadata.json")) return Layout::none;
  CKPT_TRY(const std::string head, place.head("metadata.json", kMostTrackerBytes));
  if (head.find("\"sharded_backend\"") == std::string::npos) return Layout::none;
  if (head.find("\"torch_dist\"") != std::string::npos) return Layout::torch_dist;
  return head.find("\"zarr\"") == std::string::npos ? Layout::other : Layout::zarr;
}

Result<std::optional<Iteration>> find_iteration(const Place& place) {
  if (!place.directory) return std::nullopt;
  if (place.has(kTracker)) {
    const auto name = tracked_iteration(place.io, place.root);
    // What it says may be wrong, which `open` reports; but that it could not be read decides nothing.
    if (!name && name.error().code != Errc::incomplete) return fail(name.error());
    if (!name) {
      if (std::ranges::any_of(place.entries, is_verls_step)) return std::nullopt;
      return Iteration{.directory = {}, .why = std::string(kTracker)};
    }
    Place inner{.io = place.io, .root = join_path(place.root, *name), .directory = true};
    CKPT_TRY(inner.entries, place.io.list(inner.root));
    Iteration out{.directory = *name, .why = fmt::format("{} names {}", kTracker, *name)};
    CKPT_TRY(out.layout, layout_of(inner));
    // Megatron-FSDP and torch_dcp write no metadata.json.
    if (out.layout == Layout::none && inner.has(".metadata")) out.layout = Layout::torch_dist;
    return out;
  }
  CKPT_TRY(const Layout layout, layout_of(place));
  if (layout == Layout::none) return std::nullopt;
  return Iteration{
      .directory = {},
      .layout = layout,
      .why = layout == Layout::rank_files ? "mp_rank_*/model_optim_rng.pt" : "metadata.json with a sharded_backend"};
}

}  // namespace ckpt::megatron
