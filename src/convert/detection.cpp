#include "convert/detection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "convert/foreign_names.hpp"
#include "convert/nearest_path.hpp"
#include "convert/other_files.hpp"
#include "convert/several_checkpoints.hpp"
#include "engine/run/leaf_record.hpp"
#include "engine/store/partial_name.hpp"
#include "engine/store/run_directory.hpp"
#include "format/files/extra_names.hpp"
#include "format/files/tar.hpp"
#include "format/text/name_list.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kSubdirectoriesTried = 16;

/// The result of detection for one place.
struct Detection {
  std::vector<Found> found{};
  std::optional<Error> refusal{};  ///< the first format that knows the place, and knows that it cannot be read
};

/// Asks every format. One that fails to look (a file vanished, a tracker that is damaged) does not silence the others.
Detection detect(const Place& place) {
  Detection out;
  for (const Format& format : formats()) {
    auto match = format.detect(place);
    if (!match) {
      if (!out.refusal) out.refusal = std::move(match).error();
    } else if (match->has_value()) {
      out.found.push_back({&format, std::move(**match)});
    }
  }
  return out;
}

/// A checkpoint with hashes of its files defines what belongs to it; other files next to it do not matter.
void prefer_hashes(Detection& detection) {
  const auto has_hashes = [](const Found& found) { return found.format->hashes != nullptr; };
  if (std::ranges::count_if(detection.found, has_hashes) == 1)
    std::erase_if(detection.found, [&](const Found& found) { return !has_hashes(found); });
}

/// In a trainer's folder, weights for inference next to a format with all training state are a copy of its weights.
void prefer_training_state(const Place& place, Detection& detection) {
  const auto holds_all = [](const Found& found) { return found.format->writer && found.format->writer->for_trainers; };
  const bool is_trainers =
      std::ranges::any_of(place.entries, [](const DirEntry& entry) { return marks_trainer_folder(entry.name); });
  if (is_trainers && std::ranges::count_if(detection.found, holds_all) == 1)
    std::erase_if(detection.found, [&](const Found& found) { return !holds_all(found); });
}

std::vector<OneCheckpoint> checkpoints_below(const Place& place);
Detection candidates_at(const Place& place);

/// In an archive whose root is not a checkpoint, the one folder that is one.
void look_into_archive(const Place& place, Detection& detection) {
  if (!place.archive || place.archive->below(place.root) != "" || !detection.found.empty()) return;
  const std::vector<OneCheckpoint> below = checkpoints_below(place);
  if (below.size() != 1) return;
  const auto inner = place_at(place.io, join_path(place.root, below.front().name));
  if (!inner) return;
  detection = candidates_at(*inner);
  for (Found& found : detection.found) found.match.where = join_path(below.front().name, found.match.where);
}

/// The formats that may be meant.
Detection candidates_at(const Place& place) {
  Detection detection = detect(place);
  look_into_archive(place, detection);
  prefer_hashes(detection);
  prefer_training_state(place, detection);
  return detection;
}

/// The saves and conversions that did not finish, if the directory holds nothing else: their partials, by name.
NameList unfinished_in(const Place& place) {
  NameList out;
  for (const DirEntry& entry : place.entries) {
    std::string partial;
    if (is_in_partial(entry.name))
      out.add(entry.name);
    else if (!is_record(entry.name, partial) || !is_in_partial(partial))
      return NameList();
  }
  return out;
}

/// For the error when nothing matches: the names in a directory, or the first bytes of a file.
std::string seen_in(const Place& place) {
  if (place.directory) {
    if (place.entries.empty()) return "the directory is empty";
    const NameList unfinished = unfinished_in(place);
    if (unfinished.count() != 0)
      return fmt::format("no finished checkpoint here, only {} that did not finish: {}",
                         unfinished.count() == 1 ? "a save or conversion" : "saves or conversions", unfinished.text());
    NameList names;
    for (const DirEntry& entry : place.entries) names.add(entry.name);
    return fmt::format("no known checkpoint here; it holds {}", names.text());
  }
  const auto head = place.head("", 16);
  if (!head) return "no known format";
  if (head->empty()) return "the file is empty";
  std::string bytes;
  for (const char c : *head) bytes += fmt::format("{}{:02x}", bytes.empty() ? "" : " ", static_cast<unsigned char>(c));
  return fmt::format("no known format; it begins with {}", bytes);
}

