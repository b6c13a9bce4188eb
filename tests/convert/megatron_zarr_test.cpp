// Runs that megatron-core before 0.16 saved with the zarr back end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>

#include "convert/open_source.hpp"
#include "convert/zarr_arrays.hpp"
#include "engine/io/io.hpp"
#include "format/model/model.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRun = "megatron/zarr_tp2_pp2_dp2";

class MegatronZarr : public testing::Test {
 protected:
  Result<Source> open(const std::string& path) {
    return open_source(*io_, path, "", {.metadata_limit = std::uint64_t{256} << 20, .find_beside = true});
  }
  /// A copy of the run to change: the path of its iteration.
  std::string copy() {
    fs::copy(load_golden(std::string(kRun)).root, directory_.path() + "/run", fs::copy_options::recursive);
    return directory_.path() + "/run/iter_0000002";
  }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(directory_.path() + "/" + name).parent_path());
    std::ofstream(directory_.path() + "/" + name, std::ios::binary) << text;
  }

  TempDir directory_;
  std::unique_ptr<Io> io_ = *open_io(IoKind::threads, 8);
};

TEST_F(MegatronZarr, WeightsAndStateAreThoseThatMegatronLoads) {
  const GoldenCase golden = load_golden(std::string(kRun));
  const auto source = open(golden.root);
  ASSERT_TRUE(source) << source.error().message;
  const Map& map = source->map;
  EXPECT_EQ(source->format->name, "megatron");
  EXPECT_TRUE(map.variant.starts_with("zarr, 48 arrays")) << map.variant;
  EXPECT_EQ(map.meta.step, 2U);
  EXPECT_EQ(map.meta.mesh, (std::vector<std::pair<std::string, std::uint64_t>>{{"dp", 2}, {"tp", 2}, {"pp", 2}}));
  std::set<std::string> expected;
  for (const GoldenCase::Truth& truth : golden.truth) {
    SCOPED_TRACE(truth.key);
    const std::size_t slash = truth.key.find('/');
    const std::string kind = truth.key.substr(0, slash);
    const std::string weight = truth.key.substr(slash + 1);
    const std::size_t at =
        find_tensor(map, kind == "param" ? weight : fmt::format("optimizer.state.{}.{}", weight, kind));
    const Tensor& tensor = map.tensors[at];
    expected.insert(tensor.name);
    EXPECT_EQ(tensor.dtype, truth.dtype);
    EXPECT_EQ(tensor.shape, truth.shape);
    EXPECT_EQ(tensor.role, kind == "param" ? Role::param : Role::slot);
    const Gathered gathered = gather(map, source->root, at);
    EXPECT_TRUE(gathered.bytes == truth.bytes && gathered.complete && gathered.once);
  }
  for (const Tensor& tensor : map.tensors) EXPECT_TRUE(tensor.role == Role::blob || expected.contains(tensor.name));
  for (const Finding& finding : map.findings) EXPECT_EQ(finding.severity, Severity::note) << finding.text;
}

TEST_F(MegatronZarr, ObjectsOfRanksAndModulesAreBlobs) {
  const auto source = open(load_golden(std::string(kRun)).root);
  ASSERT_TRUE(source) << source.error().message;
  const Map& map = source->map;
  EXPECT_EQ(map.tensors[find_tensor(map, "rng_state/shard_1.0_2.2.pt")].role, Role::blob);
  // One that holds no tensor is an object of the map as well.
  const std::string key = "decoder.layers.mlp.linear_fc2._extra_state/shard_1_2";
  EXPECT_EQ(map.tensors[find_tensor(map, key + "/data.pkl")].role, Role::blob);
  const auto object = std::ranges::find(map.objects, key, &NamedObject::name);
  ASSERT_NE(object, map.objects.end());
  EXPECT_TRUE(std::holds_alternative<None>(object->value.v));
}

TEST_F(MegatronZarr, AMissingChunkIsIncompleteAlthoughMegatronReadsZeros) {
  const std::string iteration = copy();
  fs::remove(iteration + "/output_layer.weight/1.0");
  const auto source = open(iteration);
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, Errc::incomplete);
  EXPECT_EQ(source.error().tensor, "output_layer.weight");
  EXPECT_TRUE(source.error().file.ends_with("output_layer.weight/1.0")) << source.error().file;
}

TEST_F(MegatronZarr, AChunkOfAnotherSizeIsCorrupt) {
  const std::string iteration = copy();
  fs::resize_file(iteration + "/output_layer.weight/1.0", 100);
  const auto source = open(iteration);
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, Errc::corrupt);
  EXPECT_EQ(source.error().tensor, "output_layer.weight");
}

TEST_F(MegatronZarr, ADamagedArrayFileIsCorrupt) {
  const std::string iteration = copy();
  fs::resize_file(iteration + "/output_layer.weight/.zarray", 40);
  const auto source = open(iteration);
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, Errc::corrupt);
}

TEST_F(MegatronZarr, AnotherBackEndIsRefusedByName) {
  const std::string iteration = copy();
  write("run/iter_0000002/metadata.json", R"({"sharded_backend": "other", "sharded_backend_version": 1})");
  const auto source = open(iteration);
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, Errc::unsupported);
}

/// 5 x 3 bytes in chunks of 2 x 2, each of which holds its own numbers: the array's end cuts three of them.
TEST_F(MegatronZarr, ChunksAtTheEndOfAnArrayAreCut) {
  for (const std::string_view order : {"C", "F"}) {
    write("a/.zarray", fmt::format(R"({{"chunks":[2,2],"compressor":null,"dtype":"|u1","fill_value":null,)"
                                   R"("filters":null,"order":"{}","shape":[5,3],"zarr_format":2}})",
                                   order));
    std::string expected(15, ' ');
    for (std::size_t i = 0; i < 6; ++i)
      for (std::size_t j = 0; j < 4; ++j)
        if (i < 5 && j < 3) expected[i * 3 + j] = static_cast<char>('A' + i * 4 + j);
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 2; ++j) {
        std::string chunk;
        for (std::size_t k = 0; k < 4; ++k) {
          const std::size_t row = order == "C" ? k / 2 : k % 2;
          const std::size_t column = order == "C" ? k % 2 : k / 2;
          chunk += static_cast<char>('A' + (2 * i + row) * 4 + 2 * j + column);
        }
        write(fmt::format("a/{}.{}", i, j), chunk);
      }
    }
    ZarrArrays arrays(*io_, directory_.path());
    const auto added = arrays.add("a", {.name = "a"});
    ASSERT_TRUE(added) << added.error().message;
    Map map;
    Hasher hasher;
    arrays.finish(map, hasher);
    const Gathered gathered = gather(map, directory_.path(), 0);
    EXPECT_EQ(gathered.bytes, expected) << order;
    EXPECT_TRUE(gathered.complete && gathered.once);
  }
}

TEST_F(MegatronZarr, AShapeOfAnyLengthNeedsItsFiles) {
  write("a/.zarray", R"({"chunks":[1,1],"compressor":null,"dtype":"|u1","fill_value":0,"filters":null,"order":"C",)"
                     R"("shape":[4294967295,16777216],"zarr_format":2})");
  write("a/0.0", "x");
  ZarrArrays arrays(*io_, directory_.path());
  EXPECT_EQ(arrays.add("a", {.name = "a"}).error().code, Errc::incomplete);
}

}  // namespace
}  // namespace ckpt
