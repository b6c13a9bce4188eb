// Checkpoints in tar archives: what is read is what the folder holds.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "convert/open_source.hpp"
#include "engine/run/checks.hpp"
#include "support/fault_io.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/memory_io.hpp"
#include "support/tar_writer.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;
using test::TarWriter;

/// The folder's files, below `prefix` in the archive.
std::string packed(const std::string& folder, const std::string& prefix) {
  TarWriter out;
  for (const auto& [path, bytes] : test::read_tree(folder)) {
    const std::string name = prefix + path;
    if (name.size() < 100)
      out.add(name, bytes);
    else
      out.add_long(name, bytes, true);
  }
  return out.finish();
}

std::vector<std::string> cases() {
  std::vector<std::string> out;
  for (const char* framework : {"deepspeed", "folders", "megatron", "safetensors", "torch"})
    for (const auto& entry : fs::directory_iterator(fs::path(CKPT_GOLDEN_DIR) / framework))
      out.push_back(std::string(framework) + "/" + entry.path().filename().string());
  return out;
}

void expect_same(const Source& expected, const Source& found) {
  EXPECT_EQ(found.format->name, expected.format->name);
  ASSERT_EQ(found.map.tensors.size(), expected.map.tensors.size());
  EXPECT_EQ(found.map.objects.size(), expected.map.objects.size());
  EXPECT_EQ(found.map.aliases.size(), expected.map.aliases.size());
  EXPECT_EQ(found.map.extras.size(), expected.map.extras.size());
  EXPECT_EQ(found.map.findings.size(), expected.map.findings.size());
  EXPECT_EQ(found.settings, expected.settings);
  for (std::size_t i = 0; i < expected.map.tensors.size(); ++i) {
    EXPECT_EQ(found.map.tensors[i].name, expected.map.tensors[i].name);
    EXPECT_EQ(found.map.tensors[i].shape, expected.map.tensors[i].shape);
    const Gathered here = gather(found.map, found.root, i);
    const Gathered there = gather(expected.map, expected.root, i);
    EXPECT_TRUE(here.bytes == there.bytes) << expected.map.tensors[i].name;
    EXPECT_EQ(here.complete, there.complete);
    EXPECT_EQ(here.crc_agrees, there.crc_agrees);
  }
  EXPECT_TRUE(check_unchanged(*found.io, found.map, found.root));
}

TEST(Archive, GenuineCheckpointsAreReadAsFromTheirFolders) {
  const TempDir directory;
  const std::string tar = directory.path() + "/run.tar";
  const auto io = open_io(IoKind::threads).value();
  const ReadOptions options{.find_beside = true, .extras = true};
  std::size_t opened = 0;
  for (const std::string& name : cases()) {
    SCOPED_TRACE(name);
    const std::string root = golden_root(name);
    const auto expected = open_source(*io, root, "", options);
    for (const std::string prefix : {"./", "run/"}) {
      test::write_file(tar, packed(root, prefix));
      const auto found = open_source(*io, tar, "", options);
      if (expected) {
        ASSERT_TRUE(found) << found.error().message;
        expect_same(*expected, *found);
        ++opened;
      } else if (prefix == "./") {
        ASSERT_FALSE(found);
        EXPECT_EQ(found.error().code, expected.error().code) << found.error().message;
      }
    }
  }
  EXPECT_GT(opened, 150u);
}

TEST(Archive, TheWholeObjectOfATorchFileRefersToTheArchivesBytes) {
  const TempDir directory;
  const std::string tar = directory.path() + "/run.tar";
  const auto io = open_io(IoKind::threads).value();
  const std::string root = golden_root("torch/pt_values");
  test::write_file(tar, packed(root, ""));
  const auto expected = open_source(*io, root, "", {});
  const auto found = open_source(*io, tar, "", {});
  ASSERT_TRUE(expected && found);
  const auto there = expected->map.whole();
  const auto here = found->map.whole();
  ASSERT_TRUE(there && here);
  ASSERT_FALSE(there->storages.empty());
  const std::string file = test::read_file(path_of(expected->map, 0, expected->root));
  const std::string archive = test::read_file(tar);
  for (const auto& [name, range] : there->storages) {
    const Extent moved = here->storages.at(name);
    EXPECT_EQ(archive.substr(moved.begin, moved.size()), file.substr(range.begin, range.size())) << name;
  }
}

