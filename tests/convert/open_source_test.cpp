#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "convert/identity.hpp"
#include "convert/materialize.hpp"
#include "convert/open_source.hpp"
#include "format/files/safetensors.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

const std::string kGolden = CKPT_GOLDEN_DIR;

std::unique_ptr<Io> real_io() {
  return open_io(IoKind::threads).value();
}

Result<Source> open_at(const std::string& path, std::string_view from = {}) {
  const auto io = real_io();
  return open_source(*io, path, from, {});
}

void expect_error(const std::string& path, Errc code, std::string_view text, std::string_view from = {}) {
  const auto source = open_at(path, from);
  ASSERT_FALSE(source) << path << " opened as " << source->format->name;
  EXPECT_EQ(source.error().code, code) << source.error().message;
  const std::string all = source.error().message + "\n" + source.error().hint;
  EXPECT_NE(all.find(text), std::string::npos) << all;
}

std::string one_tensor(std::string_view name = "w") {
  const safetensors::NewEntry entry{name, Dtype::u8, {}};
  return safetensors::build_header(std::span(&entry, 1), {}).value().bytes + "x";
}

std::string format_of(const std::string& path) {
  const auto source = open_at(path);
  if (!source) return source.error().message;
  return std::string(source->format->name);
}

TEST(OpenSource, FindsTheFormatOfGenuineDirectories) {
  for (const char* name : {"safetensors/dtypes", "safetensors/no_tensors", "safetensors/gpt2_tied",
                           "safetensors/llama_sharded", "torch/hf_sharded", "torch/hf_consolidated"})
    EXPECT_EQ(format_of(kGolden + "/" + name + "/ckpt"), "safetensors") << name;
  for (const char* name : {"torch/dcp_plain", "torch/dcp_hsdp", "torch/fsdp2_nested_optim"})
    EXPECT_EQ(format_of(kGolden + "/" + name + "/ckpt"), "dcp") << name;
  for (const char* name : {"deepspeed/zero0_bf16_dp2", "deepspeed/zero2_bf16_dp4", "deepspeed/zero3_bf16_dp4"})
    EXPECT_EQ(format_of(kGolden + "/" + name + "/ckpt"), "deepspeed") << name;
  for (const char* folder : {"", "/global_step3_universal"})
    EXPECT_EQ(format_of(kGolden + "/deepspeed/universal_from_zero2_bf16_dp4/ckpt" + folder), "deepspeed-universal");
  for (const char* name : {"legacy_tp2_pp2/ckpt", "legacy_tp2_pp2/ckpt/iter_0000002"})
    EXPECT_EQ(format_of(kGolden + "/megatron/" + name), "megatron-legacy") << name;
  for (const char* name : {"megatron/core_torch_dist_w4/ckpt", "megatron/torch_dist_tp2_pp2_dp2/ckpt",
                           "megatron/torch_dist_tp2_pp2_dp2/ckpt/iter_0000002"})
    EXPECT_EQ(format_of(kGolden + "/" + name), "megatron") << name;
  for (const char* name : {"torch/pt_mixed", "torch/pt_trainer", "torch/pt_dtypes"})
    EXPECT_EQ(format_of(kGolden + "/" + name + "/ckpt"), "torch") << name;
}

TEST(OpenSource, NamesWhatItRecognisesButDoesNotRead) {
  expect_error(kGolden + "/orbax/direct_standard/ckpt", Errc::unsupported, "Orbax");
  expect_error(kGolden + "/orbax/direct_standard/ckpt/final", Errc::unsupported, "Orbax");
  const TempDir dir;
  spill(dir.path() + "/m.gguf", "GGUF\x03");
  spill(dir.path() + "/a.npy", "\x93NUMPY\x01");
  spill(dir.path() + "/a.npz",
        std::string("PK\x03\x04", 4) + std::string(22, '\0') + std::string("\x05\0\0\0", 4) + "a.npy");
  spill(dir.path() + "/run/latest_checkpointed_iteration.txt", "7");
  expect_error(dir.path() + "/m.gguf", Errc::unsupported, "GGUF");
  expect_error(dir.path() + "/a.npy", Errc::unsupported, "NumPy");
  expect_error(dir.path() + "/a.npz", Errc::unsupported, "NumPy");
  expect_error(dir.path() + "/run", Errc::incomplete, "names iter_0000007, which is missing");
}

