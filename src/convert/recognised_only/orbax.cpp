#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "convert/formats.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kTemporary = ".orbax-checkpoint-tmp";
constexpr std::array<std::string_view, 3> kMarks{"_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt"};
constexpr std::array<std::string_view, 1> kOrbaxSteps{"#"};
constexpr std::array<std::string_view, 4> kOrbaxMarkers{"commit_success.txt", kMarks[0], kMarks[1], kMarks[2]};
constexpr std::size_t kMaxSteps = 256;  // sub-directories that are searched

bool is_step(std::string_view name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
}

tl::unexpected<Error> uncommitted(const std::string& path) {
  return fail({.code = Errc::uncommitted,
               .message = path + ": an Orbax save that never finished",
               .file = path,
               .hint = "Orbax gives this name to unfinished saves; use an earlier step"});
}

/// Orbax renames a finished directory; on a POSIX file system its name is the only sign.
/// Source: orbax/checkpoint/_src/path/step.py, is_tmp_checkpoint.
Result<std::optional<Match>> detect_orbax(const Place& place) {
  if (!place.directory) return std::nullopt;
  const bool temporary = base_name(place.root).find(kTemporary) != std::string::npos;
  for (const std::string_view mark : kMarks) {
    if (!place.has(mark)) continue;
    if (temporary) return uncommitted(place.root);
    return Match{.where = {}, .why = std::string(mark)};
  }
  // A directory with a checkpoint in it. Steps of a manager are checkpoints of their own.
  std::string unfinished;
  std::size_t looked = 0;
  for (const DirEntry& entry : place.entries) {
    if (entry.kind != FileInfo::Kind::directory || ++looked > kMaxSteps) continue;
    const std::string below = join_path(place.root, entry.name);
    if (entry.name.find(kTemporary) != std::string::npos) {
      unfinished = below;
    } else if (place.io.stat(join_path(below, kMarks[0])).has_value() ||
               place.io.stat(join_path(below, kMarks[1])).has_value()) {
      if (is_step(entry.name)) return std::nullopt;
      return Match{.where = {}, .why = fmt::format("{}/ with Orbax metadata", entry.name)};
    }
  }
  if (!unfinished.empty()) return uncommitted(unfinished);
  return std::nullopt;
}

tl::unexpected<Error> incomplete_orbax(const std::string& path, const std::string& reason) {
  return fail({.code = Errc::incomplete, .message = fmt::format("{}: {}", path, reason), .file = path});
}

/// Values stored as arrays, by `_METADATA` of an item; old releases wrote none. Strings are in
/// `_strings.json`.
Result<std::uint64_t> count_arrays(Io& io, const std::string& item) {
  constexpr std::uint64_t kLimit = std::uint64_t{256} << 20;
  constexpr std::string_view kWord = "\"skip_deserialize\":";
  constexpr std::string_view kString = "\"value_type\": \"string\"";
  const std::string path = join_path(item, kMarks[1]);
  if (!io.stat(path)) return 0;
  CKPT_TRY(const std::string text, read_small_file(io, path, kLimit));
  std::uint64_t count = 0;
  for (std::size_t at = text.find(kWord); at != std::string::npos; at = text.find(kWord, at)) {
    at = std::min(text.find_first_not_of(' ', at + kWord.size()), text.size());
    count += text.compare(at, 5, "false") == 0 ? 1U : 0U;
  }
  for (std::size_t at = text.find(kString); at != std::string::npos; at = text.find(kString, at + 1))
    count -= std::min<std::uint64_t>(count, 1);
  return count;
}

/// The files of an OCDBT database: its manifest, and nodes and values below it.
Result<std::uint64_t> count_database(Io& io, const std::string& root) {
  const std::string manifest = join_path(root, kMarks[2]);
  const auto info = io.stat(manifest);
  if (!info || info->bytes == 0) return incomplete_orbax(manifest, "missing, or empty");
  std::uint64_t files = 1;
  for (const std::string_view folder : {"d", "ocdbt_data", "ocdbt_meta"}) {
    const auto entries = io.list(join_path(root, folder));
    if (entries) files += entries->size();
  }
  return files;
}

/// A folder that holds one pytree: a database, or a folder of zarr chunks for each array.
Result<std::uint64_t> count_item(Io& io, const std::string& item) {
  CKPT_TRY(const std::vector<DirEntry> entries, io.list(item));
  CKPT_TRY(const std::uint64_t arrays, count_arrays(io, item));
  std::uint64_t files = 0;
  std::uint64_t folders = 0;  // of an array
  bool is_database = false;
  for (const DirEntry& entry : entries) {
    const std::string below = join_path(item, entry.name);
    if (entry.kind != FileInfo::Kind::directory) {
      is_database |= entry.name == kMarks[2];
    } else if (entry.name.starts_with("ocdbt.process_")) {
      is_database = true;
      CKPT_TRY(const std::uint64_t own, count_database(io, below));
      files += own;
    } else if (io.stat(join_path(below, ".zarray")) || io.stat(join_path(below, "zarr.json"))) {
      ++folders;
    }
  }
  if (is_database) {
    CKPT_TRY(const std::uint64_t merged, count_database(io, item));
    files += merged;
    if (arrays != 0 && merged < 2) return incomplete_orbax(item, "the database contains only a manifest");
    return files;
  }
  if (folders < arrays) return incomplete_orbax(item, fmt::format("{} arrays, but only {} exist", arrays, folders));
  return folders;
}

/// Step directories: one folder an item, or the item itself. A manager's directory holds several of these.
Result<std::uint64_t> count_step(Io& io, const std::string& root, bool looks_into_steps) {
  const auto is_item = [&](const std::string& path) {
    return io.stat(join_path(path, kMarks[1])).has_value() || io.stat(join_path(path, kMarks[2])).has_value();
  };
  if (is_item(root)) return count_item(io, root);
  CKPT_TRY(const std::vector<DirEntry> entries, io.list(root));
  std::uint64_t files = 0;
  for (const DirEntry& entry : entries) {
    const std::string below = join_path(root, entry.name);
    if (entry.kind != FileInfo::Kind::directory || entry.name.find(kTemporary) != std::string::npos) continue;
    const bool item = is_item(below);
    const bool step = !item && looks_into_steps && io.stat(join_path(below, kMarks[0])).has_value();
    if (!item && !step) continue;
    CKPT_TRY(const std::uint64_t own, item ? count_item(io, below) : count_step(io, below, false));
    files += own;
  }
  if (files == 0) return incomplete_orbax(root, "none of its items contains data");
  return files;
}

Result<std::uint64_t> count_orbax_files(Io& io, const std::string& root) {
  return count_step(io, root, true);
}

}  // namespace

Format orbax_format() {
  return {.name = "orbax",
          .summary = "an Orbax checkpoint (JAX)",
          .detect = detect_orbax,
          .names = {.steps = kOrbaxSteps, .markers = kOrbaxMarkers},
          .count_files = count_orbax_files};
}

}  // namespace ckpt
