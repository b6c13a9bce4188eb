#include "catalog/scan/entry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "catalog/scan/lacks_files.hpp"
#include "catalog/scan/utc.hpp"
#include "engine/store/run_directory.hpp"
#include "format/text/parse_number.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/seal.hpp"

namespace ckpt::catalog {
namespace {

constexpr std::uint64_t kMostSumsBytes = std::uint64_t{1} << 30;      // 256 TB in leaves of 4 MiB
constexpr std::uint64_t kMostMetricsBytes = std::uint64_t{64} << 20;  // a log of every step
constexpr std::size_t kMostFiles = 1 << 20;                           // of a foreign checkpoint, that are checked

void add_attribute(Checkpoint& checkpoint, std::string_view key, std::string value) {
  checkpoint.attributes.emplace_back(key, std::move(value));
}

bool holds_optimizer(const Entry& entry) {
  return entry.class_bytes[static_cast<std::size_t>(universal::FileClass::optim)] != 0;
}

std::string layout_name(const universal::Manifest& manifest) {
  if (manifest.is_virtual()) return "virtual";
  universal::Layout::Kind most = universal::Layout::Kind::whole;
  for (const universal::Layout& layout : manifest.layouts) most = std::max(most, layout.kind);
  switch (most) {
    case universal::Layout::Kind::whole:
      return "whole";
    case universal::Layout::Kind::mesh:
      return "mesh";
    case universal::Layout::Kind::irregular:
      return "irregular";
    case universal::Layout::Kind::referenced:
      break;  // of virtual ones only
  }
  return {};
}

/// Whether a failure is about the bytes; else only about this moment, or this release.
State state_after(const Error& error) {
  switch (error.code) {
    case Errc::corrupt:
    case Errc::checksum:
    case Errc::not_found:
    case Errc::incomplete:
      return State::corrupt;
    default:
      return State::unreadable;
  }
}

void set_unreadable(Entry& entry, const Error& error) {
  entry.checkpoint.state = state_after(error);
  // The result of verify for it.
  const bool is_lacking = error.code == Errc::not_found || error.code == Errc::incomplete;
  entry.reason = (is_lacking ? std::string(kLacksFiles) : "") + error.message;
}

void take_manifest(Entry& entry, const universal::Manifest& manifest) {
  Checkpoint& checkpoint = entry.checkpoint;
  checkpoint.id = manifest.id.hex();
  if (manifest.run) {
    checkpoint.series = manifest.run->series;
    checkpoint.series_from = manifest.run->series_from;
    checkpoint.series_after = manifest.run->series_after;
    entry.parent = manifest.run->parent;
  }
  if (const auto created = parse_time(manifest.created)) checkpoint.created = *created;
  for (const auto& [key, value] : manifest.meta.user)
    if (const auto metric = metric_in(key, value)) checkpoint.metrics.emplace_back(*metric);
  entry.revision = manifest.revision;
  entry.layout = layout_name(manifest);
  checkpoint.is_virtual = manifest.is_virtual();
  entry.referenced_files = 0;
  entry.referenced_bytes = 0;
  for (const universal::ReferencedSource& source : manifest.references) {
    entry.referenced_files += source.files.size();
    for (const universal::ReferencedFile& file : source.files)
      entry.referenced_bytes += std::min(file.bytes, UINT64_MAX - entry.referenced_bytes);
  }
  entry.framework = manifest.meta.framework;
}

Result<> take_sums(Io& io, Entry& entry, const std::string& path, const universal::Manifest& manifest) {
  const std::string sums_path = join_path(path, universal::kSumsPath);
  CKPT_TRY(const std::string bytes, read_small_file(io, sums_path, kMostSumsBytes));
  CKPT_TRY(const universal::Sums sums, universal::parse_sums(std::as_bytes(std::span(bytes))));
  if (bytes.size() != manifest.sums_bytes || sums.id != manifest.id)
    return fail({.code = Errc::corrupt, .message = sums_path + ": it does not belong to this manifest"});
  std::uint64_t total = bytes.size();
  for (const universal::FileRecord& file : sums.files) {
    if (manifest.is_dropped(file.key.file_class)) continue;
    ++entry.file_count;
    entry.class_bytes[static_cast<std::size_t>(file.key.file_class)] += file.bytes;
    total += file.bytes;
  }
  entry.checkpoint.bytes = total;
  if (universal::check_weights_alone(manifest))
    entry.checkpoint.optimizer_bytes = entry.class_bytes[static_cast<std::size_t>(universal::FileClass::optim)];
  return {};
}

/// A network's attributes of a directory may be from memory, but for a listing the server is asked.
bool is_gone(Io& io, const std::string& path) {
  const auto names = io.list(path);
  return !names && names.error().code == Errc::not_found;
}

/// One of the manifest's two copies, as text.
/// errors  memory: over `most` bytes; those of read_small_file
Result<std::string> read_manifest_text(Io& io, const std::string& path, std::uint64_t most) {
  const auto info = io.stat(path);
  if (info && info->bytes > most && info->bytes <= kMostManifestBytes)
    return fail({.code = Errc::memory,
                 .message = fmt::format("{}: {} bytes, but --memory allows {}", path, info->bytes, most),
                 .file = path});
  return read_small_file(io, path, most);
}

/// False if the directory does not exist.
bool read_manifest_and_sums(Io& io, Entry& entry, const std::string& path, std::uint64_t most) {
  const std::string manifest_path = join_path(path, universal::kManifestPath);
  auto text = read_manifest_text(io, manifest_path, most);
  if (!text) {
    if (text.error().code == Errc::not_found && is_gone(io, path)) return false;
    set_unreadable(entry, text.error());
    return true;
  }
  const auto manifest = universal::parse_manifest(*text);
  if (!manifest) {
    set_unreadable(entry, with_file(manifest.error(), manifest_path));
    return true;
  }
  take_manifest(entry, *manifest);
  auto sums = take_sums(io, entry, path, *manifest);
  if (!sums) {
    if (sums.error().code == Errc::not_found && is_gone(io, path)) return false;
    set_unreadable(entry, sums.error());
  }
  entry.checkpoint.bytes += 2 * text->size();  // the manifest is listed twice
  return true;
}

/// One of the manifest's two copies.
Result<universal::Manifest> read_copy(Io& io, const std::string& path, std::uint64_t most) {
  CKPT_TRY(const std::string text, read_manifest_text(io, path, most));
  return universal::parse_manifest(text);
}

bool is_lost_or_torn(const Result<universal::Manifest>& copy) {
  return !copy && state_after(copy.error()) == State::corrupt;
}

/// The good copy from which `ckpt repair` can restore a manifest: it is right and fits the table of files, and the
/// other copy is lost or torn.
std::optional<universal::Manifest> mendable(Io& io, const std::string& path, Entry& mended, std::uint64_t most) {
  auto first = read_copy(io, join_path(path, universal::kManifestPath), most);
  if (!first && !is_lost_or_torn(first)) return std::nullopt;
  auto second = read_copy(io, join_path(path, universal::kManifestCopyPath), most);
  if (first ? !is_lost_or_torn(second) : !second) return std::nullopt;
  universal::Manifest& right = first ? *first : *second;
  if (!take_sums(io, mended, path, right)) return std::nullopt;
  return std::move(right);
}

/// For a universal checkpoint. False if the directory does not exist.
bool read_own(Io& io, Entry& entry, const std::string& path, std::uint64_t most) {
  if (!read_manifest_and_sums(io, entry, path, most)) return false;
  if (entry.checkpoint.state != State::corrupt) return true;
  Entry mended;
  const auto manifest = mendable(io, path, mended, most);
  if (!manifest) return true;
  entry.checkpoint.state = State::repairable;
  take_manifest(entry, *manifest);
  entry.checkpoint.bytes = mended.checkpoint.bytes;
  entry.checkpoint.optimizer_bytes = mended.checkpoint.optimizer_bytes;
  entry.class_bytes = mended.class_bytes;
  entry.file_count = mended.file_count;
  return true;
}

/// Of another tool's: the bytes of its files, its links, and the time of its newest file. The directory's own time is
/// used only if there is none: a mark changes it. One of which a part cannot be read, or was not looked at, is
/// unreadable.
void read_foreign(Io& io, Entry& entry, const std::string& path, const std::vector<MetricsFile>& metrics) {
  std::vector<std::string> folders{path};
  std::optional<std::int64_t> newest_ns;
  std::vector<const MetricsFile*> with_metrics;
  while (!folders.empty()) {
    if (entry.file_count >= kMostFiles) {
      set_unreadable(entry, {.code = Errc::unsupported, .message = fmt::format("{}: over {} files", path, kMostFiles)});
      break;
    }
    const std::string folder = std::move(folders.back());
    folders.pop_back();
    const auto entries = io.list(folder);
    if (!entries) {
      if (entries.error().code != Errc::not_found) set_unreadable(entry, entries.error());
      continue;
    }
    for (const DirEntry& item : *entries) {
      if (item.name == kForeignMarksDirectory) continue;
      const std::string below = join_path(folder, item.name);
      if (item.is_link) {
        entry.links.push_back(below.substr(path.size() + 1));
        continue;
      }
      if (item.kind == FileInfo::Kind::directory) {
        folders.push_back(below);
        continue;
      }
      const auto info = io.stat(below);
      if (!info) {
        if (info.error().code != Errc::not_found) set_unreadable(entry, info.error());
        continue;
      }
      for (const MetricsFile& file : metrics) {
        if (folder == path && item.name == file.name) with_metrics.push_back(&file);
      }
      entry.checkpoint.bytes += std::min(info->bytes, UINT64_MAX - entry.checkpoint.bytes);
      newest_ns = std::max(newest_ns.value_or(info->mtime_ns), info->mtime_ns);
      ++entry.file_count;
    }
  }
  for (const MetricsFile* file : with_metrics) {
    const auto text = read_small_file(io, join_path(path, file->name), kMostMetricsBytes);
    if (text) entry.checkpoint.metrics = file->parse(*text);
  }
  entry.checkpoint.created =
      Time(std::chrono::floor<Duration>(std::chrono::nanoseconds(newest_ns.value_or(entry.directory.mtime_ns))));
}

void read_foreign_file(Io& io, Entry& entry, const std::string& path) {
  const auto info = io.stat(path);
  if (!info) {
    set_unreadable(entry, info.error());
    return;
  }
  entry.checkpoint.bytes = info->bytes;
  entry.checkpoint.created = Time(std::chrono::floor<Duration>(std::chrono::nanoseconds(info->mtime_ns)));
  entry.file_count = 1;
}

}  // namespace

std::vector<std::pair<std::string, double>> foreign_metrics(Io& io, const std::string& path,
                                                            const ForeignNames& names) {
  std::vector<std::pair<std::string, double>> out;
  for (const MetricsFile& file : names.metrics) {
    const auto text = read_small_file(io, join_path(path, file.name), kMostMetricsBytes);
    if (text) out = file.parse(*text);
  }
  const auto info = io.stat(path);
  if (!info || info->kind != FileInfo::Kind::file) return out;
  for (const auto& parse : names.name_metrics) {
    if (auto found = parse(base_name(path)); !found.empty()) out = std::move(found);
  }
  return out;
}

std::string run_path(std::string_view store, std::string_view run) {
  return run == "." ? join_path(store, "") : join_path(store, run);
}

std::string marks_path(std::string_view checkpoint, bool foreign) {
  return join_path(checkpoint, foreign ? kForeignMarksDirectory : kMarksDirectory);
}

std::string marks_path(std::string_view checkpoint) {
  return marks_path(checkpoint, !CheckpointName::parse(base_name(checkpoint)));
}

std::string Entry::path(std::string_view store) const {
  return join_path(run_path(store, checkpoint.run), name);
}

std::optional<Time> Entry::last(Mark::Kind kind) const {
  std::optional<Time> newest;
  for (const Mark& mark : marks) {
    if (mark.kind == kind && mark.at && (!newest || *newest < *mark.at)) newest = mark.at;
  }
  return newest;
}

bool Entry::is_demoted() const {
  return !foreign && revision != 0 && file_count != 0 && !holds_optimizer(*this);
}

std::optional<std::pair<std::string_view, double>> metric_in(std::string_view key, const std::string& text) {
  constexpr std::string_view kPrefix = "metric.";
  const auto number = key.starts_with(kPrefix) ? parse_number<double>(text) : std::nullopt;
  if (!number) return std::nullopt;
  return std::pair(key.substr(kPrefix.size()), *number);
}

Result<Stamp> find_stamp(Io& io, const std::string& path) {
  const auto info = io.stat(path);
  if (!info && info.error().code == Errc::not_found) return Stamp{};
  if (!info) return fail(info.error());
  return Stamp{.inode = info->inode, .mtime_ns = info->mtime_ns};
}

Stamp stamp_of(Io& io, const std::string& path) {
  return find_stamp(io, path).value_or(Stamp{});
}

Time time_of(const Stamp& stamp) {
  return Time(std::chrono::floor<Duration>(std::chrono::nanoseconds(stamp.mtime_ns)));
}

void take_commit_time(Entry& entry) {
  if (entry.foreign) return;
  const Stamp& last = entry.manifest.inode != 0 ? entry.manifest : entry.directory;
  if (last.inode != 0) entry.checkpoint.committed = time_of(last);
}

bool is_settled(const Stamp& stamp, Time now) {
  constexpr Duration kSettled = std::chrono::seconds(4);
  return elapsed(time_of(stamp), now) > kSettled;
}

void apply_marks(Entry& entry, std::vector<Mark> marks) {
  Checkpoint& checkpoint = entry.checkpoint;
  // Another tool may have written into its checkpoint since: then the result is that of other bytes.
  if (entry.foreign)
    std::erase_if(marks, [&](const Mark& mark) {
      return mark.kind == Mark::Kind::verified && mark.value == 1 && mark.at && *mark.at < checkpoint.created;
    });
  for (const Mark& mark : marks) {
    switch (mark.kind) {
      case Mark::Kind::pin:
        checkpoint.pins.push_back({.name = mark.name, .owner = mark.owner, .reason = mark.text, .until = mark.until});
        break;
      case Mark::Kind::tag:
        checkpoint.tags.push_back(mark.name);
        break;
      case Mark::Kind::metric:
        // Later marks replace values stored with the save.
        std::erase_if(checkpoint.metrics, [&](const auto& metric) { return metric.first == mark.name; });
        checkpoint.metrics.emplace_back(mark.name, mark.value);
        break;
      case Mark::Kind::reference:
        checkpoint.references.push_back(mark.name);
        break;
      case Mark::Kind::verified:
        if (checkpoint.state != State::committed) break;
        checkpoint.state = mark.value == 1 ? State::verified : State::corrupt;
        if (mark.value != 1) entry.reason = mark.text;
        break;
      case Mark::Kind::note:
      case Mark::Kind::restored:
        break;
    }
  }
  std::sort(checkpoint.tags.begin(), checkpoint.tags.end());
  std::stable_sort(checkpoint.metrics.begin(), checkpoint.metrics.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  entry.marks = std::move(marks);
}

bool is_repairable(Io& io, const std::string& path) {
  Entry mended;
  return mendable(io, path, mended, kMostManifestBytes).has_value();
}

std::optional<Entry> read_entry(Io& io, std::string_view store, const EntryPlace& place, std::uint64_t manifest_bytes) {
  Entry entry{.name = place.name, .format = place.foreign ? place.format : "ckpt", .foreign = place.foreign};
  entry.checkpoint.run = place.run;
  entry.checkpoint.link = place.link;
  entry.checkpoint.foreign = place.foreign;
  entry.checkpoint.trackers = place.trackers;
  const std::string path = entry.path(store);
  const std::string marks = marks_path(path, place.foreign);
  const auto directory = find_stamp(io, path);
  if (directory && directory->inode == 0) return std::nullopt;
  entry.directory = directory.value_or(Stamp{});
  if (!place.single_file) entry.marks_directory = stamp_of(io, marks);
  if (place.foreign) {
    entry.checkpoint.id = hash128(join_path(place.run, place.name)).hex();
    entry.checkpoint.step = place.step.value_or(0);
    if (place.single_file) {
      entry.layout = kSingleFile;
      entry.checkpoint.single_file = true;
      entry.checkpoint.metrics = place.named_metrics;
    }
    if (place.unread)
      set_unreadable(entry, *place.unread);
    else if (place.single_file)
      read_foreign_file(io, entry, path);
    else
      read_foreign(io, entry, path, place.metrics);
  } else {
    const auto name = CheckpointName::parse(place.name);
    if (!name) return std::nullopt;
    entry.checkpoint.step = name->step;
    entry.checkpoint.generation = name->generation;
    entry.manifest = stamp_of(io, join_path(path, universal::kManifestPath));
    take_commit_time(entry);
    if (!read_own(io, entry, path, manifest_bytes)) return std::nullopt;
  }
  if (!directory) set_unreadable(entry, directory.error());
  Marks said;
  if (!place.single_file) said = read_marks(io, marks);
  entry.save = said.save;
  const bool was_corrupt = entry.checkpoint.state == State::corrupt;  // read_own has judged it
  apply_marks(entry, std::move(said.marks));
  // A mark records that there is damage, not which.
  const bool damaged = !place.foreign && !was_corrupt && entry.checkpoint.state == State::corrupt;
  if (damaged && is_repairable(io, path)) entry.checkpoint.state = State::repairable;
  entry.checkpoint.marks_unreadable = !said.unreadable.empty();
  if (entry.checkpoint.marks_unreadable && entry.reason.empty()) entry.reason = std::move(said.unreadable);
  add_attribute(entry.checkpoint, "format", entry.format);
  if (!place.foreign) add_attribute(entry.checkpoint, "kind", holds_optimizer(entry) ? "full" : "weights");
  return entry;
}

}  // namespace ckpt::catalog
