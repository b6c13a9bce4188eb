#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "convert/apply_rules.hpp"
#include "convert/extras.hpp"
#include "convert/foreign_names.hpp"
#include "convert/format.hpp"
#include "convert/join_maps.hpp"
#include "convert/several_checkpoints.hpp"
#include "convert/skipped.hpp"
#include "engine/io/real_path.hpp"
#include "engine/publish/publish.hpp"
#include "engine/run/checks.hpp"
#include "format/files/extra_names.hpp"
#include "format/text/name_list.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kSubdirectoriesTried = 16;

struct Found {
  const Format* format = nullptr;
  Match match{};
};

/// The result of detection for one place.
struct Detection {
  std::vector<Found> found{};
  std::optional<Error> refusal{};  ///< the first format that knows the place, and knows that it cannot be read
};

Error about_format(const std::string& path, Errc code, std::string reason, std::string hint = {}) {
  return {.code = code, .message = fmt::format("{}: {}", path, reason), .file = path, .hint = std::move(hint)};
}

std::string readable_formats() {
  std::string names;
  for (const Format& format : formats()) {
    if (!format.reader) continue;
    names += names.empty() ? "" : ", ";
    names += format.name;
  }
  return names;
}

Result<Place> look(Io& io, const std::string& root) {
  CKPT_TRY(const FileInfo info, io.stat(root));
  if (info.kind == FileInfo::Kind::other)
    return fail(about_format(root, Errc::unsupported, "neither a file nor a directory"));
  Place place{.io = io, .root = root, .directory = info.kind == FileInfo::Kind::directory};
  if (place.directory) {
    CKPT_TRY(place.entries, io.list(root));
  } else {
    place.read_first();
  }
  return place;
}

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

/// For the error when nothing matches: the names in a directory, or the first bytes of a file.
std::string seen_in(const Place& place) {
  if (place.directory) {
    if (place.entries.empty()) return "the directory is empty";
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
    if (entry.kind == FileInfo::Kind::directory && !entry.name.starts_with('.'))
      directories.push_back({.name = entry.name, .step = names.step_in(entry.name)});
  }
  std::ranges::stable_sort(directories, [](const OneCheckpoint& a, const OneCheckpoint& b) { return a.step > b.step; });
  std::vector<OneCheckpoint> out;
  for (std::size_t i = 0; i < std::min(directories.size(), kSubdirectoriesTried); ++i) {
    OneCheckpoint& one = directories[i];
    const std::string below = join_path(place.root, one.name);
    const auto inner = look(place.io, below);
    if (!inner) continue;
    const Detection detection = detect(*inner);
    if (detection.found.empty()) continue;
    one.why = fmt::format("{} ({})", detection.found.front().format->name, detection.found.front().match.why);
    if (const auto info = place.io.stat(below)) one.mtime_ns = info->mtime_ns;
    out.push_back(std::move(one));
  }
  return out;
}

std::string hint_below(const Place& place, const std::vector<OneCheckpoint>& below) {
  if (below.empty()) return "formats that can be read: " + readable_formats();
  return fmt::format("{} looks like {}: give that path", join_path(place.root, below.front().name), below.front().why);
}

/// A file that is not a checkpoint may be part of its directory's: an index, a tracker, one rank's data.
std::string hint_above(const Place& place) {
  const std::string above = parent_path(place.root);
  if (const auto outer = look(place.io, above); outer) {
    const Detection detection = detect(*outer);
    if (!detection.found.empty())
      return fmt::format("the directory {} looks like {} ({}): give that path", above,
                         detection.found.front().format->name, detection.found.front().match.why);
  }
  return "formats that can be read: " + readable_formats();
}

/// A checkpoint with hashes of its files defines what belongs to it; other files next to it do not matter.
void prefer_hashes(Detection& detection) {
  const auto has_hashes = [](const Found& found) { return found.format->hashes != nullptr; };
  if (std::ranges::count_if(detection.found, has_hashes) == 1)
    std::erase_if(detection.found, [&](const Found& found) { return !has_hashes(found); });
}

