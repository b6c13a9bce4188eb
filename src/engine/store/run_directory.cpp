#include "engine/store/run_directory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/store/partial_name.hpp"
#include "format/text/parse_number.hpp"
#include "format/universal/seal.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kGeneration = ".g";
constexpr auto kLockPoll = std::chrono::milliseconds(2);

constexpr unsigned kDeepestListed = 4;  // depth of a run below its store, in directories
/// Next to a checkpoint in the trash, and where one was, is the record of its deletion.
constexpr std::string_view kRecord = ".json";

/// The names in a directory that are those of checkpoints; none if it is missing. `with_records`: also those of records
/// of deletions.
Result<std::vector<CheckpointName>> names_in(Io& io, const std::string& directory, bool with_records = false) {
  std::vector<CheckpointName> names;
  auto entries = io.list(directory);
  if (!entries) {
    if (entries.error().code == Errc::not_found) return names;
    return fail(std::move(entries).error());
  }
  for (const DirEntry& entry : *entries) {
    std::string_view text = entry.name;
    if (with_records && text.ends_with(kRecord)) text.remove_suffix(kRecord.size());
    if (const auto name = CheckpointName::parse(text)) names.push_back(*name);
  }
  return names;
}

/// The checkpoints of a run in the trash. If a foreign file has its name there are none.
Result<std::vector<CheckpointName>> names_in_trash(Io& io, const std::string& directory) {
  const auto info = io.stat(directory);
  const bool none = info ? info->kind != FileInfo::Kind::directory : info.error().code == Errc::not_found;
  if (none) return std::vector<CheckpointName>();
  return names_in(io, directory, true);
}

}  // namespace

std::string step_text(std::uint64_t step) {
  return fmt::format("{}{:09}", kStepPrefix, step);
}

bool is_save_partial(std::string_view name) {
  const auto partial = parse_partial_name(name);
  if (!partial) return false;
  const std::string target(partial->target);
  return CheckpointName::parse(target) || CheckpointName::parse(target + std::string(kGeneration) + "1");
}

std::string CheckpointName::text() const {
  return fmt::format("{}{}{}", step_text(step), kGeneration, generation);
}

std::optional<CheckpointName> CheckpointName::parse(std::string_view text) {
  if (!text.starts_with(kStepPrefix)) return std::nullopt;
  const std::size_t dot = text.find(kGeneration);
  if (dot == std::string_view::npos) return std::nullopt;
  const auto step = parse_number<std::uint64_t>(text.substr(kStepPrefix.size(), dot - kStepPrefix.size()));
  const auto generation = parse_number<std::uint64_t>(text.substr(dot + kGeneration.size()));
  if (!step || !generation || *step > kGreatest || *generation > kGreatest) return std::nullopt;
  const CheckpointName name{.step = *step, .generation = *generation};
  if (name.text() != text) return std::nullopt;
  return name;
}

std::string without_checkpoint(const std::string& whole) {
  for (std::size_t at = 0; at < whole.size();) {
    const std::size_t begin = at + 1;
    at = std::min(whole.find('/', begin), whole.size());
    if (CheckpointName::parse(std::string_view(whole).substr(begin, at - begin))) return whole.substr(0, begin - 1);
  }
  return whole;
}

Result<> check_in_no_checkpoint(const std::string& directory) {
  std::error_code ignored;
  const auto whole = std::filesystem::weakly_canonical(std::filesystem::absolute(directory, ignored), ignored);
  if (without_checkpoint(whole.string()) == whole.string()) return {};
  return fail({.code = Errc::usage,
               .message = directory + ": is or lies in a checkpoint; refusing to add files to it",
               .file = directory,
               .hint = "choose a path outside the checkpoint"});
}