/// Where nothing matches, one level below may. The directories with the greatest steps in their names are checked.
std::vector<OneCheckpoint> checkpoints_below(const Place& place) {
  std::vector<OneCheckpoint> directories;
  const ForeignNames names = foreign_names();
  for (const DirEntry& entry : place.entries) {
    if (entry.kind != FileInfo::Kind::directory || entry.name.starts_with('.') || is_in_partial(entry.name)) continue;
    const auto own = CheckpointName::parse(entry.name);
    directories.push_back({.name = entry.name,
                           .step = own ? std::optional(own->step) : names.step_in(entry.name),
                           .generation = own ? own->generation : 0});
  }
  std::ranges::stable_sort(directories, [](const OneCheckpoint& a, const OneCheckpoint& b) {
    return std::pair(a.generation, a.step) > std::pair(b.generation, b.step);
  });
  std::vector<OneCheckpoint> out;
  for (std::size_t i = 0; i < std::min(directories.size(), kSubdirectoriesTried); ++i) {
    OneCheckpoint& one = directories[i];
    const std::string below = join_path(place.root, one.name);
    const auto inner = place_at(place.io, below);
    if (!inner) continue;
    const Detection detection = candidates_at(*inner);
    if (detection.found.empty()) continue;
    one.why = fmt::format("{} ({})", detection.found.front().format->name, detection.found.front().match.why);
    if (const auto info = place.io.stat(below)) one.mtime_ns = info->mtime_ns;
    out.push_back(std::move(one));
  }
  return out;
}

/// OWNER/MODEL may be meant as a repository of the Hugging Face Hub; empty for other paths.
std::string hint_hub(Io& io, const std::string& path) {
  const std::size_t slash = path.find('/');
  const bool is_pair = slash != std::string::npos && slash != 0 && slash == path.rfind('/') && slash + 1 < path.size();
  if (!is_pair || path.front() == '.' || path.front() == '~' || io.stat(path.substr(0, slash))) return {};
  return fmt::format("a model of the Hugging Face Hub? hf download {} --local-dir DIR", path);
}

std::string hint_formats() {
  return "formats that can be read: " + readable_formats();
}

/// A repository in the cache of the Hugging Face Hub has a directory for each revision; empty for other directories.
/// source  huggingface_hub/file_download.py: repo_folder_name, snapshots/, refs/
std::string hint_revision(const Place& place) {
  if (!place.has("refs") || !place.has("snapshots")) return {};
  const auto revisions = place.list_below("snapshots");
  if (!revisions || revisions->empty()) return {};
  const auto main = place.head("refs/main", 64);
  const bool is_there = main && std::ranges::find(*revisions, *main, &DirEntry::name) != revisions->end();
  return fmt::format("a Hugging Face Hub cache entry: give the path of a revision, {}",
                     join_path(join_path(place.root, "snapshots"), is_there ? *main : revisions->front().name));
}

std::string hint_below(const Place& place, const std::vector<OneCheckpoint>& below) {
  if (below.empty() && unfinished_in(place).count() != 0)
    return fmt::format("run the same command again to resume it, or 'ckpt repair {}' to see what can be removed",
                       place.root);
  if (std::string revision = hint_revision(place); below.empty() && !revision.empty()) return revision;
  if (below.empty()) return hint_formats();
  return fmt::format("{} looks like {}: give that path", join_path(place.root, below.front().name), below.front().why);
}

