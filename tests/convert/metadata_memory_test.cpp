#include "convert/metadata_memory.hpp"

#include <gtest/gtest.h>

#include <string>

#include "convert/formats.hpp"
#include "support/memory_io.hpp"

namespace ckpt {
namespace {

TEST(MetadataMemory, AFileThatMayCostMoreThanTheBoundIsNotRead) {
  MemoryDisk disk;
  disk.put("/d/m.json", std::string(1000, ' '));
  const auto io = disk.io();
  EXPECT_TRUE(read_metadata_file(*io, "/d/m.json", MetadataCost::json, 24'000));
  const auto over = read_metadata_file(*io, "/d/m.json", MetadataCost::json, 23'999);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, Errc::memory);
  EXPECT_EQ(over.error().file, "/d/m.json");
  EXPECT_NE(over.error().hint.find("--memory"), std::string::npos);
  EXPECT_EQ(read_metadata_file(*io, "/d/m.json", MetadataCost::json, UINT64_MAX, 999).error().code, Errc::corrupt);
  EXPECT_EQ(read_metadata_file(*io, "/d/none", MetadataCost::json, UINT64_MAX).error().code, Errc::not_found);
  EXPECT_EQ(memory_for(UINT64_MAX / 2, MetadataCost::json), UINT64_MAX);
}

TEST(MetadataMemory, APickleOverItsBudgetIsAMatterOfMemoryWhereAUserChoseTheBound) {
  std::string many = "\x80\x02";
  many.append(2'000'000, ']');  // lists, 16 bytes each
  const auto bytes = std::as_bytes(std::span(many));
  EXPECT_EQ(pickle::parse(bytes, pickle_budget(16 << 20)).error().code, Errc::memory);
  EXPECT_EQ(pickle::parse(bytes, pickle_budget(UINT64_MAX)).error().code, Errc::corrupt);  // it has no end
}

TEST(MetadataMemory, IndexesOfSafetensorsAndTorchFilesAreHeldToIt) {
  for (const std::string suffix : {"safetensors", "bin"}) {
    MemoryDisk disk;
    disk.put("/d/model." + suffix + ".index.json",
             R"({"weight_map":{"a":"model-00001-of-00001.)" + suffix + "\"}}" + std::string(1 << 20, ' '));
    disk.put("/d/model-00001-of-00001." + suffix, "x");
    const auto io = disk.io();
    const Format format = suffix == "bin" ? torch_format() : safetensors_format();
    EXPECT_EQ(format.reader->open(*io, "/d", {.metadata_limit = 20 << 20}).error().code, Errc::memory) << suffix;
    EXPECT_EQ(format.reader->open(*io, "/d", {.metadata_limit = 30 << 20}).error().code, Errc::corrupt) << suffix;
  }
}

}  // namespace
}  // namespace ckpt
