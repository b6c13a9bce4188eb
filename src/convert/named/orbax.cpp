#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "convert/formats.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kTemporary = ".orbax-checkpoint-tmp";
constexpr std::array<std::string_view, 3> kMarks{"_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt"};
constexpr std::size_t kMaxSteps = 256;  // sub-directories that are looked into

tl::unexpected<Error> uncommitted(const std::string& path) {
  return fail({.code = Errc::uncommitted,
               .message = path + ": open: an Orbax save that never finished",
               .file = path,
               .hint = "its name is Orbax's for unfinished work; use an earlier step"});
}

/// Orbax renames a finished directory; on a POSIX file system its name is the only sign.
/// Source: orbax/checkpoint/_src/path/step.py, is_tmp_checkpoint.
Result<std::optional<Match>> detect(const Place& place) {
  if (!place.directory) return std::nullopt;
  const bool temporary = base_name(place.root).find(kTemporary) != std::string::npos;
  for (const std::string_view mark : kMarks) {
    if (!place.has(mark)) continue;
    if (temporary) return uncommitted(place.root);
    return Match{.where = {}, .why = std::string(mark)};
  }
  // A manager's directory: one sub-directory a step.
  std::string unfinished;
  std::size_t looked = 0;
  for (const DirEntry& entry : place.entries) {
    if (entry.kind != FileInfo::Kind::directory || ++looked > kMaxSteps) continue;
    const std::string below = join_path(place.root, entry.name);
    if (entry.name.find(kTemporary) != std::string::npos) {
      unfinished = below;
    } else if (place.io.stat(join_path(below, kMarks[0])).has_value() ||
               place.io.stat(join_path(below, kMarks[1])).has_value()) {
      return Match{.where = {}, .why = fmt::format("{}/ with Orbax metadata", entry.name)};
    }
  }
  if (!unfinished.empty()) return uncommitted(unfinished);
  return std::nullopt;
}

}  // namespace

Format orbax_format() {
  return {.name = "orbax",
          .summary = "an Orbax checkpoint (JAX)",
          .detect = detect,
          .open = nullptr,
          .lay_out = nullptr,
          .suffix = ""};
}

}  // namespace ckpt
