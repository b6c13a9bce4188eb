#include "convert/open_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <utility>

#include "convert/apply_rules.hpp"
#include "convert/archived.hpp"
#include "convert/detection.hpp"
#include "convert/extras.hpp"
#include "convert/foreign_names.hpp"
#include "convert/join_maps.hpp"
#include "convert/skipped.hpp"
#include "convert/use_names.hpp"
#include "engine/io/real_path.hpp"
#include "engine/publish/publish.hpp"
#include "engine/run/checks.hpp"
#include "format/files/extra_names.hpp"
#include "format/text/name_list.hpp"

namespace ckpt {
namespace {

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
                 .message = fmt::format("{}: {}: its recorded dtype '{}' contradicts the stored one", source.root,
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

/// The error for a format without a reader.
Error not_read(const std::string& root, const Found& found) {
  return about_path(root, Errc::unsupported,
                    fmt::format("{} ({}): reading it is not supported", found.format->summary, found.match.why),
                    found.match.hint.empty() ? "formats that can be read: " + readable_formats() : found.match.hint);
}

/// The command that copies the files of a URL here.
std::string download_hint(const std::string& url) {
  const std::string rest = url.substr(url.find("://") + 3);
  if (url.starts_with("hf://")) return fmt::format("download it first: hf download {} --local-dir DIR", rest);
  if (url.starts_with("s3://")) return fmt::format("download it first: aws s3 cp --recursive {} DIR", url);
  if (url.starts_with("gs://")) return fmt::format("download it first: gcloud storage cp -r {} DIR", url);
  if (url.starts_with("http")) return fmt::format("download it first: curl -LO {}", url);
  return "copy the checkpoint to a file system first";
}

/// A trainer's state next to the weights belongs to the checkpoint.
Result<> join_state(Source& source, const ReadOptions& options) {
  if (!source.format->reader->has_state_beside) return {};
  const std::size_t weights = source.map.files.size();
  for (const Format& format : formats()) {
    if (!format.reader || format.reader->open_beside == nullptr || &format == source.format) continue;
    CKPT_TRY(auto state, format.reader->open_beside(source.names_io(), source.root, options));
    if (state) CKPT_CHECK(join_maps(source.map, *std::move(state), "", source.root));
  }
  const std::size_t joined = source.map.files.size() - weights;
  if (joined != 0) source.map.variant += fmt::format(" and {} of the trainer", joined);
  return {};
}

/// The absolute path of a folder that is not the map's root.
Result<std::string> absolute_folder(const std::string& folder, const Place& place) {
  const auto inside = place.archive ? place.archive->below(folder) : std::nullopt;
  if (inside) return join_path(place.archive->real_path, *inside);
  CKPT_TRY(const auto real, find_real_path(folder));
  if (real) return *real;
  return fail({.code = Errc::not_found, .message = folder + ": no such folder", .file = folder});
}

Result<> add_extras(Source& source, const Place& place, const std::string& assets) {
  Io& io = source.names_io();
  if (place.directory && source.format->hashes == nullptr) {
    CKPT_CHECK(take_extras(io, source.root, "", source.map));
    if (source.root != place.root) {
      CKPT_TRY(const std::string above, absolute_folder(place.root, place));
      CKPT_CHECK(take_extras(io, source.root, above, source.map));
    }
  }
  if (assets.empty()) return {};
  CKPT_TRY(const std::string folder, absolute_folder(assets, place));
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

/// Whether a file may hold data of a checkpoint: by its name, or because no text is as long.
bool may_be_data(std::string_view name, std::uint64_t bytes) {
  constexpr std::uint64_t kLongText = std::uint64_t{16} << 20;
  constexpr std::array<std::string_view, 8> kOthers{".distcp", ".metadata", ".tar", ".gz",
                                                    ".tgz",    ".zip",      ".zst", ".nemo"};
  return bytes > kLongText || is_data_name(name) ||
         std::ranges::any_of(kOthers, [&](std::string_view suffix) { return name.ends_with(suffix); });
}

/// Data in an archive beside the one folder that was taken for its checkpoint.
void note_beside(const Place& place, const std::string& where, std::vector<Finding>& findings) {
  if (!place.archive || place.archive->below(place.root) != "" || where.empty()) return;
  NameList others;
  const std::string folder = where.substr(0, where.find('/')) + "/";
  for (const auto& [path, member] : place.archive->members)
    if (member.kind == FileInfo::Kind::file && !path.starts_with(folder) && may_be_data(path, member.range.size()))
      others.add(path);
  if (others.count() == 0) return;
  findings.push_back({.severity = Severity::warning,
                      .text = fmt::format("skipped in the archive: {}; only {} is read", others.text(), where),
                      .skipped = Skipped::data});
}

/// From here on the checkpoint is a file: the archive.
Result<> leave_archive(Source& source, const Archive& archive) {
  place_in_archive(source.map, source.root, archive);
  source.archive_root = std::exchange(source.root, archive.path);
  return identify_files(source);
}

}  // namespace

Error Source::explained(Error error) const {
  if (!may_be_change(error.code)) return error;
  const auto same = check_unchanged();
  if (same || same.error().code != Errc::changed) return error;
  return same.error();
}

Result<Source> open_source(Io& io, const std::string& path, std::string_view from, const ReadOptions& options) {
  if (path.empty()) return fail(Errc::not_found, "an empty path");
  if (path.find("://") != std::string::npos)
    return fail(about_path(path, Errc::unsupported, "URLs cannot be read", download_hint(path)));
  const std::string given = join_path(path, "");
  // Of a file inside an unfinished directory too: uncommitted work is never read.
  if (is_in_partial(given))
    return fail(about_path(given, Errc::uncommitted, "a save or conversion that never finished",
                           "it is not a checkpoint; run the command that was writing it again"));
  CKPT_TRY(const Place place, place_at(io, given));
  CKPT_TRY(Found found, from.empty() ? choose(place) : forced(place, from));

  Source source;
  source.format = found.format;
  source.root = found.match.where.empty() ? given : join_path(given, found.match.where);
  source.why = found.match.why;
  if (!found.format->reader) return fail(not_read(source.root, found));
  if (place.archive &&
      (found.format->reader->opens_paths || found.format->hashes != nullptr))  // hashes: from a file's begin
    return fail(about_path(given, Errc::unsupported,
                           fmt::format("{} in a tar archive: it is not read in place", found.format->summary),
                           fmt::format("unpack it first: tar -xf {}", place.archive->path)));
  // Locked before anything is read, so that no process deletes or replaces the files of the map. Other errors are
  // reported by the reader.
  if (options.lease) {
    auto lease = Lease::take(io, place.archive ? place.archive->path : source.root, foreign_names());
    if (lease) {
      source.lease = *std::move(lease);
    } else if (lease.error().code == Errc::locked) {
      return fail(with_hint(std::move(lease).error(), "another process is replacing or deleting it; try again later"));
    }
  }
  source.files = std::make_shared<SourceFiles>();
  source.io = make_source_io(io, source.files, options.stop);
  if (place.archive) {
    CKPT_CHECK(source.files->see(place.archive->path, place.archive->info));
    source.archive_io = make_archive_io(make_source_io(io, source.files, options.stop), place.archive);
  }
  auto map = found.format->reader->open(source.names_io(), source.root, options);
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
      CKPT_TRY(below, place.io.list(source.root));
    }
    CKPT_CHECK(find_broken_links(place.io, source, source.root == given ? place.entries : below));
  }
  if (place.directory && options.find_beside) {
    // Checks read no file of the source.
    auto stopping = make_source_io(io, std::make_shared<SourceFiles>(), options.stop);
    if (place.archive) stopping = make_archive_io(std::move(stopping), place.archive);
    CKPT_TRY(Beside beside, find_beside(*stopping, source.root, *source.format, source.map));
    std::ranges::move(beside.findings, std::back_inserter(source.map.findings));
    source.settings = std::move(beside.settings);
  }
  if (options.extras) CKPT_CHECK(add_extras(source, place, options.assets));
  std::erase_if(source.settings, [&](const std::string& name) {
    return std::ranges::find(source.map.extras, name, &Extra::path) != source.map.extras.end();
  });
  if (source.map.format.empty()) source.map.format = found.format->name;
  if (options.rules != nullptr) CKPT_CHECK(apply_rules(source.map, *options.rules, source.root));
  if (options.rules != nullptr && options.rules->names()) CKPT_CHECK(use_names(source, place, options));
  note_beside(place, found.match.where, source.map.findings);
  if (place.archive) CKPT_CHECK(leave_archive(source, *place.archive));
  if (source.lease && !source.lease->claim_warning().empty())
    source.map.findings.push_back({.severity = Severity::warning, .text = source.lease->claim_warning()});
  if (auto flat = refuse_flat_parameters(source.map, source.root); !flat) {
    source.map.findings.push_back(
        {.severity = Severity::warning, .text = flat.error().message, .tensor = flat.error().tensor});
  }
  return source;
}

}  // namespace ckpt