Result<Found> choose(const Place& place) {
  Detection detection = detect(place);
  prefer_hashes(detection);
  if (detection.found.size() == 1) return std::move(detection.found.front());
  if (detection.found.empty()) {
    if (detection.refusal) return fail(*std::move(detection.refusal));
    std::vector<OneCheckpoint> below;
    if (place.directory) below = checkpoints_below(place);
    if (below.size() > 1) return fail(several_checkpoints(place.root, std::move(below)));
    return fail(about_format(place.root, Errc::unsupported, seen_in(place),
                             place.directory ? hint_below(place, below) : hint_above(place)));
  }
  std::string list;
  std::string flags;
  for (const Found& found : detection.found) {
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", found.format->name, found.match.why);
    flags += fmt::format("{}--from {}", flags.empty() ? "" : " or ", found.format->name);
  }
  return fail(
      about_format(place.root, Errc::ambiguous, "more than one format matches: " + list, "choose one with " + flags));
}

/// The result of another format than the forced one; nothing if no format recognises it.
std::optional<Error> mistaken(const Place& place, const Format& forced) {
  const Detection detection = detect(place);
  if (detection.found.empty()) return std::nullopt;
  const Found& first = detection.found.front();
  return about_format(place.root, Errc::unsupported,
                      fmt::format("not {}: it looks like {} ({})", forced.name, first.format->name, first.match.why),
                      fmt::format("omit --from, or use --from {}", first.format->name));
}

/// `from` was given: the format still decides where below the path the checkpoint is, if it recognises anything.
Result<Found> forced(const Place& place, std::string_view from) {
  const Format* format = find_format(from);
  if (format == nullptr)
    return fail({.code = Errc::usage,
                 .message = fmt::format("--from {}: no such format", from),
                 .hint = "formats that can be read: " + readable_formats()});
  auto match = format->detect(place);
  if (!match) return fail(match.error());
  if (match->has_value()) return Found{format, **std::move(match)};
  if (!format->reader) {
    if (auto other = mistaken(place, *format)) return fail(*std::move(other));
    return fail(about_format(place.root, Errc::unsupported, fmt::format("not {}", format->summary)));
  }
  return Found{format, Match{}};
}

/// Whether a name is one that people give to data of a checkpoint.
bool is_data_name(std::string_view name) {
  return std::ranges::any_of(formats(), [&](const Format& format) {
    return std::ranges::any_of(format.suffixes, [&](std::string_view suffix) { return name.ends_with(suffix); });
  });
}

/// A link to missing data: a reader that takes existing files would not notice.
Result<> find_broken_links(Io& io, Source& source, const std::vector<DirEntry>& entries) {
  for (const DirEntry& entry : entries) {
    if (!entry.is_link || entry.kind != FileInfo::Kind::other || !is_data_name(entry.name)) continue;
    const std::string path = join_path(source.root, entry.name);
    const auto info = io.stat(path);
    if (info || info.error().code != Errc::not_found) continue;
    source.map.findings.push_back(
        {.severity = Severity::incomplete, .text = path + " is a link to a file that is missing", .file = path});
  }
  return {};
}

/// A reader of a virtual checkpoint reads the checkpoints that it refers to.
Result<> hold_references(Io& io, Source& source) {
  std::set<std::string> roots;
  std::set<std::string> folders;
  for (std::uint32_t i = 0; i < source.map.files.size(); ++i) {
    const MapFile& file = source.map.files[i];
    if (!is_referenced(file)) continue;
    roots.insert(file.root);
    const auto real = real_path(path_of(source.map, i, source.root));
    if (!real || !folders.insert(parent_path(*real)).second) continue;
    for (const std::string& around : checkpoints_around(io, *real, foreign_names())) roots.insert(around);
  }
  for (const std::string& root : roots) {
    auto lease = Lease::take(io, root, foreign_names());
    if (lease) {
      source.referenced_leases.push_back(*std::move(lease));
    } else if (lease.error().code == Errc::locked) {
      return fail(with_hint(std::move(lease).error(), "another process is replacing or deleting it; try again later"));
    }
  }
  return {};
}

/// Writers count elements by the true dtype.
Result<> check_true_dtypes(const Source& source) {
  for (const Tensor& tensor : source.map.tensors) {
    if (fits_true_dtype(tensor)) continue;
    return fail({.code = Errc::corrupt,
                 .message = fmt::format("{}: {}: its noted dtype '{}' contradicts the stored one", source.root,
                                        tensor.name, tensor.true_dtype),
                 .file = source.root,
                 .tensor = tensor.name});
  }
  return {};
}