Result<> make_directory(Io& io, const std::string& directory) {
  std::vector<std::string> missing;
  for (std::string path = directory; !io.stat(path); path = parent_path(path)) {
    missing.push_back(path);
    if (parent_path(path) == path) break;
  }
  for (auto path = missing.rbegin(); path != missing.rend(); ++path) {
    auto made = io.make_dir(*path);
    if (!made && made.error().code != Errc::target_exists) return made;
    CKPT_CHECK(io.sync_dir(parent_path(*path)));
  }
  return {};
}

Result<> sync_directories(Io& io, const std::string& directory, const std::string& top) {
  for (std::string path = directory; path.size() > top.size(); path = parent_path(path)) {
    CKPT_CHECK(io.sync_dir(parent_path(path)));
  }
  return {};
}

Result<std::vector<std::string>> list_checkpoints(Io& io, const std::string& run_directory) {
  CKPT_TRY(auto names, names_in(io, run_directory));
  std::sort(names.begin(), names.end(), [](const CheckpointName& a, const CheckpointName& b) {
    return std::pair(a.generation, a.step) > std::pair(b.generation, b.step);
  });
  std::vector<std::string> texts;
  for (const CheckpointName& name : names) texts.push_back(name.text());
  return texts;
}

Result<universal::Manifest> read_manifest(Io& io, const std::string& checkpoint) {
  const std::string path = join_path(checkpoint, universal::kManifestPath);
  CKPT_TRY(const std::string text, read_small_file(io, path, kMostManifestBytes));
  return universal::parse_manifest(text);
}

Result<std::optional<std::string>> find_committed(Io& io, const std::string& run_directory, std::uint64_t step,
                                                  const Hash128& id) {
  CKPT_TRY(const auto names, list_checkpoints(io, run_directory));
  std::optional<Error> unseen;  // of one that may be it
  for (const std::string& name : names) {
    if (CheckpointName::parse(name)->step != step) continue;
    auto manifest = read_manifest(io, join_path(run_directory, name));
    if (manifest && manifest->id == id) return name;
    const bool is_read = manifest || (manifest.error().code != Errc::io && manifest.error().code != Errc::memory);
    if (!is_read && !unseen) unseen = std::move(manifest).error();
  }
  if (unseen) return fail(*std::move(unseen));
  return std::nullopt;
}

Result<std::uint64_t> next_generation(Io& io, const std::string& run_directory) {
  std::uint64_t greatest = 0;
  CKPT_TRY(const auto live, names_in(io, run_directory));
  for (const CheckpointName& name : live) greatest = std::max(greatest, name.generation);
  // A run may be several directories below its store; the trash has the same structure.
  std::string below = base_name(run_directory);
  std::string store = parent_path(run_directory);
  for (unsigned depth = 0; depth < kDeepestListed; ++depth) {
    CKPT_TRY(const auto names, names_in_trash(io, join_path(join_path(store, ".ckpt/trash"), below)));
    for (const CheckpointName& name : names) greatest = std::max(greatest, name.generation);
    if (parent_path(store) == store) break;
    below = join_path(base_name(store), below);
    store = parent_path(store);
  }
  if (greatest < CheckpointName::kGreatest) return greatest + 1;
  const std::string last = fmt::format("{}{}", kGeneration, greatest);
  return fail({.code = Errc::usage,
               .message = fmt::format("{}: no generation is left after one that ends in {}", run_directory, last),
               .file = run_directory,
               .hint = "no run has so many saves: move what has this name out of the run and the trash"});
}

Result<std::unique_ptr<HeldLock>> lock_run(Io& io, const std::string& run_directory, Deadline deadline) {
  for (;;) {
    auto held = io.lock(run_directory, LockMode::exclusive);
    if (held) return held;
    if (held.error().code == Errc::unsupported) return std::unique_ptr<HeldLock>();
    if (held.error().code != Errc::locked || std::chrono::steady_clock::now() >= deadline) return held;
    std::this_thread::sleep_for(kLockPoll);
  }
}

}  // namespace ckpt