/// A file that is not a checkpoint may be part of its directory's: an index, a tracker, one rank's data.
std::optional<std::string> hint_above(const Place& place) {
  const std::string above = parent_path(place.root);
  if (const auto outer = place_at(place.io, above); outer) {
    const Detection detection = detect(*outer);
    if (!detection.found.empty())
      return fmt::format("the directory {} looks like {} ({}): give that path", above,
                         detection.found.front().format->name, detection.found.front().match.why);
  }
  return std::nullopt;
}

std::string hint_file(const Place& place) {
  if (const auto head = place.head("", 1); head && head->empty())
    return "it was not written completely: copy or download it again";
  return hint_above(place).value_or(hint_formats());
}

}  // namespace

std::string readable_formats() {
  std::string names;
  for (const Format& format : formats()) {
    if (!format.reader) continue;
    names += names.empty() ? "" : ", ";
    names += format.name;
  }
  return names;
}

namespace {

/// A tar archive, or a path in it.
Result<Place> place_in(Io& io, const std::string& root, std::shared_ptr<const Archive> archive) {
  std::shared_ptr<Io> inside = make_archive_io(io, archive);
  const auto info = inside->stat(root);
  if (!info && info.error().code == Errc::not_found) {
    const std::string near = nearest_path(*inside, root);
    return fail(with_hint(info.error(), near.empty() ? std::string() : fmt::format("did you mean {}?", near)));
  }
  if (!info) return fail(info.error());
  Place place{.io = *inside,
              .root = root,
              .directory = info->kind == FileInfo::Kind::directory,
              .archive = std::move(archive),
              .archive_io = inside};
  if (place.directory) {
    CKPT_TRY(place.entries, inside->list(root));
  } else {
    place.read_first();
  }
  return place;
}

}  // namespace

Result<Place> place_at(Io& io, const std::string& root) {
  const auto found = io.stat(root);
  if (!found) {
    CKPT_TRY(auto archive, find_archive(io, root));
    if (archive) return place_in(io, root, std::move(archive));
  }
  if (!found && found.error().code == Errc::not_found) {
    const std::string near = nearest_path(io, root);
    return fail(about_path(root, Errc::not_found, "no such file or directory",
                           near.empty() ? hint_hub(io, root) : fmt::format("did you mean {}?", near)));
  }
  if (!found) return fail(found.error());
  const FileInfo& info = *found;
  if (info.kind == FileInfo::Kind::other)
    return fail(about_path(root, Errc::unsupported, "neither a file nor a directory"));
  Place place{.io = io, .root = root, .directory = info.kind == FileInfo::Kind::directory};
  if (place.directory) {
    CKPT_TRY(place.entries, io.list(root));
  } else {
    place.read_first();
    if (tar::is_tar(place.first)) {
      CKPT_TRY(auto archive, find_archive(io, root));
      if (archive) return place_in(io, root, std::move(archive));
    }
  }
  return place;
}

Result<Found> choose(const Place& place) {
  Detection detection = candidates_at(place);
  if (detection.found.size() == 1) return std::move(detection.found.front());
  if (detection.found.empty()) {
    if (detection.refusal) return fail(*std::move(detection.refusal));
    std::vector<OneCheckpoint> below;
    if (place.directory) below = checkpoints_below(place);
    if (below.size() > 1) return fail(several_checkpoints(place.root, std::move(below)));
    if (const auto other = other_file(place)) {
      const std::optional<std::string> above = other->may_be_part ? hint_above(place) : std::nullopt;
      return fail(about_path(place.root, other->code, other->what,
                             above                 ? *above
                             : other->hint.empty() ? hint_formats()
                                                   : other->hint));
    }
    return fail(about_path(place.root, Errc::unsupported, seen_in(place),
                           place.directory ? hint_below(place, below) : hint_file(place)));
  }
  std::string list;
  std::string flags;
  for (const Found& found : detection.found) {
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", found.format->name, found.match.why);
    flags += fmt::format("{}--from {}", flags.empty() ? "" : " or ", found.format->name);
  }
  return fail(
      about_path(place.root, Errc::ambiguous, "more than one format matches: " + list, "choose one with " + flags));
}