TEST(OpenSource, WorkThatNeverFinishedIsUncommitted) {
  expect_error(kGolden + "/broken/orbax_uncommitted/ckpt", Errc::uncommitted, "3.orbax-checkpoint-tmp");
  expect_error(kGolden + "/broken/orbax_uncommitted/ckpt/3.orbax-checkpoint-tmp", Errc::uncommitted, "never finished");
  const TempDir dir;
  spill(dir.path() + "/x.safetensors.partial-0123456789abcdef0123456789abcdef", one_tensor());
  spill(dir.path() + "/step.partial-0123456789abcdef0123456789abcdef/model.safetensors", one_tensor());
  expect_error(dir.path() + "/x.safetensors.partial-0123456789abcdef0123456789abcdef", Errc::uncommitted,
               "never finished");
  expect_error(dir.path() + "/step.partial-0123456789abcdef0123456789abcdef/", Errc::uncommitted, "never finished");
  expect_error(dir.path() + "/step.partial-0123456789abcdef0123456789abcdef", Errc::uncommitted, "never finished",
               "safetensors");
  expect_error(dir.path() + "/step.partial-0123456789abcdef0123456789abcdef/model.safetensors", Errc::uncommitted,
               "never finished");
}

TEST(OpenSource, NamesWhatItSawWhenNothingMatches) {
  expect_error(kGolden + "/broken/text_file/ckpt/model.pt", Errc::unsupported, "");
  const TempDir dir;
  expect_error(dir.path(), Errc::unsupported, "the directory is empty");
  spill(dir.path() + "/readme.txt", "hello");
  spill(dir.path() + "/notes.md", "");
  expect_error(dir.path(), Errc::unsupported, "notes.md, readme.txt");
  expect_error(dir.path() + "/readme.txt", Errc::unsupported, "a text file, not a checkpoint");
  expect_error(dir.path() + "/notes.md", Errc::unsupported, "the file is empty");
  spill(dir.path() + "/checkpoint-500/model.safetensors", one_tensor());
  expect_error(dir.path(), Errc::unsupported, "checkpoint-500 looks like safetensors");
}

TEST(OpenSource, WhatIsNotThereIsNotFound) {
  const TempDir dir;
  expect_error(dir.path() + "/nowhere", Errc::not_found, "nowhere");
  expect_error("", Errc::not_found, "");
  expect_error("s3://bucket/run", Errc::unsupported, "URLs");
}

TEST(OpenSource, TwoMatchesAreAmbiguousUntilOneIsNamed) {
  const TempDir dir;
  spill(dir.path() + "/model.safetensors", one_tensor());
  std::filesystem::create_directories(dir.path() + "/d");
  std::filesystem::copy(kGolden + "/deepspeed/zero2_bf16_dp4/ckpt", dir.path(),
                        std::filesystem::copy_options::recursive);
  expect_error(dir.path(), Errc::ambiguous, "--from safetensors or --from deepspeed");
  const auto one = open_at(dir.path(), "safetensors");
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(one->map.tensors.size(), 1u);
  const auto other = open_at(dir.path(), "deepspeed");
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_GT(other->map.tensors.size(), 1u);
  expect_error(dir.path(), Errc::usage, "no such format", "safetensor");
}

