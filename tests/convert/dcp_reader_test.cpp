#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "convert/dcp_files.hpp"
#include "convert/formats.hpp"
#include "support/golden.hpp"
#include "support/pickle_writer.hpp"

namespace ckpt {
namespace {

using dcp_build::save_object;
using dcp_build::save_tensor;
using dcp_build::Stream;
using dcp_build::View;

Result<Map> open_dcp(const DcpFiles& files) {
  auto io = open_io(IoKind::threads, 8);
  EXPECT_TRUE(io.has_value());
  return dcp_format().reader->open(**io, files.root(), {});
}

bool is_detected(const DcpFiles& files) {
  auto io = open_io(IoKind::threads, 8);
  auto entries = (*io)->list(files.root());
  const auto match = dcp_format().detect({.io = **io, .root = files.root(), .directory = true, .entries = *entries});
  EXPECT_TRUE(match.has_value());
  return match->has_value();
}

/// The error that resolving a tensor gives.
Error error_of(const Map& map, const std::string& tensor) {
  const std::size_t index = find_tensor(map, tensor);
  const Result<> visited = map.index->chunks(index, {0, volume(map.tensors[index].shape)},
                                             [](const PlacedChunk&) -> Result<> { return {}; });
  EXPECT_FALSE(visited.has_value());
  return visited ? Error{} : visited.error();
}

/// A vector of four floats in one chunk.
dcp_build::Entry vector4(const std::string& fqn, dcp_build::StorageInfo place) {
  return {.fqn = fqn, .shape = {4}, .chunks = {{{0}, {4}}}, .records = {{Shape{0}, std::move(place)}}};
}
const View kVector4{"FloatStorage", 4, 0, {4}, {1}};
const std::string kData = "AAAABBBBCCCCDDDD";

TEST(DcpReader, NotYetCommittedIsIncompleteAndSaysSo) {
  DcpFiles files;
  files.write_file("__0_0.distcp", "x");
  files.write_file(".metadata.tmp", "x");
  EXPECT_TRUE(is_detected(files));
  const auto map = open_dcp(files);
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::uncommitted);
  EXPECT_EQ(exit_code(map.error().code), 13);
}

TEST(DcpReader, AnyOtherDirectoryIsNotDetected) {
  DcpFiles files;
  EXPECT_FALSE(is_detected(files));
  files.write_file("model.safetensors", "x");
  files.write_file("metadata.pkl", "\x80\x04}.");
  files.write_file(".metadata", "text of something else");
  EXPECT_FALSE(is_detected(files));
}

TEST(DcpReader, EveryMissingFileIsNamed) {
  DcpFiles files;
  files.add(vector4("a", files.append("__0_0.distcp", save_tensor(kVector4, kData))));
  files.add(vector4("b", {"__1_0.distcp", 0, 10, {}}));
  files.add(vector4("c", {"__2_0.distcp", 0, 10, {}}));
  files.write();
  const auto map = open_dcp(files);
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::incomplete);
  EXPECT_NE(map.error().message.find("2 of 3 data files are missing: __1_0.distcp, __2_0.distcp"), std::string::npos)
      << map.error().message;
}

TEST(DcpReader, FileShorterThanItsFurthestItemIsCorrupt) {
  DcpFiles files;
  files.add(vector4("a", files.append("__0_0.distcp", save_tensor(kVector4, kData))));
  files.data_of("__0_0.distcp").pop_back();
  files.write();
  const auto map = open_dcp(files);
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::corrupt);
  EXPECT_EQ(map.error().file, files.root() + "/__0_0.distcp");
}

TEST(DcpReader, NothingIsReadOfATensorBeforeItIsAskedFor) {
  DcpFiles files;
  files.add(vector4("a", files.append("__0_0.distcp", std::string(2000, '?'))));
  files.write();
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  const std::vector<std::uint32_t> all{0};
  EXPECT_TRUE(check_coverage(*map, all).has_value());
  const Error error = error_of(*map, "a");
  EXPECT_EQ(error.code, Errc::corrupt);
  EXPECT_EQ(error.tensor, "a");
  EXPECT_EQ(error.file, files.root() + "/__0_0.distcp");
}

