#include "writers/drain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "engine/locks/lease.hpp"
#include "engine/run/checked_copy.hpp"
#include "engine/store/run_directory.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/seal.hpp"
#include "format/universal/sums.hpp"
#include "writers/publish_save.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kMostSumsBytes = std::uint64_t{4} << 30;
constexpr std::uint64_t kMostStatisticsBytes = std::uint64_t{64} << 20;

/// The facts that a checkpoint records about its files, checked for consistency.
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
    return fail({.code = Errc::checksum, .message = path + ": it does not match the manifest", .file = path});
  }
  CKPT_TRY(sealed.sums, universal::parse_sums(std::as_bytes(std::span(text))));
  return sealed;
}

/// A drain that has its partial.
struct Begun {
  std::string from;
  CheckpointName named{};
  Sealed sealed{};
  std::unique_ptr<Lease> read_lease{};
  std::unique_ptr<Publication> publication{};
};

std::vector<MapFile> files_of(const universal::Sums& sums) {
  std::vector<MapFile> files;
  for (const universal::FileRecord& file : sums.files) {
    files.push_back({.path = file.key.path(), .bytes = file.bytes});
  }
  return files;
}

Result<Begun> open_local(Io& io, const std::string& name, const DrainOptions& options) {
  Begun begun{.from = join_path(options.local_directory, name)};
  const auto named = CheckpointName::parse(name);
  if (!named) return fail(Errc::internal, begun.from + ": not a checkpoint name");
  begun.named = *named;
  CKPT_TRY(begun.read_lease, Lease::take(io, begun.from, options.foreign_names));  // no process removes it
  CKPT_TRY(begun.sealed, read_sealed(io, begun.from));
  return begun;
}

std::string partial_target(const CheckpointName& named, const DrainOptions& options) {
  return join_path(options.run_directory, step_text(named.step));
}

Result<> make_partial(Io& io, Begun& begun, const DrainOptions& options) {
  CKPT_TRY(begun.publication, Publication::begin(io,
                                                 {.target = partial_target(begun.named, options),
                                                  .id = begun.sealed.manifest.id.hex(),
                                                  .folders = all_folders(),
                                                  .named_later = true},
                                                 targets_of(files_of(begun.sealed.sums))));
  return {};
}

Result<std::string> publish_begun(Io& io, Begun& begun, const DrainOptions& options) {
  auto statistics = read_small_file(io, join_path(begun.from, kStatisticsPath), kMostStatisticsBytes);
  if (!statistics && statistics.error().code != Errc::not_found) return fail(std::move(statistics).error());
  return publish_save(io, *begun.publication,
                      {.run_directory = options.run_directory,
                       .step = begun.named.step,
                       .manifest = std::move(begun.sealed.manifest),
                       .files = std::move(begun.sealed.sums.files),
                       .leaves = std::move(begun.sealed.sums.leaves),
                       .statistics = statistics ? std::move(*statistics) : std::string(),
                       .least_generation = begun.named.generation});
}

Result<std::string> find_local(Io& io, std::uint64_t step, const Hash128& id, const DrainOptions& options) {
  CKPT_TRY(auto name, find_committed(io, options.local_directory, step, id));
  if (name) return *std::move(name);
  return fail({.code = Errc::not_found,
               .message = fmt::format("{}: step {} does not exist", options.local_directory, step),
               .file = options.local_directory});
}

}  // namespace

Result<std::string> drain(Io& io, BufferPool& pool, const std::string& name, const DrainOptions& options,
                          const std::atomic<bool>& stop) {
  CKPT_TRY(Begun begun, open_local(io, name, options));
  const Hash128 id = begun.sealed.manifest.id;
  CKPT_TRY(auto there, find_committed(io, options.run_directory, begun.named.step, id));
  if (there) {
    CKPT_CHECK(finish_published(io, join_path(options.run_directory, *there), id.hex()));
    return *std::move(there);
  }
  CKPT_CHECK(make_partial(io, begun, options));
  CKPT_CHECK(copy_checked(io, {.source_root = begun.from,
                               .target_root = begun.publication->root(),
                               .files = files_of(begun.sealed.sums),
                               .leaves = begun.sealed.sums.leaves,
                               .bytes_per_second = options.bytes_per_second,
                               .pool = &pool,
                               .stop = &stop}));
  return publish_begun(io, begun, options);
}

struct DrainInSteps::Impl {
  Begun begun;
  DrainOptions options;
};

