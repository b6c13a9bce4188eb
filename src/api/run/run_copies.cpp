#include "api/run/run_copies.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "engine/io/replace_file.hpp"
#include "format/universal/seal.hpp"

namespace ckpt {
namespace {

/// The series and step of a checkpoint, from the second copy of its manifest.
std::optional<universal::Run> run_in_copy(Io& io, const std::string& checkpoint) {
  const auto text = read_small_file(io, join_path(checkpoint, universal::kManifestCopyPath), kMostManifestBytes);
  if (!text) return std::nullopt;
  auto manifest = universal::parse_manifest(*text);
  return manifest ? std::move(manifest->run) : std::nullopt;
}

}  // namespace

Result<std::vector<RunCheckpoint>> list_copies(Io& io, const std::string& run_directory,
                                               const std::string& local_directory, std::size_t most_read) {
  std::vector<RunCheckpoint> all;
  std::unordered_map<std::string, std::size_t> by_id;  // into `all`
  const auto add = [&](const std::string& directory, bool nearer) -> Result<> {
    CKPT_TRY(const auto names, list_checkpoints(io, directory));
    std::size_t left = most_read;
    for (const std::string& name : names) {
      RunCheckpoint found{.name = *CheckpointName::parse(name), .copies = {join_path(directory, name)}};
      if (left == 0) {
        all.push_back(std::move(found));
        continue;
      }
      if (auto manifest = read_manifest(io, found.copies.front())) {
        found.id = manifest->id.hex();
        found.run = std::move(manifest->run);
      } else {
        found.run = run_in_copy(io, found.copies.front());
      }
      if (found.run || !found.id.empty()) --left;  // an unreadable copy says nothing
      const auto known = found.id.empty() ? by_id.end() : by_id.find(found.id);
      if (known == by_id.end()) {
        if (!found.id.empty()) by_id.emplace(found.id, all.size());
        all.push_back(std::move(found));
      } else {
        auto& copies = all[known->second].copies;
        copies.insert(nearer ? copies.begin() : copies.end(), found.copies.front());
      }
    }
    return {};
  };
  CKPT_CHECK(add(run_directory, false));
  if (!local_directory.empty()) CKPT_CHECK(add(local_directory, true));
  std::stable_sort(all.begin(), all.end(), [](const RunCheckpoint& a, const RunCheckpoint& b) {
    return std::pair(a.name.generation, a.name.step) > std::pair(b.name.generation, b.name.step);
  });
  return all;
}

}  // namespace ckpt
