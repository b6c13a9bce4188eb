#include "catalog/scan/scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "catalog/scan/virtual_links.hpp"
#include "engine/publish/publish.hpp"
#include "engine/store/run_directory.hpp"
#include "format/text/parse_number.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/seal.hpp"

namespace ckpt::catalog {
namespace {

constexpr std::uint64_t kMostTrackerBytes = 4096;
constexpr std::string_view kRescued = "lost+found";  // of a file system's root: pieces of files, and only root may look

bool holds_ours(const std::vector<DirEntry>& entries) {
  return std::any_of(entries.begin(), entries.end(),
                     [](const DirEntry& entry) { return CheckpointName::parse(entry.name).has_value(); });
}

/// Whether a directory with any name may be a checkpoint of ours: it holds both copies of a manifest.
bool looks_like_ours(const std::vector<DirEntry>& entries) {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(entries, name, &DirEntry::name) != entries.end();
  };
  return has(universal::kManifestPath) && has(parent_path(universal::kManifestCopyPath));
}

/// Whether a directory that detection recognises only holds the checkpoints below it: then it is a run. Those that cannot
/// be looked at count too. One of the same step is its own: checkpoint-500/global_step500, by a trainer with DeepSpeed.
bool holds_others(Io& io, const std::string& path, const std::vector<DirEntry>& entries, const OtherTools& tools) {
  const auto own = tools.names.step_in(base_name(path));
  return std::any_of(entries.begin(), entries.end(), [&](const DirEntry& entry) {
    const auto step = tools.names.step_in(entry);
    if (!step || step == own) return false;
    const Recognised seen = tools.recognise(io, join_path(path, entry.name));
    return !seen.format.empty() || seen.unread;
  });
}

/// The name in a tracker: its first line that is not blank, without blanks around it and the slash of a directory.
std::string_view named_in(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  line = line.substr(0, line.find_last_not_of(kBlank) + 1);
  if (line.starts_with("./")) line.remove_prefix(2);
  while (line.ends_with('/')) line.remove_suffix(1);
  return line;
}

std::optional<std::uint64_t> step_of(const EntryPlace& place) {
  if (place.foreign) return place.step;
  const auto name = CheckpointName::parse(place.name);
  return name ? std::optional(name->step) : std::nullopt;
}

void read_trackers(Io& io, const std::string& run, const std::string& path, const std::vector<DirEntry>& entries,
                   const ForeignNames& names, Folder& out) {
  for (const std::string_view tracker : names.trackers) {
    const bool there = std::any_of(entries.begin(), entries.end(), [&](const DirEntry& entry) {
      return entry.name == tracker && entry.kind == FileInfo::Kind::file;
    });
    if (!there) continue;
    out.is_restless = true;
    const auto text = read_small_file(io, join_path(path, tracker), kMostTrackerBytes);
    if (!text) {
      if (text.error().code != Errc::not_found)
        out.links.push_back({.run = run, .path = std::string(tracker), .unreadable = true});
      continue;
    }
    const std::string_view line = named_in(*text);
    if (line.find('/') != line.npos)
      out.links.push_back({.run = run, .path = std::string(tracker), .leads = std::string(line)});
    const auto step = parse_number<std::uint64_t>(line);
    for (EntryPlace& place : out.places) {
      if (place.name == line || (step && step_of(place) == step)) place.trackers.emplace_back(tracker);
    }
  }
}

/// A file that is a checkpoint alone, by its name and its first bytes.
void add_file(Io& io, const std::string& run, const std::string& path, const DirEntry& entry, const OtherTools& tools,
              Folder& out) {
  const auto step = tools.names.step_in(entry);
  if (!step || *step > CheckpointName::kGreatest || !tools.recognise) return;
  Recognised seen = tools.recognise(io, join_path(path, entry.name));
  if (seen.format.empty() && !seen.unread) return;
  out.places.push_back({.run = run,
                        .name = entry.name,
                        .foreign = true,
                        .single_file = true,
                        .format = std::move(seen.format),
                        .step = step,
                        .named_metrics = tools.names.metrics_in_file(entry.name),
                        .unread = std::move(seen.unread)});
  out.is_restless = true;
}

void add_child(Io& io, std::string_view store, const std::string& run, const std::string& path, const DirEntry& entry,
               const OtherTools& tools, Folder& out) {
  if (entry.is_link) {
    out.links.push_back({.run = run, .path = entry.name});
    out.is_restless = true;
  }
  if (entry.name.starts_with('.') || entry.name.find(kPartialMark) != std::string::npos) return;  // uncommitted work
  if (entry.name == kRescued) return;
  if (entry.kind == FileInfo::Kind::file) return add_file(io, run, path, entry, tools, out);
  if (entry.kind != FileInfo::Kind::directory) return;
  if (CheckpointName::parse(entry.name)) {
    out.places.push_back({.run = run, .name = entry.name, .link = entry.is_link});
    return;
  }
  if (entry.is_link) return;  // another path to something found elsewhere, or a way out of the store
  const std::string below = join_path(path, entry.name);
  const auto listed = io.list(below);
  if (!listed && listed.error().code == Errc::not_found) return;
  if (listed && looks_like_ours(*listed)) {
    auto referenced = find_virtual_links(io, std::string(store), run, entry.name);
    out.is_restless = out.is_restless || !referenced.empty();
    std::ranges::move(referenced, std::back_inserter(out.links));
  }
  const bool is_run = listed && holds_ours(*listed);  // counted first: detection reads every name
  const auto step = tools.names.step_in(entry.name);
  Recognised seen;
  if (!listed)
    seen.unread = listed.error();
  else if (tools.recognise && !is_run)
    seen = tools.recognise(io, below);
  if (seen.unfinished) return;
  if (step && *step <= CheckpointName::kGreatest && seen.unread) {
    out.places.push_back(
        {.run = run, .name = entry.name, .foreign = true, .step = step, .unread = std::move(seen.unread)});
    out.is_restless = true;
    return;
  }
  if (!seen.format.empty() && !holds_others(io, below, *listed, tools)) {
    if (!step || *step > CheckpointName::kGreatest)
      return;  // a checkpoint that belongs to no series of steps: nothing to retain it by
    out.places.push_back({.run = run,
                          .name = entry.name,
                          .foreign = true,
                          .format = seen.format,
                          .step = step,
                          .metrics = tools.names.metrics});
    out.is_restless = true;
    return;
  }
  if (step && !is_run) out.is_restless = true;  // perhaps a checkpoint that cannot be read now
  if (run_depth(run) + 1 <= kDeepestRun) out.folders.push_back(entry.name);
}

}  // namespace