/// The map's files are those that its reader has seen.
Result<> identify_files(Source& source) {
  for (std::uint32_t i = 0; i < source.map.files.size(); ++i) {
    MapFile& file = source.map.files[i];
    if (is_temporary(file)) continue;
    const auto seen = source.files->find(path_of(source.map, i, source.root));
    if (!seen || seen->bytes != file.bytes) continue;  // of a salvage: missing, or not as long as the records say
    file.device = seen->device;
    file.inode = seen->inode;
    file.ctime_ns = seen->ctime_ns;
    CKPT_CHECK(check_unchanged(path_of(source.map, i, source.root), file, *seen));
  }
  return {};
}

/// The error for a format without a reader. Megatron's torch_dist is a DCP checkpoint too.
Error not_read(const Place& place, const std::string& root, const Found& found) {
  const std::string hint = place.has(".metadata") ? "--from dcp reads its tensors, under the names in .metadata"
                                                  : "formats that can be read: " + readable_formats();
  return about_format(root, Errc::unsupported,
                      fmt::format("this is {} ({}), which this version recognises but does not read",
                                  found.format->summary, found.match.why),
                      hint);
}

/// A trainer's state next to the weights belongs to the checkpoint.
Result<> join_state(Source& source, const ReadOptions& options) {
  if (!source.format->reader->has_state_beside) return {};
  const std::size_t weights = source.map.files.size();
  for (const Format& format : formats()) {
    if (!format.reader || format.reader->open_beside == nullptr || &format == source.format) continue;
    CKPT_TRY(auto state, format.reader->open_beside(*source.io, source.root, options));
    if (state) CKPT_CHECK(join_maps(source.map, *std::move(state), "", source.root));
  }
  const std::size_t joined = source.map.files.size() - weights;
  if (joined != 0) source.map.variant += fmt::format(" and {} of the trainer", joined);
  return {};
}

/// The absolute path of a folder that is not the map's root.
Result<std::string> absolute_folder(const std::string& folder) {
  CKPT_TRY(const auto real, find_real_path(folder));
  if (real) return *real;
  return fail({.code = Errc::not_found, .message = folder + ": no such folder", .file = folder});
}

Result<> add_extras(Source& source, const Place& place, const std::string& assets) {
  Io& io = *source.io;
  if (place.directory && source.format->hashes == nullptr) {
    CKPT_CHECK(take_extras(io, source.root, "", source.map));
    if (source.root != place.root) {
      CKPT_TRY(const std::string above, absolute_folder(place.root));
      CKPT_CHECK(take_extras(io, source.root, above, source.map));
    }
  }
  if (assets.empty()) return {};
  CKPT_TRY(const std::string folder, absolute_folder(assets));
  const std::size_t before = source.map.extras.size();
  CKPT_CHECK(take_extras(io, source.root, folder, source.map));
  if (source.map.extras.size() != before) return {};
  CKPT_TRY(const auto entries, io.list(folder));
  if (std::ranges::any_of(entries, [](const DirEntry& entry) { return marks_model_folder(entry.name); })) return {};
  return fail({.code = Errc::usage,
               .message = fmt::format("--assets {}: no config.json, tokenizer or adapter of a model there", assets),
               .file = assets,
               .hint = "name the folder of the model that was trained, with its config.json"});
}

}  // namespace

Error Source::explained(Error error) const {
  if (!may_be_change(error.code)) return error;
  const auto same = check_unchanged();
  if (same || same.error().code != Errc::changed) return error;
  return same.error();
}

