#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "catalog/scan/entry.hpp"
#include "engine/io/io.hpp"
#include "engine/store/foreign_names.hpp"
#include "engine/store/run_directory.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/seal.hpp"
#include "support/file_bytes.hpp"
#include "support/temp_dir.hpp"

namespace ckpt::test {

/// The names of other tools' checkpoints in tests, as formats supply theirs.
inline ForeignNames other_names() {
  return {.steps = {"global_step#", "iter_#", "checkpoint-#", "ckpt-#", "step_#"},
          .trackers = {"latest", "latest_checkpointed_iteration.txt"},
          .markers = {"latest"}};
}

/// A store in a directory of this test's own, made of checkpoints that have manifests and tables of files but no data.
class StoreBuilder {
 public:
  struct Options {
    std::uint64_t series = 0;
    std::optional<std::uint64_t> series_from{};
    std::optional<std::uint64_t> series_after{};
    std::uint64_t weights_bytes = 8192;
    std::uint64_t optim_bytes = 16384;
    std::string created = "2026-01-02T03:04:05.678000000Z";
    std::string parent{};
    std::vector<std::pair<std::string, std::string>> user{};
  };

  StoreBuilder() : temp_(memory_temp_dir()) {
    auto io = open_io(IoKind::threads);
    EXPECT_TRUE(io);
    if (io) io_ = *std::move(io);
  }

  const std::string& path() const { return temp_.path(); }
  Io& io() { return *io_; }

  /// Makes STORE/RUN/step-N.gG; its path.
  std::string put(const std::string& run, std::uint64_t step, std::uint64_t generation) {
    return put(run, step, generation, Options{});
  }
  std::string put(const std::string& run, std::uint64_t step, std::uint64_t generation, const Options& options) {
    const std::string name = CheckpointName{.step = step, .generation = generation}.text();
    const std::string directory = path() + "/" + run + "/" + name;
    std::filesystem::create_directories(directory + "/marks");
    universal::Manifest manifest;
    manifest.id = hash128(run + "/" + name);
    manifest.created = options.created;
    manifest.generator = "test";
    manifest.run = universal::Run{.name = run,
                                  .series = options.series,
                                  .series_from = options.series_from,
                                  .series_after = options.series_after,
                                  .generation = generation,
                                  .parent = options.parent};
    manifest.meta.step = step;
    manifest.meta.user = options.user;
    std::vector<universal::FileRecord> files;
    std::vector<Hash128> leaves;
    const auto add = [&](universal::FileClass file_class, std::uint64_t bytes) {
      if (bytes == 0) return;
      files.push_back({.key = {.file_class = file_class}, .bytes = bytes, .data_begin = 4096});
      leaves.resize(leaves.size() + universal::leaf_count(bytes));
    };
    add(universal::FileClass::weights, options.weights_bytes);
    add(universal::FileClass::optim, options.optim_bytes);
    auto seal = universal::seal(std::move(manifest), std::move(files), std::move(leaves));
    EXPECT_TRUE(seal) << seal.error().message;
    if (!seal) return directory;
    write_file(directory + "/sums.bin", seal->sums);
    write_file(directory + "/manifest.json", seal->manifest);
    std::filesystem::create_directories(directory + "/index");
    write_file(directory + "/index/manifest.json", seal->manifest);
    return directory;
  }

  /// Makes a directory as another tool's, of a few bytes: recognised below as format "other".
  std::string put_foreign(const std::string& run, const std::string& name, const std::string& bytes = "0123456789") {
    const std::string directory = path() + "/" + run + "/" + name;
    std::filesystem::create_directories(directory);
    write_file(directory + "/other.bin", bytes);
    return directory;
  }

 private:
  TempDir temp_;
  std::unique_ptr<Io> io_{};
};

}  // namespace ckpt::test
