#include "api/run_copies.hpp"

#include <algorithm>
#include <utility>

namespace ckpt {

Result<std::vector<RunCheckpoint>> list_copies(Io& io, const std::string& run_directory,
                                               const std::string& local_directory) {
  std::vector<RunCheckpoint> all;
  const auto add = [&](const std::string& directory, bool nearer) -> Result<> {
    CKPT_TRY(const auto names, list_checkpoints(io, directory));
    for (const std::string& name : names) {
      RunCheckpoint found{.name = *CheckpointName::parse(name), .copies = {join_path(directory, name)}};
      if (auto manifest = read_manifest(io, found.copies.front())) {
        found.id = manifest->id.hex();
        found.run = std::move(manifest->run);
      }
      const auto same = found.id.empty() ? all.end() : std::find_if(all.begin(), all.end(), [&](const auto& other) {
        return other.id == found.id;
      });
      if (same == all.end()) {
        all.push_back(std::move(found));
      } else {
        same->copies.insert(nearer ? same->copies.begin() : same->copies.end(), found.copies.front());
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

universal::Run same_series(const std::string& run_directory, const std::optional<RunCheckpoint>& newest) {
  universal::Run run{.name = base_name(run_directory)};
  if (!newest || !newest->run) return run;
  run.series = newest->run->series;
  run.series_from = newest->run->series_from;
  return run;
}

}  // namespace ckpt