TEST(OpenSource, SlashesAtTheEndAndSingleFilesAreTheSamePlace) {
  const TempDir dir;
  spill(dir.path() + "/hf/model.safetensors", one_tensor());
  const auto directory = open_at(dir.path() + "/hf//");
  ASSERT_TRUE(directory) << directory.error().message;
  EXPECT_EQ(directory->root, dir.path() + "/hf");
  const auto file = open_at(dir.path() + "/hf/model.safetensors");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->map.files.at(0).path, "");
  EXPECT_EQ(materialize(file->map, file->root, 0), "x");
  spill(dir.path() + "/weights.bin", one_tensor());
  EXPECT_EQ(format_of(dir.path() + "/weights.bin"), "safetensors") << "by its first bytes";
}

TEST(OpenSource, DescendsToTheSlicesWhenOnlyTheyAreThere) {
  const TempDir dir;
  std::filesystem::copy(kGolden + "/torch/hf_consolidated/ckpt/sharded", dir.path() + "/sharded");
  const auto source = open_at(dir.path());
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ(source->root, dir.path() + "/sharded");
  EXPECT_EQ(source->map.tensors.size(), 6u);
}

TEST(OpenSource, HoldsTheLeaseWhileTheSourceLives) {
  const TempDir dir;
  spill(dir.path() + "/hf/model.safetensors", one_tensor());
  const std::string root = dir.path() + "/hf";
  const auto io = real_io();
  {
    const auto source = open_source(*io, root, {}, {});
    ASSERT_TRUE(source);
    const auto second = open_at(root);
    EXPECT_TRUE(second) << "readers share";
    const auto exclusive = io->lock(root, LockMode::exclusive);
    ASSERT_FALSE(exclusive);
    EXPECT_EQ(exclusive.error().code, Errc::locked);
  }
  const auto exclusive = io->lock(root, LockMode::exclusive);
  ASSERT_TRUE(exclusive);
  expect_error(root, Errc::locked, "another process");
}

TEST(OpenSource, AFifoIsNotOpened) {
  const TempDir dir;
  const std::string path = dir.path() + "/model.safetensors";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_error(path, Errc::unsupported, "neither a file nor a directory");
  expect_error(dir.path(), Errc::unsupported, "model.safetensors");
  spill(dir.path() + "/model.safetensors.index.json", R"({"weight_map":{"w":"model.safetensors"}})");
  EXPECT_FALSE(open_at(dir.path()));
}

TEST(Fingerprint, ChangesWithFilesAndMetadataAndNotWithTheirOrder) {
  Map map;
  map.files = {{.path = "b", .bytes = 1, .mtime_ns = 5}, {.path = "a", .bytes = 2, .mtime_ns = 6}};
  map.metadata_hash = "m";
  const Hash128 base = fingerprint(map);
  std::swap(map.files[0], map.files[1]);
  EXPECT_EQ(fingerprint(map), base);
  Map other = map;
  other.files[0].path = "c";
  EXPECT_NE(fingerprint(other), base);
  other = map;
  other.files[0].bytes = 3;
  EXPECT_NE(fingerprint(other), base);
  other = map;
  other.files[0].mtime_ns = 7;
  EXPECT_NE(fingerprint(other), base);
  other = map;
  other.metadata_hash = "n";
  EXPECT_NE(fingerprint(other), base);
}

TEST(Identity, CountsInodesAndTimesOfChangeWhereNoHashesTellWhatAFileHolds) {
  Map map;
  map.files = {{.path = "a", .bytes = 1, .mtime_ns = 5, .inode = 7, .ctime_ns = 6}};
  const Hash128 base = identity(map);
  Map other = map;
  other.files[0].ctime_ns = 8;
  EXPECT_NE(identity(other), base);
  EXPECT_EQ(fingerprint(other), fingerprint(map));
  other = map;
  other.files[0].inode = 9;
  EXPECT_NE(identity(other), base);
  map.hashes.leaves.resize(1);
  other = map;
  other.files[0].ctime_ns = 8;
  other.files[0].inode = 9;
  EXPECT_EQ(identity(other), identity(map));
}

}  // namespace
}  // namespace ckpt
