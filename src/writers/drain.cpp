#include "writers/drain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "engine/checked_copy.hpp"
#include "engine/publish.hpp"
#include "format/manifest.hpp"
#include "format/seal.hpp"
#include "format/sums.hpp"
#include "writers/publish_save.hpp"
#include "writers/run_directory.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kMostSumsBytes = std::uint64_t{4} << 30;
constexpr std::uint64_t kMostStatisticsBytes = std::uint64_t{64} << 20;

/// What a checkpoint says of its files, checked by itself.
struct Sealed {
  universal::Manifest manifest{};
  universal::Sums sums{};
};

Result<Sealed> read_sealed(Io& io, const std::string& checkpoint) {
  Sealed sealed;
  CKPT_TRY(sealed.manifest, read_manifest(io, checkpoint));
  const std::string path = join_path(checkpoint, universal::kSumsPath);
  CKPT_TRY(const std::string text, read_small_file(io, path, kMostSumsBytes));
  if (text.size() != sealed.manifest.sums_bytes || hash128(text) != sealed.manifest.sums_hash) {
    return fail({.code = Errc::checksum, .message = path + ": drain: it is not that of the manifest", .file = path});
  }
  CKPT_TRY(sealed.sums, universal::parse_sums(std::as_bytes(std::span(text))));
  return sealed;
}

/// Nobody removes it meanwhile. Null where the file system has no locks.
Result<std::unique_ptr<HeldLock>> lease(Io& io, const std::string& checkpoint) {
  auto held = io.lock(checkpoint, LockMode::shared);
  if (!held && held.error().code == Errc::unsupported) return std::unique_ptr<HeldLock>();
  return held;
}

}  // namespace

Result<std::string> drain(Io& io, BufferPool& pool, const std::string& name, const DrainOptions& options,
                          const std::atomic<bool>& stop) {
  const std::string from = join_path(options.local_directory, name);
  const auto named = CheckpointName::parse(name);
  if (!named) return fail(Errc::internal, from + ": drain: not the name of a checkpoint");
  CKPT_TRY(const auto read_lease, lease(io, from));
  CKPT_TRY(Sealed sealed, read_sealed(io, from));
  const std::string id = sealed.manifest.id.hex();
  if (auto there = find_committed(io, options.run_directory, named->step, sealed.manifest.id)) {
    CKPT_CHECK(settle_published(io, join_path(options.run_directory, *there), id));
    return std::move(*there);
  }

  std::vector<MapFile> files;
  for (const universal::FileRecord& file : sealed.sums.files) {
    files.push_back({.path = file.key.path(), .bytes = file.bytes});
  }
  CKPT_TRY(const auto publication,
           Publication::begin(io,
                              {.target = join_path(options.run_directory, step_text(named->step)),
                               .id = id,
                               .folders = all_folders(),
                               .named_later = true},
                              targets_of(files)));
  CKPT_CHECK(copy_checked(io, {.source_root = from,
                               .target_root = publication->root(),
                               .files = files,
                               .leaves = sealed.sums.leaves,
                               .bytes_per_second = options.bytes_per_second,
                               .pool = &pool,
                               .stop = &stop}));
  auto statistics = read_small_file(io, join_path(from, kStatisticsPath), kMostStatisticsBytes);
  if (!statistics && statistics.error().code != Errc::not_found) return fail(std::move(statistics).error());
  return publish_save(io, *publication,
                      {.run_directory = options.run_directory,
                       .step = named->step,
                       .manifest = std::move(sealed.manifest),
                       .files = std::move(sealed.sums.files),
                       .leaves = std::move(sealed.sums.leaves),
                       .statistics = statistics ? std::move(*statistics) : std::string(),
                       .least_generation = named->generation});
}

Result<std::optional<Undrained>> find_undrained(Io& io, const DrainOptions& options) {
  CKPT_TRY(const auto local, list_checkpoints(io, options.local_directory));
  for (const std::string& name : local) {
    const std::string path = join_path(options.local_directory, name);
    const auto manifest = read_manifest(io, path);
    if (!manifest) continue;
    const std::string run = base_name(options.run_directory);
    if (manifest->run && manifest->run->name != run) {
      return fail(
          {.code = Errc::usage,
           .message = fmt::format("{}: open: a checkpoint of run '{}', not of '{}'", path, manifest->run->name, run),
           .file = path,
           .hint = "give each run a local directory of its own"});
    }
    const CheckpointName named = *CheckpointName::parse(name);
    CKPT_TRY(const auto shared, list_checkpoints(io, options.run_directory));
    const bool newest = shared.empty() || CheckpointName::parse(shared.front())->generation < named.generation;
    if (!newest) return std::optional<Undrained>();
    return std::optional<Undrained>({.name = name, .step = named.step, .id = manifest->id});
  }
  return std::optional<Undrained>();
}

Result<std::vector<std::string>> retire_drained(Io& io, const DrainOptions& options) {
  std::vector<std::string> removed;
  CKPT_TRY(const auto names, list_checkpoints(io, options.local_directory));
  for (std::size_t i = static_cast<std::size_t>(std::min<std::uint64_t>(options.keep, names.size())); i < names.size();
       ++i) {
    const std::string path = join_path(options.local_directory, names[i]);
    const auto manifest = read_manifest(io, path);
    const std::uint64_t step = CheckpointName::parse(names[i])->step;
    if (!manifest || !find_committed(io, options.run_directory, step, manifest->id)) continue;
    CKPT_TRY(const bool gone, remove_published(io, path, manifest->id.hex()));
    if (gone) removed.push_back(names[i]);
  }
  return removed;
}

}  // namespace ckpt