std::string run_below(std::string_view run, std::string_view name) {
  return run == "." ? std::string(name) : join_path(run, name);
}

std::string run_above(const std::string& run) {
  const std::size_t slash = run.rfind('/');
  return slash == std::string::npos ? "." : run.substr(0, slash);
}

unsigned run_depth(std::string_view run) {
  if (run == ".") return 0;
  return 1 + static_cast<unsigned>(std::count(run.begin(), run.end(), '/'));
}

Result<std::optional<Folder>> list_folder(Io& io, std::string_view store, const std::string& run,
                                          const OtherTools& tools) {
  const std::string path = run_path(store, run);
  const auto entries = io.list(path);
  if (!entries) {
    if (entries.error().code == Errc::not_found) return std::nullopt;
    return fail(entries.error());
  }
  Folder out;
  for (const DirEntry& entry : *entries) add_child(io, store, run, path, entry, tools, out);
  read_trackers(io, run, path, *entries, tools.names, out);
  return out;
}

Result<Scan> scan(Io& io, const std::string& store, const OtherTools& tools, const std::string& run) {
  Scan out;
  std::vector<std::string> runs{run};
  for (bool first = true; !runs.empty(); first = false) {
    const std::string at = std::move(runs.back());
    runs.pop_back();
    const auto folder = list_folder(io, store, at, tools);
    if (!folder) {
      if (first) return fail(folder.error());
      out.warnings.push_back(folder.error().message);
      continue;
    }
    if (!folder->has_value()) {
      if (first)
        return fail({.code = Errc::not_found,
                     .message = run_path(store, at) + ": no such directory",
                     .hint = "give the store with --store DIR"});
      continue;
    }
    for (const EntryPlace& place : (*folder)->places) {
      if (auto entry = read_entry(io, store, place)) out.entries.push_back(*std::move(entry));
    }
    for (auto below = (*folder)->folders.rbegin(); below != (*folder)->folders.rend(); ++below)
      runs.push_back(run_below(at, *below));
  }
  return out;
}

}  // namespace ckpt::catalog