TEST(DcpReader, DamagedItemThatNobodyAsksForDoesNoHarm) {
  DcpFiles files;
  files.add(vector4("a", files.append("__0_0.distcp", save_tensor(kVector4, kData))));
  files.add(vector4("b", files.append("__0_0.distcp", std::string(2000, '?'))));
  files.add(vector4("c", files.append("__0_0.distcp", save_tensor(kVector4, kData))));
  files.write();
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(gather(*map, files.root(), find_tensor(*map, "a")).bytes, kData);
  EXPECT_EQ(gather(*map, files.root(), find_tensor(*map, "c")).bytes, kData);
  EXPECT_EQ(error_of(*map, "b").code, Errc::corrupt);
}

TEST(DcpReader, RowsThatNoChunkHoldsAreUncoveredByName) {
  DcpFiles files;
  dcp_build::Entry entry = vector4("a", files.append("__0_0.distcp", save_tensor(kVector4, kData)));
  entry.shape = {6};
  files.add(std::move(entry));
  files.write();
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  const std::vector<std::uint32_t> all{0};
  const auto covered = check_coverage(*map, all);
  ASSERT_FALSE(covered.has_value());
  EXPECT_EQ(covered.error().code, Errc::uncovered);
  EXPECT_EQ(covered.error().tensor, "a [6]");
}

TEST(DcpReader, ChunksThatOverlapAreFound) {
  DcpFiles files;
  const dcp_build::StorageInfo first = files.append("__0_0.distcp", save_tensor(kVector4, kData));
  const dcp_build::StorageInfo second = files.append("__0_0.distcp", save_tensor(kVector4, kData));
  files.add({.fqn = "a",
             .shape = {6},
             .chunks = {{{0}, {4}}, {{2}, {4}}},
             .records = {{Shape{0}, first}, {Shape{2}, second}}});
  files.write();
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  const std::vector<std::uint32_t> all{0};
  const auto covered = check_coverage(*map, all);
  ASSERT_FALSE(covered.has_value());
  EXPECT_EQ(covered.error().code, Errc::overlap);
}

TEST(DcpReader, ItemOfAnotherDtypeOrShapeIsCorrupt) {
  DcpFiles files;
  const View integers{"IntStorage", 4, 0, {4}, {1}};
  const View square{"FloatStorage", 4, 0, {2, 2}, {2, 1}};
  files.add(vector4("dtype", files.append("__0_0.distcp", save_tensor(integers, kData))));
  files.add(vector4("shape", files.append("__0_0.distcp", save_tensor(square, kData))));
  files.add(vector4("object", files.append("__0_0.distcp", save_object(dcp_build::integer_pickle(4)))));
  files.write();
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  for (const char* name : {"dtype", "shape", "object"}) {
    const Error error = error_of(*map, name);
    EXPECT_EQ(error.code, Errc::corrupt) << error.message;
    EXPECT_EQ(error.tensor, name);
    EXPECT_EQ(error.file, files.root() + "/__0_0.distcp");
  }
}

TEST(DcpReader, FlippedPickleByteIsAChecksumError) {
  DcpFiles files;
  std::string item = save_tensor(kVector4, kData);
  item[item.find("cpu")] = 'g';
  files.add(vector4("a", files.append("__0_0.distcp", item)));
  files.write();
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(error_of(*map, "a").code, Errc::checksum);
}

TEST(DcpReader, TransposedTensorKeepsItsStrides) {
  DcpFiles files;
  const View transposed{"ByteStorage", 6, 0, {2, 3}, {1, 2}};
  files.add({.fqn = "t",
             .dtype = "uint8",
             .shape = {2, 3},
             .chunks = {{{0, 0}, {2, 3}}},
             .records = {{Shape{0, 0}, files.append("__0_0.distcp", save_tensor(transposed, "adbecf"))}}});
  files.write();
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(gather(*map, files.root(), 0).bytes, "abcdef");
}

TEST(DcpReader, ViewIntoALargerStorageIsFound) {
  DcpFiles files;
  const View view{"ByteStorage", 9, 2, {3}, {2}};
  files.add({.fqn = "t",
             .dtype = "uint8",
             .shape = {3},
             .chunks = {{{0}, {3}}},
             .records = {{Shape{0}, files.append("__0_0.distcp", save_tensor(view, "..a.b.c.."))}}});
  files.write();
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  const Gathered gathered = gather(*map, files.root(), 0);
  EXPECT_EQ(gathered.bytes, "abc");
  EXPECT_TRUE(gathered.crc_agrees);
}

