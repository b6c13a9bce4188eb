#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "api/run/run.hpp"
#include "support/temp_dir.hpp"
#include "support/training_job.hpp"

namespace ckpt::test {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
inline constexpr auto kLong = 300s;  // a limit that only a broken program reaches

inline const JobLayout kAlone{};
inline const JobLayout kPair{.dp = 2, .zero = 1};

inline std::unique_ptr<Io> real_io(std::size_t) {
  auto io = open_io(IoKind::automatic, 8);
  return io ? std::move(*io) : nullptr;
}

inline std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Every file below a directory, by relative path.
inline std::map<std::string, std::string> tree(const fs::path& root) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.is_regular_file()) files[fs::relative(entry.path(), root)] = read_all(entry.path());
  }
  return files;
}

inline std::vector<std::string> names(const fs::path& directory) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(directory)) out.push_back(entry.path().filename());
  std::sort(out.begin(), out.end());
  return out;
}

inline void flip_bit(const fs::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-3, std::ios::end);
  const int byte = file.get();
  file.seekp(-3, std::ios::end);
  file.put(static_cast<char>(byte ^ 4));
}

/// Begins, adds and commits; null if that fails.
inline std::shared_ptr<PendingSave> commit_step(ckpt::Run& run, std::uint64_t step) {
  std::vector<std::vector<std::byte>> memory;
  if (!run.begin(step) || !add_all(run, step, memory)) return nullptr;
  auto pending = run.commit({});
  return pending ? *pending : nullptr;
}

using Names = std::vector<std::string>;

class Tiers : public testing::TestWithParam<JobLayout> {
 protected:
  using Body = std::function<void(std::size_t rank, ckpt::Run& run)>;
  ckpt::Run::Options options() const { return {.patience = 120s, .local_directory = local_}; }
  void on_ranks(const JobLayout& layout, const ckpt::Run::Options& options, const Body& body) const {
    on_ranks_over(layout, options, real_io, body);
  }
  void on_ranks_over(const JobLayout& layout, const ckpt::Run::Options& options,
                     const std::function<std::unique_ptr<Io>(std::size_t)>& io, const Body& body) const {
    with_runs(layout, run_, options, io, [&](std::size_t rank, auto run) {
      ASSERT_TRUE(run) << run.error().message;
      body(rank, **run);
    });
  }
  /// The state after a job that ends between the commit in the local directory and the drain.
  void save_undrained(const JobLayout& layout, std::uint64_t step) const {
    with_runs(layout, local_, {.patience = 120s}, real_io, [&](std::size_t, auto run) {
      ASSERT_TRUE(run) << run.error().message;
      const auto saved = save_step(**run, step);
      ASSERT_TRUE(saved) << saved.error().message;
    });
  }
  /// Equal on all ranks: the step that a run without a local directory loads.
  void expect_loads(const std::string& directory, const JobLayout& layout, std::uint64_t step) const {
    with_runs(layout, directory, {.patience = 120s, .verify_all = true}, real_io, [&](std::size_t, auto run) {
      ASSERT_TRUE(run) << run.error().message;
      const auto loaded = load_all(**run);
      ASSERT_TRUE(loaded) << loaded.error().message << loaded.error().hint;
      EXPECT_EQ(*loaded, step);
    });
  }

  const TempDir directory_{memory_temp_dir()};
  const std::string run_ = directory_.path() + "/shared/run";
  const std::string local_ = directory_.path() + "/nvme/run";
};

}  // namespace ckpt::test