DrainInSteps::DrainInSteps(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DrainInSteps::~DrainInSteps() = default;

Result<std::unique_ptr<DrainInSteps>> DrainInSteps::begin(Io& io, std::uint64_t step, const Hash128& id,
                                                          const DrainOptions& options) {
  CKPT_TRY(const std::string name, find_local(io, step, id, options));
  CKPT_TRY(Begun begun, open_local(io, name, options));
  CKPT_TRY(const auto there, find_committed(io, options.run_directory, step, id));
  if (there) {
    return fail(Errc::target_exists, join_path(options.run_directory, *there) + ": already exists");
  }
  CKPT_CHECK(make_partial(io, begun, options));
  return std::unique_ptr<DrainInSteps>(
      new DrainInSteps(std::make_unique<Impl>(Impl{.begun = std::move(begun), .options = options})));
}

Result<std::string> DrainInSteps::publish(Io& io) {
  return publish_begun(io, impl_->begun, impl_->options);
}

std::size_t DrainInSteps::file_count() const {
  return impl_->begun.sealed.sums.files.size();
}

Result<std::string> drain_part(Io& io, BufferPool& pool, std::uint64_t step, const Hash128& id,
                               const DrainOptions& options, const std::atomic<bool>& stop) {
  CKPT_TRY(const auto name, find_committed(io, options.local_directory, step, id));
  if (!name) return std::string();
  CKPT_TRY(const Begun begun, open_local(io, *name, options));
  const universal::Sums& sums = begun.sealed.sums;
  std::vector<MapFile> files;
  std::vector<Hash128> leaves;
  std::string copied(sums.files.size(), '0');
  for (std::size_t i = 0; i < sums.files.size(); ++i) {
    const std::string path = sums.files[i].key.path();
    auto info = io.stat(join_path(begun.from, path));
    if (!info && info.error().code == Errc::not_found) continue;  // another node's
    if (!info) return fail(std::move(info).error());
    files.push_back({.path = path, .bytes = sums.files[i].bytes});
    const auto of = sums.leaves_of(sums.files[i]);
    leaves.insert(leaves.end(), of.begin(), of.end());
    copied[i] = '1';
  }
  CKPT_CHECK(copy_checked(io, {.source_root = begun.from,
                               .target_root = partial_path(partial_target(begun.named, options), id.hex()),
                               .files = std::move(files),
                               .leaves = leaves,
                               .bytes_per_second = options.bytes_per_second,
                               .pool = &pool,
                               .stop = &stop}));
  return copied;
}

Result<std::vector<Undrained>> find_undrained(Io& io, const DrainOptions& options) {
  CKPT_TRY(const auto local, list_checkpoints(io, options.local_directory));
  std::vector<Undrained> found;
  std::optional<std::uint64_t> newest;  // of the run directory; searched only if there is something to compare
  for (const std::string& name : local) {
    const std::string path = join_path(options.local_directory, name);
    const auto manifest = read_manifest(io, path);
    if (!manifest) continue;
    const std::string run = base_name(options.run_directory);
    if (manifest->run && manifest->run->name != run) {
      return fail({.code = Errc::usage,
                   .message = fmt::format("{}: a checkpoint of run '{}', not of '{}'", path, manifest->run->name, run),
                   .file = path,
                   .hint = "give each run a local directory of its own"});
    }
    const CheckpointName named = *CheckpointName::parse(name);
    if (!newest) {
      CKPT_TRY(const auto shared, list_checkpoints(io, options.run_directory));
      newest = shared.empty() ? 0 : CheckpointName::parse(shared.front())->generation;
    }
    if (named.generation <= *newest) break;
    // A node may have a greater one of the same save: if it could not remove an earlier save that failed
    // elsewhere.
    CKPT_TRY(const auto there, find_committed(io, options.run_directory, named.step, manifest->id));
    if (there) break;
    found.push_back({.name = name, .step = named.step, .id = manifest->id});
  }
  return found;
}

Result<Retired> retire_drained(Io& io, const DrainOptions& options) {
  Retired out;
  CKPT_TRY(const auto names, list_checkpoints(io, options.local_directory));
  bool superseded = false;  // a newer one has been drained
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i < options.keep && superseded) continue;
    const std::string path = join_path(options.local_directory, names[i]);
    const auto manifest = read_manifest(io, path);
    if (!manifest) continue;
    const std::uint64_t step = CheckpointName::parse(names[i])->step;
    CKPT_TRY(const auto there, find_committed(io, options.run_directory, step, manifest->id));
    const bool drained = there.has_value();
    if (i >= options.keep && (drained || superseded)) {
      CKPT_TRY(const RemovedCheckpoint removed,
               remove_published(io, path, manifest->id.hex(), options.check_removable));
      if (removed.gone && !drained) out.undrained.push_back(names[i]);
      if (!removed.kept_because.empty()) out.kept.push_back({names[i], removed.kept_because});
    }
    superseded = superseded || drained;
  }
  return out;
}

}  // namespace ckpt