TEST(DcpReader, ComplexDoublesArePairsOfDoubles) {
  DcpFiles files;
  std::string data;
  for (char c = 'a'; c < 'e'; ++c) data += std::string(16, c);
  const View transposed{"ComplexDoubleStorage", 4, 0, {2, 2}, {1, 2}};
  files.add({.fqn = "z",
             .dtype = "complex128",
             .shape = {2, 2},
             .chunks = {{{0, 0}, {2, 2}}},
             .records = {{Shape{0, 0}, files.append("__0_0.distcp", save_tensor(transposed, data))}}});
  files.write();
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->tensors[0].dtype, Dtype::f64);
  EXPECT_EQ(map->tensors[0].shape, (Shape{2, 2, 2}));
  EXPECT_EQ(map->tensors[0].true_dtype, "complex128");
  EXPECT_EQ(gather(*map, files.root(), 0).bytes,
            std::string(16, 'a') + std::string(16, 'c') + std::string(16, 'b') + std::string(16, 'd'));
}

TEST(DcpReader, ItemWhoseRecordsLieFarApartIsReadInRounds) {
  DcpFiles files;
  const std::string data = std::string(99'999, 'a') + "b" + std::string(100'000, 'c');
  const View view{"ByteStorage", data.size(), 0, {data.size()}, {1}};
  for (const Stream& stream : {Stream{.alignment = 4096}, Stream{.extra_records = 100}}) {
    const std::string item = save_tensor(view, data, stream);
    files.add({.fqn = "t" + std::to_string(files.entries().size()),
               .dtype = "uint8",
               .shape = {data.size()},
               .chunks = {{{0}, {data.size()}}},
               .records = {{Shape{0}, files.append("__0_0.distcp", item)}}});
  }
  files.write();
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  for (std::size_t i = 0; i < 2; ++i) {
    const Gathered gathered = gather(*map, files.root(), i);
    EXPECT_TRUE(gathered.bytes == data) << i;
    EXPECT_TRUE(gathered.crc_agrees) << i;
  }
}

TEST(DcpReader, BigEndianItemsSaySo) {
  DcpFiles files;
  files.add(vector4("a", files.append("__0_0.distcp", save_tensor(kVector4, kData, {.byteorder = "big"}))));
  files.write();
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  bool big = false;
  ASSERT_TRUE(map->index->chunks(0, {0, 4}, [&](const PlacedChunk& placed) -> Result<> {
    big = placed.where.big_endian;
    return {};
  }));
  EXPECT_TRUE(big);
}

TEST(DcpReader, ObjectsThatAreNotPlainStayBlobs) {
  DcpFiles files;
  const auto add = [&](const std::string& fqn, const std::string& bytes) {
    files.add({.fqn = fqn, .is_tensor = false, .records = {{std::nullopt, files.append("__0_0.distcp", bytes)}}});
  };
  add("count", save_object(dcp_build::integer_pickle(41)));
  add("strange", save_object(test::PickleWriter().global("lib.state", "Loader").raw(")\x81").stop()));
  add("raw", "not a torch stream");
  files.write();
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  ASSERT_EQ(map->objects.size(), 1u);
  EXPECT_EQ(map->objects[0].name, "count");
  EXPECT_EQ(gather(*map, files.root(), find_tensor(*map, "raw")).bytes, "not a torch stream");
  EXPECT_EQ(map->tensors[find_tensor(*map, "strange")].role, Role::blob);
}

TEST(DcpReader, ObjectsThatHoldTensorsAreNamed) {
  DcpFiles files;
  const std::string pickle = test::PickleWriter().raw("(").tensor("0", 1, 0, {1}, {1}).raw("t").stop();
  files.add({.fqn = "pair",
             .is_tensor = false,
             .records = {{std::nullopt, files.append("__0_0.distcp", save_object(pickle))}}});
  files.write();
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  ASSERT_EQ(map->findings.size(), 1u);
  EXPECT_EQ(map->findings[0].severity, Severity::warning);
  EXPECT_NE(map->findings[0].text.find("pair"), std::string::npos);
}