TEST(Archive, APathInItOpensThatPart) {
  const TempDir directory;
  const std::string tar = directory.path() + "/two.tar";
  const auto io = open_io(IoKind::threads).value();
  const std::string file = test::read_file(golden_root("safetensors/single") + "/model.safetensors");
  test::write_file(tar, TarWriter().add("a/m.safetensors", file).add("b/m.safetensors", file).finish());
  const auto both = open_source(*io, tar, "", {});
  ASSERT_FALSE(both);
  EXPECT_NE(both.error().message.find("2 checkpoints, not one"), std::string::npos) << both.error().message;
  for (const char* part : {"/a", "/b/m.safetensors", "/b/"}) {
    const auto one = open_source(*io, tar + part, "", {});
    ASSERT_TRUE(one) << part << one.error().message;
    EXPECT_EQ(one->root, tar);
  }
  EXPECT_EQ(open_source(*io, tar + "/c", "", {}).error().code, Errc::not_found);
}

TEST(Archive, FormatsThatNeedFilesOfTheirOwnAreRefused) {
  const TempDir directory;
  const std::string tar = directory.path() + "/run.tar";
  const auto io = open_io(IoKind::threads).value();
  for (const char* name : {"hdf5/plain_groups", "ckpt/1.0-mesh"}) {
    const std::string root = golden_root(name);
    test::write_file(tar, packed(root, ""));
    const auto found = open_source(*io, tar, "", {});
    ASSERT_FALSE(found) << name;
    EXPECT_EQ(found.error().code, Errc::unsupported) << found.error().message;
    EXPECT_NE(found.error().hint.find("tar -xf"), std::string::npos) << found.error().hint;
  }
}

TEST(Archive, NemosFilesOfRanksAreNoModelsOfTheirOwn) {
  const TempDir directory;
  const std::string tar = directory.path() + "/tp.nemo";
  const auto io = open_io(IoKind::threads).value();
  const std::string part = test::read_file(golden_root("torch/pt_state_dict") + "/model.pt");
  test::write_file(tar, TarWriter()
                            .add("./model_config.yaml", "tensor_model_parallel_size: 2\n")
                            .add("./tp_rank_00_pp_rank_000/model_weights.ckpt", part)
                            .add("./tp_rank_01_pp_rank_000/model_weights.ckpt", part)
                            .finish());
  const auto found = open_source(*io, tar, "", {});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Errc::unsupported);
  EXPECT_NE(found.error().message.find("NeMo 1 model split across 2 ranks"), std::string::npos)
      << found.error().message;
}

// Whenever another archive takes its place, the map that was made is of one archive, and its file is that one.
TEST(Archive, OneThatIsReplacedMeanwhileIsNoticed) {
  const std::string file = test::read_file(golden_root("safetensors/single") + "/model.safetensors");
  const std::string was = TarWriter().add("m.safetensors", file).finish();
  const std::string is = TarWriter().add("first", std::string(3000, 'x')).add("m.safetensors", file).finish();
  const auto offset = [](const Source& source) {
    std::uint64_t out = 0;
    EXPECT_TRUE(source.map.index->chunks(0, {0, 1}, [&](const PlacedChunk& placed) -> Result<> {
      out = placed.where.offset;
      return {};
    }));
    return out;
  };
  std::vector<std::uint64_t> offsets;
  for (const std::string& bytes : {was, is}) {
    MemoryDisk disk;
    disk.put("/run.tar", bytes);
    const auto io = disk.io();
    const auto source = open_source(*io, "/run.tar", "", {});
    ASSERT_TRUE(source) << source.error().message;
    offsets.push_back(offset(*source));
  }
  ASSERT_NE(offsets[0], offsets[1]);
  std::size_t refused = 0;
  for (std::uint64_t n = 0;; ++n) {
    MemoryDisk disk;
    disk.put("/run.tar", was);
    disk.put("/other.tar", is);
    const std::uint64_t inodes[] = {disk.inode("/run.tar"), disk.inode("/other.tar")};
    const auto plan = std::make_shared<FaultPlan>();
    bool replaced = false;
    const auto other = disk.io();
    plan->call_at(n, [&] { replaced = other->rename("/other.tar", "/run.tar", RenameMode::replace).has_value(); });
    const auto io = make_fault_io(disk.io(), plan);
    const auto source = open_source(*io, "/run.tar", "", {});
    if (!source) {
      EXPECT_TRUE(replaced) << source.error().message;
      ++refused;
      continue;
    }
    const std::size_t which = source->map.files[0].inode == inodes[1] ? 1 : 0;
    EXPECT_EQ(source->map.files[0].inode, inodes[which]) << n;
    EXPECT_EQ(offset(*source), offsets[which]) << n;
    if (!replaced) break;
  }
  EXPECT_GT(refused, 3u);
}

}  // namespace
}  // namespace ckpt
