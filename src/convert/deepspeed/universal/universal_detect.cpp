#include "convert/deepspeed/universal/universal_detect.hpp"

#include <algorithm>
#include <utility>

#include "format/text/relative_path.hpp"

namespace ckpt::deepspeed {
namespace {

constexpr std::string_view kTracker = "latest_universal";
constexpr std::uint64_t kTrackerBytes = 4096;
constexpr std::size_t kMaxLooks = 64;  // directories that are looked into

/// `zero/<parameter>/fp32.pt`, with the moments next to it. Source: deepspeed/checkpoint/ds_to_universal.py.
Result<bool> has_parameters(const Place& place) {
  CKPT_TRY(const std::vector<DirEntry> parameters, place.list_below("zero"));
  std::size_t looked = 0;
  for (const DirEntry& parameter : parameters) {
    if (parameter.kind != FileInfo::Kind::directory || ++looked > kMaxLooks) continue;
    const auto there = place.io.stat(join_path(join_path(join_path(place.root, "zero"), parameter.name), "fp32.pt"));
    if (there) return true;
    if (there.error().code != Errc::not_found) return fail(there.error());
  }
  return false;
}

std::string trimmed_tag(const std::string& text) {
  constexpr const char* kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

bool has(const std::vector<DirEntry>& entries, std::string_view name, FileInfo::Kind kind) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const DirEntry& entry) { return entry.name == name && entry.kind == kind; });
}

auto incomplete(const std::string& file, const std::string& what, std::string hint) {
  return fail({.code = Errc::incomplete, .message = file + ": " + what, .file = file, .hint = std::move(hint)});
}

}  // namespace

Result<std::optional<Match>> detect_universal(const Place& place) {
  if (!place.directory) return std::nullopt;
  if (place.has(kTracker)) return Match{.where = {}, .why = std::string(kTracker)};
  CKPT_TRY(const bool found, has_parameters(place));
  if (found) return Match{.where = {}, .why = "zero/<parameter>/fp32.pt"};
  return std::nullopt;
}

Result<UniversalFolder> find_universal(Io& io, const std::string& root) {
  UniversalFolder out;
  CKPT_TRY(out.entries, io.list(root));
  if (!has(out.entries, "zero", FileInfo::Kind::directory)) {
    const std::string tracker(kTracker);
    CKPT_TRY(const std::string text, read_small_file(io, join_path(root, tracker), kTrackerBytes));
    out.directory = trimmed_tag(text);
    if (!stays_inside(out.directory)) {
      return fail(
          {.code = Errc::refused, .message = tracker + ": its folder leads out of the directory", .file = tracker});
    }
    out.chosen = "folder " + out.directory + " from '" + tracker + "'";
    auto inner = io.list(join_path(root, out.directory));
    if (!inner && inner.error().code == Errc::not_found) {
      return incomplete(tracker, "names the folder " + out.directory + ", which is missing",
                        "copy it here, or give the path of another universal folder");
    }
    CKPT_TRY(out.entries, std::move(inner));
  }
  const std::string zero = out.directory.empty() ? "zero" : join_path(out.directory, "zero");
  if (!has(out.entries, "zero", FileInfo::Kind::directory)) {
    return incomplete(zero, "the folder of the parameters is missing", "run ds_to_universal.py again");
  }
  CKPT_TRY(out.parameters, io.list(join_path(root, zero)));
  return out;
}

}  // namespace ckpt::deepspeed