TEST(DcpReader, ObjectThatWouldRunAProgramIsRefused) {
  DcpFiles files;
  const std::string pickle = test::PickleWriter().global("os", "system").raw("(").text("touch x").raw("tR").stop();
  files.add({.fqn = "state",
             .is_tensor = false,
             .records = {{std::nullopt, files.append("__0_0.distcp", save_object(pickle))}}});
  files.write();
  const auto map = open_dcp(files);
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::refused);
  EXPECT_EQ(map.error().tensor, "state");
}

TEST(DcpReader, StepIsTakenFromThePlainestName) {
  const auto step_of = [](std::vector<std::pair<std::string, std::int64_t>> numbers) {
    DcpFiles files;
    for (const auto& [fqn, value] : numbers) {
      files.add(
          {.fqn = fqn,
           .is_tensor = false,
           .records = {{std::nullopt, files.append("__0_0.distcp", save_object(dcp_build::integer_pickle(value)))}}});
    }
    files.write();
    const auto map = open_dcp(files);
    EXPECT_TRUE(map.has_value());
    return map ? map->meta.step : std::nullopt;
  };
  EXPECT_EQ(step_of({{"iteration", 1}, {"global_step", 2}, {"step", 3}, {"train.step", 4}}), 3u);
  EXPECT_EQ(step_of({{"iteration", 1}, {"train.step", 4}}), 1u);
  EXPECT_EQ(step_of({{"optimizer.state.w.step", 9}, {"train.step", 4}}), 4u);
  EXPECT_EQ(step_of({{"a.step", 5}, {"b.step", 4}}), std::nullopt);
  EXPECT_EQ(step_of({{"step", -1}}), std::nullopt);
}

TEST(DcpReader, KeyWithALoneSurrogateIsEscapedAndListed) {
  DcpFiles files;
  files.add(vector4("w\xed\xb3\xbf", files.append("__0_0.distcp", save_tensor(kVector4, kData))));
  files.add({.fqn = "o\xed\xb3\xbf",
             .is_tensor = false,
             .records = {{std::nullopt, files.append("__0_0.distcp", save_object(dcp_build::integer_pickle(1)))}}});
  files.write();
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->tensors[0].name, "w%ED%B3%BF");
  EXPECT_EQ(map->tensors[0].path, Path{"w\xed\xb3\xbf"});
  ASSERT_EQ(map->objects.size(), 1u);
  EXPECT_EQ(map->objects[0].name, "o%ED%B3%BF");
  ASSERT_EQ(map->findings.size(), 2u);
  EXPECT_EQ(map->findings[0].tensor, "w%ED%B3%BF");
}

TEST(DcpReader, WorldSizeCountsRanksThatWroteNothing) {
  DcpFiles files;
  files.add(vector4("a", files.append("__2_1.distcp", save_tensor(kVector4, kData))));
  files.write();
  files.write_file("__5_0.distcp", "");
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->meta.world_size, 6u);
  EXPECT_EQ(map->files.size(), 1u);
  EXPECT_TRUE(map->findings.empty());
}

TEST(DcpReader, BuffersThatAnotherRankWroteDoNotHideTheOrderOfTheWeights) {
  const auto order_known = [](bool with_state) {
    DcpFiles files;
    const auto add = [&](const std::string& name, const std::string& file) {
      files.add(vector4(name, files.append(file, save_tensor(kVector4, kData))));
    };
    add("model.b", "__0_0.distcp");
    add("model.a", "__0_0.distcp");
    add("model.running_mean", "__1_0.distcp");
    if (with_state) {
      add("optimizer.state.b.exp_avg", "__0_0.distcp");
      add("optimizer.state.a.exp_avg", "__0_0.distcp");
    }
    files.write();
    const auto map = open_dcp(files);
    return map && map->module_order;
  };
  EXPECT_TRUE(order_known(true));
  EXPECT_FALSE(order_known(false)) << "it may be a weight";
}

TEST(DcpReader, FilesOfAnEarlierSaveAreNamedAndCountForNothing) {
  DcpFiles files;
  files.add(vector4("a", files.append("__2_1.distcp", save_tensor(kVector4, kData))));
  files.write();
  files.write_file("__7_0.distcp", save_tensor(kVector4, kData));
  const auto map = open_dcp(files);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->meta.world_size, 3u);
  ASSERT_EQ(map->findings.size(), 1u);
  EXPECT_NE(map->findings[0].text.find("__7_0.distcp"), std::string::npos) << map->findings[0].text;
}

}  // namespace
}  // namespace ckpt