const Format* find_format(std::string_view name) {
  for (const Format& format : formats()) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

Recognition recognise(Io& io, const std::string& path) {
  const auto place = look(io, join_path(path, ""));
  if (!place) return {};
  const Detection detection = detect(*place);
  if (!detection.found.empty()) return {.format = detection.found.front().format};
  return {.unfinished = detection.refusal && detection.refusal->code == Errc::uncommitted};
}

Result<std::vector<Candidate>> candidates(Io& io, const std::string& path) {
  CKPT_TRY(const Place place, look(io, join_path(path, "")));
  Detection detection = detect(place);
  if (detection.found.empty() && detection.refusal) return fail(*std::move(detection.refusal));
  std::vector<Candidate> out;
  for (const Found& found : detection.found)
    out.push_back({.format = found.format, .has_folders = found.format->has_folders || !found.match.where.empty()});
  return out;
}

Result<std::optional<Glance>> glance(Io& io, const std::string& path, std::string_view from) {
  CKPT_TRY(const Place place, look(io, join_path(path, "")));
  CKPT_TRY(const Found found, from.empty() ? choose(place) : forced(place, from));
  if (found.format->reader || found.format->count_files == nullptr) return std::nullopt;
  const std::string root = found.match.where.empty() ? place.root : join_path(place.root, found.match.where);
  CKPT_TRY(const std::uint64_t files, found.format->count_files(io, root));
  return Glance{.format = found.format, .file_count = files};
}

Result<Source> open_source(Io& io, const std::string& path, std::string_view from, const ReadOptions& options) {
  if (path.empty()) return fail(Errc::not_found, "an empty path");
  if (path.find("://") != std::string::npos)
    return fail(
        about_format(path, Errc::unsupported, "URLs cannot be read", "copy the checkpoint to a file system first"));
  const std::string given = join_path(path, "");
  // Of a file inside an unfinished directory too: uncommitted work is never read.
  if (is_in_partial(given))
    return fail(about_format(given, Errc::uncommitted, "a save or conversion that never finished",
                             "it is not a checkpoint; run the command that was writing it again"));
  CKPT_TRY(const Place place, look(io, given));
  CKPT_TRY(Found found, from.empty() ? choose(place) : forced(place, from));

  Source source;
  source.format = found.format;
  source.root = found.match.where.empty() ? given : join_path(given, found.match.where);
  source.why = found.match.why;
  if (!found.format->reader) return fail(not_read(place, source.root, found));
  // Locked before anything is read, so that no process deletes or replaces the files of the map. Other errors are
  // reported by the reader.
  auto lease = Lease::take(io, source.root, foreign_names());
  if (lease) {
    source.lease = *std::move(lease);
  } else if (lease.error().code == Errc::locked) {
    return fail(with_hint(std::move(lease).error(), "another process is replacing or deleting it; try again later"));
  }
  source.files = std::make_shared<SourceFiles>();
  source.io = make_source_io(io, source.files, options.stop);
  auto map = found.format->reader->open(*source.io, source.root, options);
  if (!map) {
    Error error = source.explained(with_file(std::move(map).error(), source.root));
    const bool unseen = !from.empty() && found.match.why.empty();  // only --from identifies it
    if (unseen && error.code != Errc::changed && error.code != Errc::memory) {
      if (auto other = mistaken(place, *source.format)) return fail(*std::move(other));
    }
    return fail(std::move(error));
  }
  source.map = *std::move(map);
  CKPT_CHECK(hold_references(io, source));
  if (place.directory && options.state_beside) {
    if (auto joined = join_state(source, options); !joined) return fail(source.explained(std::move(joined).error()));
  }
  CKPT_CHECK(check_true_dtypes(source));
  CKPT_CHECK(identify_files(source));
  if (place.directory) {
    std::vector<DirEntry> below;
    if (source.root != given) {
      CKPT_TRY(below, io.list(source.root));
    }
    CKPT_CHECK(find_broken_links(io, source, source.root == given ? place.entries : below));
  }
  if (place.directory && options.look_beside) {
    // Checks read no file of the source.
    const auto stopping = make_source_io(io, std::make_shared<SourceFiles>(), options.stop);
    CKPT_TRY(Beside beside, look_beside(*stopping, source.root, *source.format, source.map));
    std::ranges::move(beside.findings, std::back_inserter(source.map.findings));
    source.settings = std::move(beside.settings);
  }
  if (options.extras) CKPT_CHECK(add_extras(source, place, options.assets));
  std::erase_if(source.settings, [&](const std::string& name) {
    return std::ranges::find(source.map.extras, name, &Extra::path) != source.map.extras.end();
  });
  if (source.map.format.empty()) source.map.format = found.format->name;
  if (options.rules != nullptr) CKPT_CHECK(apply_rules(source.map, *options.rules, source.root));
  if (source.lease && !source.lease->unheard().empty())
    source.map.findings.push_back({.severity = Severity::warning, .text = source.lease->unheard()});
  if (auto flat = refuse_flat_parameters(source.map, source.root); !flat) {
    source.map.findings.push_back(
        {.severity = Severity::warning, .text = flat.error().message, .tensor = flat.error().tensor});
  }
  return source;
}

}  // namespace ckpt
