#include "writers/publish_save.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "engine/store/inbox.hpp"
#include "engine/store/run_directory.hpp"
#include "format/universal/seal.hpp"

namespace ckpt {
namespace {

constexpr auto kLockPatience = std::chrono::seconds(30);  // another job's commit takes milliseconds
// If the lock does not reach every host, another one may commit the same step meanwhile, as the same generation.
constexpr unsigned kMostNames = 16;

Result<std::string> publish_locked(Io& io, Publication& publication, SaveToPublish save) {
  CKPT_TRY(const auto lock, lock_run(io, save.run_directory, std::chrono::steady_clock::now() + kLockPatience));
  CKPT_TRY(const std::uint64_t next, next_generation(io, save.run_directory));
  const std::uint64_t least = std::max(next, save.least_generation);
  CKPT_TRY(std::string sums, seal_sums(save.manifest, std::move(save.files), std::move(save.leaves)));
  std::vector<SmallFile> files;
  if (!save.statistics.empty()) {
    files.push_back({.path = std::string(kStatisticsPath), .bytes = std::move(save.statistics)});
  }
  files.insert(files.end(), std::make_move_iterator(save.marks.begin()), std::make_move_iterator(save.marks.end()));
  files.push_back({.path = std::string(universal::kSumsPath), .bytes = std::move(sums)});
  const std::size_t copy = files.size();
  files.push_back({.path = std::string(universal::kManifestCopyPath)});
  files.push_back({.path = std::string(universal::kManifestPath)});
  for (unsigned n = 0;; ++n) {
    const CheckpointName name{.step = save.step, .generation = least + n};
    if (name.generation > CheckpointName::kGreatest)
      return fail(Errc::usage, save.run_directory + ": no generation is left");
    if (save.manifest.run) save.manifest.run->generation = name.generation;
    CKPT_TRY(files[copy].bytes, build_manifest(save.manifest));
    files[copy + 1].bytes = files[copy].bytes;
    auto done = publication.commit(files, join_path(save.run_directory, name.text()));
    if (done) return name.text();
    if (done.error().code != Errc::target_exists || n + 1 == kMostNames) return fail(std::move(done).error());
  }
}

}  // namespace

std::vector<std::string> all_folders() {
  return {"shards", "shards/weights", "shards/optim", "blobs", "index", "marks"};
}

Result<std::string> publish_save(Io& io, Publication& publication, SaveToPublish save) {
  const std::string run_directory = save.run_directory;
  const std::string id = save.manifest.id.hex();
  CKPT_TRY(std::string name, publish_locked(io, publication, std::move(save)));
  drop_note(io, run_directory, name, id);
  return name;
}

}  // namespace ckpt
