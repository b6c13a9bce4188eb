#include "support/tiny_checkpoint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "engine/publish/publish.hpp"
#include "engine/store/run_directory.hpp"
#include "format/universal/seal.hpp"
#include "support/memory_io.hpp"
#include "support/training_job.hpp"
#include "writers/publish_save.hpp"

namespace ckpt::test {
namespace {

constexpr std::uint64_t kElements = 6;

Result<Model> tiny_model() {
  return Model::make({universal::Layout{.kind = universal::Layout::Kind::mesh, .mesh = {{{"dp", 1}}}}},
                     {{.tensor = {.name = "p", .dtype = Dtype::f32, .shape = {kElements}}},
                      {.tensor = {.name = "optimizer.state.p.exp_avg",
                                  .dtype = Dtype::f32,
                                  .shape = {kElements},
                                  .role = Role::slot,
                                  .parameter = "p",
                                  .slot = "exp_avg"}}});
}

Result<> save_tiny(Run& run) {
  CKPT_TRY(Model model, tiny_model());
  run.set_model(std::move(model));
  CKPT_CHECK(run.begin(1));
  const std::vector<std::byte> bytes(kElements * sizeof(float));
  for (const char* name : {"p", "optimizer.state.p.exp_avg"})
    CKPT_CHECK(run.saver().add({.name = name, .memory = {.data = bytes.data(), .bytes = bytes.size()}}));
  CKPT_TRY(const auto pending, run.commit({}));
  return run.saver().wait(pending, std::chrono::minutes(2));
}

Result<> write_file(Io& io, const std::string& path, const std::string& bytes) {
  CKPT_TRY(const FileHandle file, io.open(path, {.mode = OpenOptions::Mode::write_existing}));
  auto written = io.write_at(file, 0, std::as_bytes(std::span(bytes)));
  if (written) written = io.truncate(file, bytes.size());
  if (written) written = io.sync(file);
  auto closed = io.close(file);
  CKPT_CHECK(std::move(written));
  return closed;
}

}  // namespace

TinyCheckpoints::TinyCheckpoints() {
  MemoryDisk disk;
  disk.put("/t/other", "");
  with_runs(
      {}, "/t/r", {}, [&](std::size_t) { return disk.io(); },
      [&](std::size_t, auto run) {
        ASSERT_TRUE(run) << run.error().message;
        const auto saved = save_tiny(**run);
        ASSERT_TRUE(saved) << saved.error().message;
      });
  const std::string root = "/t/r/step-000000001.g1/";
  auto manifest = universal::parse_manifest(disk.text(root + "manifest.json"));
  const std::string sums_text = disk.text(root + "sums.bin");
  auto sums = universal::parse_sums(std::as_bytes(std::span(sums_text)));
  EXPECT_TRUE(manifest && sums);
  if (!manifest || !sums) return;
  manifest_ = *std::move(manifest);
  sums_ = *std::move(sums);
  for (const universal::FileRecord& file : sums_.files)
    files_.emplace(file.key.path(), disk.text(root + file.key.path()));
}

Hash128 TinyCheckpoints::id_of(const Save& save) {
  return hash128("tiny " + std::to_string(save.number));
}

Tree TinyCheckpoints::data_of(const Save& save) const {
  Tree out = files_;
  const std::string id = id_of(save).hex();
  for (const universal::FileRecord& file : sums_.files) {
    std::string& bytes = out.at(file.key.path());
    const std::size_t at = bytes.find(manifest_.id.hex());
    if (at != std::string::npos) bytes.replace(at, id.size(), id);
    if (file.data_begin == 0) continue;
    for (std::size_t i = 0; i < kElements; ++i) {
      const float value = static_cast<float>(save.number) + static_cast<float>(i) / 8;
      std::memcpy(bytes.data() + file.data_begin + i * sizeof(float), &value, sizeof(float));
    }
  }
  return out;
}

Result<std::string> TinyCheckpoints::save(Io& io, const Save& save) const {
  CKPT_CHECK(sweep_partials(io, save.run_directory));
  const Tree data = data_of(save);
  std::vector<TargetFile> files;
  SaveToPublish commit{.run_directory = save.run_directory, .step = save.step, .manifest = manifest_};
  for (const universal::FileRecord& file : sums_.files) {
    const std::string& bytes = data.at(file.key.path());
    files.push_back({.path = file.key.path(), .bytes = bytes.size()});
    commit.files.push_back({.key = file.key, .bytes = bytes.size(), .data_begin = file.data_begin});
    if (!bytes.empty()) commit.leaves.push_back(hash128(bytes));
  }
  commit.manifest.id = id_of(save);
  commit.manifest.created = save.created;
  commit.manifest.run = save.run;
  commit.manifest.meta.step = save.step;
  commit.manifest.meta.user = save.user;
  CKPT_TRY(const auto publication, Publication::begin(io,
                                                      {.target = save.run_directory + "/" + step_text(save.step),
                                                       .id = commit.manifest.id.hex(),
                                                       .folders = all_folders(),
                                                       .named_later = true},
                                                      files));
  for (const auto& [path, bytes] : data) CKPT_CHECK(write_file(io, publication->root() + "/" + path, bytes));
  return publish_save(io, *publication, std::move(commit));
}

}  // namespace ckpt::test
