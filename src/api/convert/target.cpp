#include "api/convert/target.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "catalog/scan/entry.hpp"
#include "catalog/scan/marks.hpp"
#include "catalog/scan/reference_marks.hpp"
#include "convert/detection.hpp"
#include "convert/extras.hpp"
#include "engine/io/real_path.hpp"
#include "engine/publish/publish.hpp"
#include "engine/run/checks.hpp"
#include "format/files/written_beside.hpp"
#include "format/text/glob.hpp"
#include "format/text/name_list.hpp"
#include "format/text/quantity.hpp"

namespace ckpt {
namespace {

std::string writable_formats() {
  std::string names;
  for (const Format& format : formats()) {
    if (format.writer) names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  return names;
}

bool takes(const Format& format, std::string_view flag) {
  return format.writer && std::ranges::find(format.writer->options, flag) != format.writer->options.end();
}

/// The only format that takes all options of single formats; null: none does, or several do.
const Format* format_of(const TargetOptions& options) {
  const std::vector<std::string_view> given = given_options(options);
  const Format* found = nullptr;
  for (const Format& format : formats()) {
    if (given.empty() || !std::ranges::all_of(given, [&](std::string_view flag) { return takes(format, flag); }))
      continue;
    if (found != nullptr) return nullptr;
    found = &format;
  }
  return found;
}

}  // namespace

Result<const Format*> choose_target(const ConvertRequest& request) {
  if (!request.to.empty()) {
    const Format* format = find_format(request.to);
    if (format != nullptr && format->writer) return format;
    return fail({.code = Errc::usage,
                 .message = request.target + ": --to '" + request.to + "' cannot be written",
                 .hint = "supported formats: " + writable_formats()});
  }
  const std::string target = join_path(request.target, "");
  for (const Format& format : formats()) {
    const auto ends = [&](std::string_view suffix) { return target.ends_with(suffix); };
    if (format.writer && std::ranges::any_of(format.writer->suffixes, ends)) return &format;
  }
  for (const Format& format : formats()) {
    for (const std::string_view suffix : format.suffixes) {
      if (!target.ends_with(suffix)) continue;
      return fail(
          {.code = Errc::unsupported,
           .message = request.target + ": the suffix " + std::string(suffix) + " means " + std::string(format.summary) +
                      ", which ckpt cannot write",
           .hint = "use X.safetensors, X.h5 or a directory; --to FORMAT keeps the name: " + writable_formats()});
    }
  }
  if (const Format* format = format_of(request.options)) return format;
  return find_format("ckpt");
}

Result<> check_options(const ConvertRequest& request, const Format& target) {
  for (const std::string_view flag : given_options(request.options)) {
    if (takes(target, flag)) continue;
    std::string others;
    for (const Format& format : formats()) {
      if (takes(format, flag)) others += (others.empty() ? "--to " : ", --to ") + std::string(format.name);
    }
    return fail(
        {.code = Errc::usage,
         .message = fmt::format("{}: --{} is not an option of the {} format", request.target, flag, target.name),
         .hint = others.empty() ? "" : fmt::format("--{} goes with {}", flag, others)});
  }
  return {};
}

Result<> check_committed_place(const std::string& path) {
  if (!is_in_partial(join_path(path, ""))) return {};
  return fail({.code = Errc::usage,
               .message = path + ": names like NAME.partial-ID are reserved for unfinished conversions",
               .file = path,
               .hint = "choose another name or directory"});
}

Result<> check_parent(Io& io, const std::string& target) {
  const std::string parent = parent_path(join_path(target, ""));
  CKPT_CHECK(check_committed_place(target));
  const auto info = io.stat(parent);
  if (!info && info.error().code == Errc::not_found)
    return fail(
        {.code = Errc::not_found, .message = target + ": directory " + parent + " does not exist", .file = parent});
  if (!info) return fail(info.error());
  if (info->kind != FileInfo::Kind::directory)
    return fail({.code = Errc::usage,
                 .message = target + ": " + parent + " is not a directory",
                 .file = parent,
                 .hint = "choose a target in an existing directory"});
  return {};
}

Result<> check_outside(Io& io, const ConvertRequest& request, const std::string& source_root) {
  CKPT_TRY(const FileInfo source, io.stat(source_root));
  CKPT_TRY(const FileInfo parent, io.stat(parent_path(join_path(request.target, ""))));
  if (source.kind != FileInfo::Kind::directory || source.device != parent.device || source.inode != parent.inode)
    return {};
  return fail({.code = Errc::usage,
               .message = request.target + ": the target is inside the source and would become part of it",
               .file = request.target,
               .hint = "choose a target in another directory"});
}

Result<> check_apart(Io& io, const ConvertRequest& request, const std::string& source_root) {
  CKPT_TRY(const FileInfo source, io.stat(source_root));
  const auto target = io.stat(request.target);
  if (!target || source.device != target->device || source.inode != target->inode) return {};
  return fail({.code = Errc::usage,
               .message = request.target + ": the target is the source",
               .file = request.target,
               .hint = "choose another target; remove the source once that is verified"});
}

namespace {

Error not_replaced(const std::string& path, std::string_view reason) {
  return {.code = Errc::usage,
          .message = path + ": cannot overwrite: " + std::string(reason),
          .file = path,
          .hint = "choose another target"};
}

constexpr std::uint64_t kMostListBytes = std::uint64_t{1} << 20;

/// A checkpoint's root below a path, and its format; its map if the format is read.
struct OldCheckpoint {
  const Format* format = nullptr;
  std::string root{};
  std::vector<MapFile> files{};
  bool collection = false;
  WrittenBeside written_beside{};
  bool has_list = false;  ///< written_beside is that of kBesideFile
};

/// Adds what kBesideFile in the root lists, if it is such a file.
Result<> read_list_beside(Session& session, OldCheckpoint& found) {
  const std::string name(kBesideFile);
  CKPT_TRY(const auto entries, session.io.list(found.root));
  const auto entry = std::ranges::find(entries, name, &DirEntry::name);
  if (entry == entries.end() || entry->is_link || entry->kind != FileInfo::Kind::file) return {};
  const auto text = read_small_file(session.io, join_path(found.root, name), kMostListBytes);
  if (!text) return {};  // without a list, files beside the checkpoint stop the conversion
  found.written_beside = parse_written_beside(*text);
  found.has_list = !found.written_beside.empty();
  return {};
}

Result<OldCheckpoint> recognise_target(Session& session, const Format& target, const std::string& path) {
  auto opened = open_source(session.io, path, "", {.metadata_limit = session.memory_bytes, .report_references = true});
  if (opened) {
    OldCheckpoint found{opened->format, opened->root, std::move(opened->map.files), opened->map.collection,
                        std::move(opened->map.written_beside)};
    if (found.written_beside.empty()) CKPT_CHECK(read_list_beside(session, found));
    return found;
  }
  if (opened.error().code == Errc::ambiguous) return fail(not_replaced(path, opened.error().message));
  if (opened.error().code == Errc::io || opened.error().code == Errc::locked) return fail(opened.error());
  const bool is_unread_form = target.parts_writer && !target.reader;
  if (is_unread_form) {
    Place place{.io = session.io, .root = path, .directory = true};
    CKPT_TRY(place.entries, session.io.list(path));
    CKPT_TRY(const auto match, target.detect(place));
    if (match) return OldCheckpoint{&target, path};
  }
  const Errc code = opened.error().code;
  const bool is_damaged = code == Errc::corrupt || code == Errc::checksum || code == Errc::incomplete;
  return fail(not_replaced(path, is_damaged ? "which files belong to it is not known: " + opened.error().message
                                            : "a directory that is not a checkpoint"));
}

std::string first_names(const std::vector<MapFile>& files) {
  NameList names;
  for (const MapFile& file : files) names.add(file.path);
  return names.text();
}

/// Matching names in a directory; a pattern without wildcards only tests whether the name exists.
Result<> add_own_names(Io& io, const Format& format, const std::string& directory, const std::string& prefix,
                       std::vector<std::string>& out) {
  CKPT_TRY(const auto entries, io.list(directory));
  for (const std::string_view own : format.own_names) {
    if (own.find_first_of("*?") == std::string_view::npos) out.push_back(join_path(prefix, own));
    for (const DirEntry& entry : entries) {
      if (matches_glob(entry.name, own)) out.push_back(join_path(prefix, entry.name));
    }
  }
  return {};
}

/// Device and inode: two names may be one file.
using FileId = std::pair<std::uint64_t, std::uint64_t>;

/// A directory that may be a checkpoint which contains this one.
struct Above {
  std::string path;
  bool holds_it = false;  ///< the file itself is directly in it
};

/// The directories above a file, by the names in its path and by its resolved path, which may differ.
std::vector<Above> directories_above(const std::string& path) {
  constexpr int kMostAbove = 3;  // folders of a checkpoint above its files
  std::vector<Above> out;
  std::set<std::string> known;
  std::string at = parent_path(path);
  const auto real = real_path(at);
  for (int i = 0; i < kMostAbove; ++i, at = parent_path(at)) {
    known.insert(real_path(at).value_or(at));
    out.push_back({at, i == 0});
    if (at == "." || at == "/" || base_name(at) == "..") break;
  }
  if (!real) return out;
  // Below the directory that the process works in they are shown by relative paths, as the file was given.
  const auto here = path.starts_with('/') ? std::nullopt : real_path(".");
  at = *real;
  for (int i = 0; i < kMostAbove; ++i, at = parent_path(at)) {
    const bool is_below = here && at.starts_with(*here + "/");
    if (known.insert(at).second) out.push_back({is_below ? at.substr(here->size() + 1) : at, i == 0});
    if (at == "/") break;
  }
  return out;
}

/// Whether a directory has no other file that such a checkpoint could be made of.
Result<bool> stands_alone(Io& io, const Format& format, const std::string& directory, const std::string& name) {
  CKPT_TRY(const auto entries, io.list(directory));
  return std::ranges::none_of(entries, [&](const DirEntry& entry) {
    const auto ends = [&](std::string_view suffix) { return entry.name.ends_with(suffix); };
    const auto matches = [&](std::string_view own) { return matches_glob(entry.name, own); };
    return entry.name != name &&
           (std::ranges::any_of(format.suffixes, ends) || std::ranges::any_of(format.own_names, matches));
  });
}

/// Not if a larger checkpoint above it opens and contains it, nor if that is unknown.
Result<> check_apart_from(Session& session, const std::string& path, const FileInfo& file, const Above& above,
                          const Format& format) {
  const auto opened =
      open_source(session.io, above.path, format.name, {.metadata_limit = session.memory_bytes, .stop = session.stop});
  if (opened) {
    if (opened->map.collection || opened->map.files.size() < 2) return {};
    for (const MapFile& part : opened->map.files) {
      if (part.device == file.device && part.inode == file.inode)
        return fail(not_replaced(path, fmt::format("part of the {} checkpoint in {}", opened->map.format, above.path)));
    }
    return {};
  }
  const Error& error = opened.error();
  const bool is_none =
      error.code == Errc::ambiguous || error.code == Errc::not_found || error.code == Errc::unsupported;
  if (is_none) return {};  // files that are separate checkpoints have no parts
  if (error.code == Errc::incomplete)
    return fail(not_replaced(path, fmt::format("it may be part of the incomplete checkpoint in {}", above.path)));
  if (exit_code(error.code) != exit_code(Errc::corrupt)) return fail(error);
  // It may be the damaged part, which this conversion repairs.
  const auto damaged = session.io.stat(error.file);
  if (above.holds_it && damaged && damaged->is_same_file(file)) {
    CKPT_TRY(const bool alone, stands_alone(session.io, format, above.path, base_name(path)));
    if (alone) return {};
  }
  return fail(not_replaced(path, fmt::format("it may be part of the checkpoint in {}, which cannot be read: {}",
                                             above.path, error.message)));
}

/// A file of a larger checkpoint is not replaced alone: the rest would be useless without it.
Result<> check_whole(Session& session, const std::string& path, const FileInfo& file) {
  for (const Above& above : directories_above(path)) {
    const auto found = candidates(session.io, above.path);
    if (!found) {
      const Error& error = found.error();
      const bool is_closed = !above.holds_it && error.system_code == EACCES;  // to any reader, too
      if (is_closed || error.code == Errc::not_found || error.code == Errc::unsupported) continue;
      return fail(error);
    }
    for (const Candidate& candidate : *found) {
      if (candidate.format->reader && (above.holds_it || candidate.has_folders))
        CKPT_CHECK(check_apart_from(session, path, file, above, *candidate.format));
    }
  }
  return {};
}

/// The files that a checkpoint claims its conversion wrote beside it, if they have the same bytes today. A hostile
/// checkpoint may claim any file, and a user may have changed one: unknown bytes are never the checkpoint's own.
Result<std::vector<std::string>> still_beside(Session& session, const OldCheckpoint& found) {
  std::vector<std::string> out;
  std::map<std::string, std::set<std::string>> files;  // by folder
  std::uint64_t left = kLargestExtras;
  for (const auto& [name, claimed] : found.written_beside) {
    if (session.is_stopped()) return fail(Errc::interrupted, found.root + ": stopped");
    const std::string path = join_path(found.root, name);
    const auto [folder, is_new] = files.try_emplace(parent_path(path));
    const auto entries = is_new ? session.io.list(folder->first) : std::vector<DirEntry>();
    if (!entries && entries.error().code != Errc::not_found) return fail(entries.error());
    for (const DirEntry& entry : entries.value_or(std::vector<DirEntry>())) {
      if (!entry.is_link && entry.kind == FileInfo::Kind::file) folder->second.insert(entry.name);
    }
    if (!folder->second.contains(base_name(path))) continue;
    CKPT_TRY(const FileInfo now, session.io.stat(path));
    if (now.kind != FileInfo::Kind::file || now.bytes > left) continue;
    left -= now.bytes;
    CKPT_TRY(const Hash128 hash, hash_range(session.io, path, {0, now.bytes}));
    if (hash.words()[0] == claimed) out.push_back(name);
  }
  return out;
}

std::set<FileId> files_of(Io& io, const Source& source, bool referenced_alone) {
  std::set<FileId> out;
  for (std::uint32_t i = 0; i < source.map.files.size(); ++i) {
    if (referenced_alone && !is_referenced(source.map.files[i])) continue;
    if (const auto info = io.stat(path_of(source.map, i, source.root))) out.emplace(info->device, info->inode);
  }
  return out;
}

}  // namespace

Result<std::vector<std::string>> own_files(Session& session, const Source& source, const Format& target,
                                           const std::string& path, bool in_place) {
  CKPT_TRY(const FileInfo info, session.io.stat(path));
  std::vector<std::string> out;
  if (info.kind == FileInfo::Kind::directory) {
    CKPT_TRY(const OldCheckpoint found, recognise_target(session, target, path));
    if (found.collection)
      return fail(not_replaced(path, fmt::format("it holds {} independent checkpoint files ({}), not one checkpoint",
                                                 found.files.size(), first_names(found.files))));
    const std::string below = found.root.size() > path.size() ? found.root.substr(path.size() + 1) : std::string();
    for (const MapFile& file : found.files) {
      if (!is_temporary(file) && !is_referenced(file)) out.push_back(join_path(below, file.path));
    }
    CKPT_CHECK(add_own_names(session.io, *found.format, path, "", out));
    if (!below.empty()) CKPT_CHECK(add_own_names(session.io, *found.format, found.root, below, out));
    // Files that its conversion wrote beside them and that are unchanged.
    CKPT_TRY(const auto beside, still_beside(session, found));
    for (const std::string& name : beside) out.push_back(join_path(below, name));
    if (found.has_list) out.push_back(join_path(below, kBesideFile));
  } else {
    CKPT_CHECK(check_whole(session, path, info));
    out.emplace_back();
  }
  const std::set<FileId> read = files_of(session.io, source, in_place);
  for (const std::string& file : out) {
    const auto old = session.io.stat(join_path(path, file));
    if (old && read.contains({old->device, old->inode}))
      return fail(not_replaced(path, fmt::format("{} is a file of the source", join_path(path, file))));
  }
  return out;
}

Result<> check_unreferenced(Io& io, const std::string& target) {
  const std::string referrer = catalog::find_referrer(io, target);
  if (referrer.empty()) return {};
  Error error = not_replaced(target, fmt::format("the virtual checkpoint {} refers to its files", referrer));
  error.hint = fmt::format("choose another target, or copy its tensors first: ckpt materialize {}", referrer);
  return fail(std::move(error));
}

Result<> check_unpinned(Io& io, const std::string& target) {
  for (const catalog::Mark& mark : catalog::read_marks(io, join_path(target, catalog::kMarksDirectory)).marks) {
    if (mark.kind != catalog::Mark::Kind::pin) continue;
    Error error = not_replaced(target, "it is pinned" + (mark.text.empty() ? "" : ": " + mark.text));
    error.hint = "choose another target, or unpin it: ckpt unpin " + target;
    return fail(std::move(error));
  }
  return {};
}

Error too_little_space(const std::string& target, std::uint64_t needed, std::uint64_t free) {
  return {.code = Errc::no_space,
          .message = target + ": not enough space: " + size_text(needed) + " needed, " + size_text(free) + " free",
          .file = target,
          .hint = "free some space, or choose a target on another file system"};
}

}  // namespace ckpt