Result<std::optional<UnreadFormat>> find_unread(Io& io, const std::string& path, std::string_view from) {
  CKPT_TRY(const Place place, place_at(io, join_path(path, "")));
  CKPT_TRY(Found found, from.empty() ? choose(place) : forced(place, from));
  if (found.format->reader || place.archive) return std::nullopt;  // an archive's files have no paths for a describer
  return UnreadFormat{.format = found.format,
                      .root = found.match.where.empty() ? place.root : join_path(place.root, found.match.where),
                      .match = std::move(found.match)};
}

std::optional<Error> mistaken(const Place& place, const Format& forced) {
  const Detection detection = detect(place);
  if (detection.found.empty()) return std::nullopt;
  const Found& first = detection.found.front();
  return about_path(place.root, Errc::unsupported,
                    fmt::format("not {}: it looks like {} ({})", forced.name, first.format->name, first.match.why),
                    fmt::format("omit --from, or use --from {}", first.format->name));
}

Result<Found> forced(const Place& place, std::string_view from) {
  const Format* format = find_format(from);
  if (format == nullptr)
    return fail({.code = Errc::usage,
                 .message = fmt::format("--from {}: no such format", from),
                 .hint = "formats that can be read: " + readable_formats()});
  auto match = format->detect(place);
  if (!match) return fail(match.error());
  if (match->has_value()) return Found{format, **std::move(match)};
  if (place.archive) {
    for (Found& found : candidates_at(place).found)
      if (found.format == format) return std::move(found);
  }
  if (!format->reader) {
    if (auto other = mistaken(place, *format)) return fail(*std::move(other));
    return fail(about_path(place.root, Errc::unsupported, fmt::format("not {}", format->summary)));
  }
  return Found{format, Match{}};
}

Result<std::vector<OneCheckpoint>> find_checkpoints_below(Io& io, const std::string& path) {
  CKPT_TRY(const Place place, place_at(io, join_path(path, "")));
  if (!place.directory) return std::vector<OneCheckpoint>{};
  const Detection detection = candidates_at(place);
  if (!detection.found.empty() || detection.refusal) return std::vector<OneCheckpoint>{};
  auto out = checkpoints_below(place);
  sort_newest_first(out);
  return out;
}

Recognition recognise(Io& io, const std::string& path) {
  const auto unread = [](const Error& error) { return error.code == Errc::io ? std::optional(error) : std::nullopt; };
  const auto place = place_at(io, join_path(path, ""));
  if (!place) return {.unread = unread(place.error())};
  const Detection detection = candidates_at(*place);
  if (!detection.found.empty()) return {.format = detection.found.front().format};
  if (!detection.refusal) return {};
  return {.unfinished = detection.refusal->code == Errc::uncommitted, .unread = unread(*detection.refusal)};
}

Result<std::vector<Candidate>> candidates(Io& io, const std::string& path) {
  CKPT_TRY(const Place place, place_at(io, join_path(path, "")));
  Detection detection = detect(place);
  if (detection.found.empty() && detection.refusal) return fail(*std::move(detection.refusal));
  std::vector<Candidate> out;
  for (const Found& found : detection.found)
    out.push_back({.format = found.format, .has_folders = found.format->has_folders || !found.match.where.empty()});
  return out;
}

Result<std::optional<UnreadSummary>> summarize_unread(Io& io, const std::string& path, std::string_view from) {
  CKPT_TRY(const auto found, find_unread(io, path, from));
  if (!found || found->format->count_files == nullptr) return std::nullopt;
  CKPT_TRY(const std::uint64_t files, found->format->count_files(io, found->root));
  return UnreadSummary{.format = found->format, .file_count = files};
}

}  // namespace ckpt
