// One torch.save file a rank, made by hand in the forms of several torch releases.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "convert/formats.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/pickle_writer.hpp"
#include "support/temp_dir.hpp"
#include "support/zip_writer.hpp"

namespace ckpt {
namespace {

using test::PickleWriter;

const std::string kFour = "0123456789abcdef";  // four floats
const std::string kOther = "ABCDEFGHIJKLMNOP";

std::string ops(const PickleWriter& writer) {
  PickleWriter copy = writer;
  const std::string text = copy.stop();
  return text.substr(0, text.size() - 1);
}
std::string text(std::string_view value) {
  return ops(PickleWriter(0).text(value));
}
std::string number(std::int64_t value) {
  return ops(PickleWriter(0).integer(value));
}
std::string tuple(const std::vector<std::int64_t>& values) {
  std::string out = "(";
  for (const std::int64_t value : values) out += number(value);
  return out + "t";
}
std::string global(std::string_view module, std::string_view name) {
  return ops(PickleWriter(0).global(module, name));
}
std::string instance(std::string_view module, std::string_view name, const std::string& state) {
  return global(module, name) + ")\x81}(" + state + "ub";
}
std::string plain(std::string_view storage = "0") {
  return ops(PickleWriter(0).tensor(storage, 4, 0, {4}, {1}));
}

/// How a mesh of `ranks` ranks in one dimension was pickled, and the modules around it.
struct Release {
  std::string tensor = "torch.distributed.tensor";
  std::string spec = "torch.distributed.tensor._dtensor_spec";
  std::string placement = "torch.distributed.tensor.placement_types";
  std::string mesh = "torch.distributed.device_mesh";
  enum class Ranks { layout_axes, layout, flat_list, coordinate_only } ranks = Ranks::layout_axes;
};

std::string mesh_state(const Release& release, std::int64_t rank, std::int64_t ranks) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < ranks; ++i) all.push_back(i);
  const std::string list = tuple(all);
  const std::string own = text("_rank") + number(rank);
  const std::string at = text("_coordinate_on_dim") + tuple({rank});
  const std::string sizes = text("shape") + tuple({ranks}) + text("stride") + tuple({1});
  const std::string layouts = "torch.distributed._mesh_layout";
  const std::string mesh = ops(PickleWriter(0).tensor("1", 4, 0, {ranks}, {1}));
  switch (release.ranks) {
    case Release::Ranks::layout_axes:
      return text("_layout") +
             instance(layouts, "_MeshLayout", text("axes") + "(" + instance(layouts, "_FlatLayout", sizes) + "t") +
             text("_flatten_rank_map") + list + own + at;
    case Release::Ranks::layout:
      return text("_layout") + instance(layouts, "_MeshLayout", sizes) + text("_flatten_rank_map") + list + own + at;
    case Release::Ranks::flat_list:
      return text("mesh") + mesh + text("_flatten_mesh_list") + list;
    case Release::Ranks::coordinate_only:
      return text("mesh") + mesh + at;
  }
  return {};
}

/// A DTensor of `rows` floats, four of them on this rank.
std::string dtensor(std::int64_t rank, std::int64_t ranks, std::int64_t rows, const Release& release = {},
                    const std::string& storage = "0") {
  const std::string type = global(release.tensor, "DTensor");
  const std::string meta =
      global(release.spec, "TensorMeta") + "(" + tuple({rows}) + tuple({1}) + global("torch", "float32") + "t\x81";
  const std::string spec = instance(
      release.spec, "DTensorSpec",
      text("mesh") + instance(release.mesh, "DeviceMesh", mesh_state(release, rank, ranks)) + text("placements") + "(" +
          instance(release.placement, "Shard", text("dim") + number(0)) + "t" + text("tensor_meta") + meta);
  return global("torch._tensor", "_rebuild_from_type_v2") + "(" + global("torch._utils", "_rebuild_wrapper_subclass") +
         type + "(" + type + "t" + "(N}(" + text("_local_tensor") + plain(storage) + text("_spec") + spec + "utt" + "R";
}

class TorchRanks : public testing::Test {
 protected:
  /// A rank's file: a dict of keys and values.
  void write(std::int64_t rank, const std::string& entries, const std::string& data = kFour,
             const std::string& stem = "model_world_size_2_rank_") {
    const std::string pickle = "\x80\x02}(" + entries + "u.";
    test::write_file(temp_.path() + "/" + stem + std::to_string(rank) + ".pt",
                     test::torch_file(pickle, {data, kOther, kOther}));
  }
  Result<Map> open() {
    auto io = open_io(IoKind::threads, 4);
    if (!io) return tl::unexpected<Error>(io.error());
    return torch_format().reader->open(**io, temp_.path(), {});
  }
  void expect_error(Errc code, const std::string& file, const std::string& part) {
    const auto map = open();
    ASSERT_FALSE(map.has_value());
    EXPECT_EQ(map.error().code, code) << map.error().message;
    EXPECT_EQ(map.error().file, temp_.path() + "/" + file);
    EXPECT_NE(map.error().message.find(part), std::string::npos) << map.error().message;
  }
  TempDir temp_;
};

/// The genuine files of four ranks under other names, and their truth with `prefix` before its names.
void expect_placements(const std::string& root, const std::string& stem, const std::string& prefix,
                       const std::function<Result<Map>()>& open) {
  const GoldenCase golden = load_golden("torch/rank_files_placements");
  for (const char* rank : {"0", "1", "2", "3"})
    std::filesystem::copy_file(golden.root + "/model_world_size_4_rank_" + rank + ".pt",
                               root + "/" + stem + rank + ".pt");
  const auto map = open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->meta.world_size, 4u);
  ASSERT_FALSE(golden.truth.empty());
  for (const GoldenCase::Truth& truth : golden.truth)
    EXPECT_TRUE(gather(*map, root, find_tensor(*map, prefix + truth.name)).bytes == truth.bytes) << truth.name;
}

TEST_F(TorchRanks, NumberedFilesAreRanksFilesWhereTheyHoldDTensors) {
  expect_placements(temp_.path(), "model_", "", [&] { return open(); });
}

TEST_F(TorchRanks, ANumberedRankThatIsMissingIsNamed) {
  write(0, text("w") + dtensor(0, 3, 12), kFour, "state-");
  write(2, text("w") + dtensor(2, 3, 12), kFour, "state-");
  expect_error(Errc::incomplete, "state-1.pt", "state-1.pt");
}

TEST_F(TorchRanks, NumberedFilesOfPlainTensorsAreNoRanksFiles) {
  write(0, text("w") + plain(), kFour, "ck_");
  write(1, text("w") + plain(), kOther, "ck_");
  const auto map = open();
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::ambiguous) << map.error().message;
}

/// metadata.pkl of torch_checkpointing, with one item that holds tensors.
std::string item_index(const std::string& item, std::int64_t world, const std::string& layout = "N") {
  return "\x80\x04}(" + text("metadata") + "}(" + text(item) + "}(" + text("nested_path_to_metadata") + "}" +
         text("rank_to_layout_info") + "}(" + number(0) + layout + "uuu" + text("world_size") + number(world) + "u.";
}

TEST_F(TorchRanks, ItemsOfTorchCheckpointingAreReadAtEveryPlacement) {
  test::write_file(temp_.path() + "/metadata.pkl", item_index("state", 4));
  expect_placements(temp_.path(), "state_", "state.", [&] { return open(); });
}

TEST_F(TorchRanks, AMissingItemOrRankOfTorchCheckpointingIsNamed) {
  test::write_file(temp_.path() + "/metadata.pkl", item_index("model", 2));
  expect_error(Errc::incomplete, "model_0.pt", "model_0.pt");
  write(0, text("w") + dtensor(0, 2, 8), kFour, "model_");
  expect_error(Errc::incomplete, "model_1.pt", "model_1.pt");
}

TEST_F(TorchRanks, ItemsOfTorchCheckpointingWithPathsOfTheirOwnAreRefused) {
  test::write_file(temp_.path() + "/metadata.pkl", item_index("model", 1, "}(" + text("file_path") + text("x") + "u"));
  write(0, text("w") + dtensor(0, 1, 4), kFour, "model_");
  expect_error(Errc::unsupported, "metadata.pkl", "model");
  test::write_file(temp_.path() + "/metadata.pkl", std::string("\x80\x04}."));
  expect_error(Errc::corrupt, "metadata.pkl", "world_size");
}

TEST_F(TorchRanks, PartsOfEveryReleasesDTensorsAreOneTensor) {
  std::vector<Release> releases(4);
  releases[1].ranks = Release::Ranks::layout;
  releases[2].ranks = Release::Ranks::flat_list;
  releases[3] = {"torch.distributed._tensor.api", "torch.distributed._tensor.placement_types",
                 "torch.distributed._tensor.placement_types", "torch.distributed._tensor.device_mesh",
                 Release::Ranks::coordinate_only};
  for (const Release& release : releases) {
    write(0, text("w") + dtensor(0, 2, 8, release));
    write(1, text("w") + dtensor(1, 2, 8, release), kOther);
    const auto map = open();
    ASSERT_TRUE(map.has_value()) << map.error().message;
    ASSERT_EQ(map->tensors.size(), 1u);
    EXPECT_EQ(map->tensors[0].shape, Shape{8});
    const Gathered gathered = gather(*map, temp_.path(), 0);
    EXPECT_EQ(gathered.bytes, kFour + kOther);
    EXPECT_TRUE(gathered.once && gathered.complete && gathered.crc_agrees);
    EXPECT_EQ(map->meta.world_size, 2u);
  }
}

TEST_F(TorchRanks, PlainTensorsAreReplicasAndRandomStatesAreEachRanksOwn) {
  const std::string rng = ops(PickleWriter(0).global("torch._utils", "_rebuild_tensor_v2").raw("(")) +
                          ops(PickleWriter(0).storage("1", 16, "ByteStorage").integer(0).tuple_of({16}).tuple_of({1})) +
                          "\x89" + ops(PickleWriter(0).ordered_dict()) + "tR";
  for (const std::int64_t rank : {0, 1}) {
    write(rank, text("b") + plain() + text("rng") + rng + text("seed") + number(rank) + text("step") + number(5));
  }
  const auto map = open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  ASSERT_EQ(map->tensors.size(), 3u);
  EXPECT_FALSE(gather(*map, temp_.path(), find_tensor(*map, "b")).once);
  EXPECT_EQ(map->tensors[find_tensor(*map, "model_world_size_2_rank_1.pt/rng")].role, Role::blob);
  ASSERT_EQ(map->objects.size(), 3u);
  EXPECT_EQ(map->objects[2].name, "model_world_size_2_rank_1.pt/seed");
  EXPECT_EQ(map->meta.step, 5u);
}

TEST_F(TorchRanks, TiedWeightsAreStoredOnce) {
  for (const std::int64_t rank : {0, 1})
    write(rank, text("w") + dtensor(rank, 2, 8) + text("head") + dtensor(rank, 2, 8));
  const auto map = open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->tensors.size(), 1u);
  ASSERT_EQ(map->aliases.size(), 1u);
  EXPECT_EQ(map->aliases[0].name, "head");
  EXPECT_EQ(map->aliases[0].target, "w");
  write(1, text("w") + dtensor(1, 2, 8) + text("head") + dtensor(1, 2, 8, {}, "1"));
  expect_error(Errc::corrupt, "model_world_size_2_rank_1.pt", "tied to another tensor on an earlier rank");
}

TEST_F(TorchRanks, LaterSeriesGetTheirNameInFront) {
  for (const std::int64_t rank : {0, 1}) {
    write(rank, text("w") + dtensor(rank, 2, 8));
    write(rank, text("w") + dtensor(rank, 2, 8), kFour, "extra_state_world_size_2_rank_");
  }
  const auto map = open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  find_tensor(*map, "w");
  find_tensor(*map, "extra_state_world_size_2/w");
}

TEST_F(TorchRanks, AMissingRankIsNamed) {
  write(0, text("w") + dtensor(0, 2, 8));
  expect_error(Errc::incomplete, "model_world_size_2_rank_1.pt",
               "files of 1 of 2 ranks are missing: model_world_size_2_rank_1.pt");
  std::filesystem::rename(temp_.path() + "/model_world_size_2_rank_0.pt",
                          temp_.path() + "/model_world_size_2_rank_1.pt");
  expect_error(Errc::incomplete, "model_world_size_2_rank_0.pt", "are missing: model_world_size_2_rank_0.pt");
}

TEST_F(TorchRanks, TwoWorldSizesAreAmbiguous) {
  for (const std::int64_t rank : {0, 1}) {
    write(rank, text("w") + dtensor(rank, 2, 8));
    write(rank, text("w") + dtensor(rank, 2, 8), kFour, "model_world_size_4_rank_");
  }
  const auto map = open();
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::ambiguous) << map.error().message;
}

TEST_F(TorchRanks, AnotherRanksFileIsFoundByItsMesh) {
  write(0, text("w") + dtensor(0, 2, 8));
  write(1, text("w") + dtensor(0, 2, 8));
  expect_error(Errc::corrupt, "model_world_size_2_rank_1.pt",
               "it was saved by rank 0, but the file's name says rank 1");
}

TEST_F(TorchRanks, RanksThatDisagreeAreCorrupt) {
  write(0, text("w") + plain());
  write(1, text("w") + dtensor(1, 2, 8));
  expect_error(Errc::corrupt, "model_world_size_2_rank_1.pt",
               "its shape differs from that in model_world_size_2_rank_0.pt");
  write(0, text("w") + dtensor(0, 2, 9));
  expect_error(Errc::corrupt, "model_world_size_2_rank_0.pt",
               "dimension 0 of the local tensor is 4, but its placements give 5");
}

/// A ShardedTensor of `rows` floats of which `rank` holds the four from `begin` on.
std::string sharded(std::int64_t rank, std::int64_t rows, std::int64_t begin, bool holds = true) {
  const std::string shard = "torch.distributed._shard.sharded_tensor.";
  const std::string numbers =
      text("shard_offsets") + "](" + number(begin) + "e" + text("shard_sizes") + "](" + number(4) + "e";
  const std::string part = instance(shard + "shard", "Shard",
                                    text("tensor") + plain() + text("metadata") +
                                        instance("torch.distributed._shard.metadata", "ShardMetadata", numbers));
  const std::string properties =
      global(shard + "metadata", "TensorProperties") + ")\x81(" + global("torch", "float32") + "Ntb";
  const std::string metadata = instance(shard + "metadata", "ShardedTensorMetadata",
                                        text("size") + tuple({rows}) + text("tensor_properties") + properties);
  const std::string group = instance(shard + "api", "ProcessGroupState", text("global_rank") + number(rank));
  const std::string type = global(shard + "api", "ShardedTensor");
  return global("torch._tensor", "_rebuild_from_type_v2") + "(" + global("torch._utils", "_rebuild_wrapper_subclass") +
         type + "(" + type + "t(](" + (holds ? part : std::string()) + "e" + metadata + group + "N\x89ttR";
}

TEST_F(TorchRanks, PartsOfShardedTensorsAreWhereTheySay) {
  write(0, text("w") + sharded(0, 8, 4));
  write(1, text("w") + sharded(1, 8, 0), kOther);
  const auto map = open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  ASSERT_EQ(map->tensors.size(), 1u);
  EXPECT_EQ(map->tensors[0].shape, Shape{8});
  const Gathered gathered = gather(*map, temp_.path(), 0);
  EXPECT_EQ(gathered.bytes, kOther + kFour);
  EXPECT_TRUE(gathered.once && gathered.complete && gathered.crc_agrees);
}

TEST_F(TorchRanks, ARankMayHoldNoPartOfAShardedTensor) {
  write(0, text("w") + sharded(0, 4, 0, false));
  write(1, text("w") + sharded(1, 4, 0), kOther);
  const auto map = open();
  ASSERT_TRUE(map.has_value()) << map.error().message;
  const Gathered gathered = gather(*map, temp_.path(), 0);
  EXPECT_EQ(gathered.bytes, kOther);
  EXPECT_TRUE(gathered.once && gathered.complete);
}

TEST_F(TorchRanks, ShardedTensorsThatContradictThemselvesAreCorrupt) {
  write(0, text("w") + sharded(0, 8, 0));
  write(1, text("w") + sharded(1, 8, 5));
  expect_error(Errc::corrupt, "model_world_size_2_rank_1.pt", "a part outside of the tensor");
  write(1, text("w") + sharded(0, 8, 4));
  expect_error(Errc::corrupt, "model_world_size_2_rank_1.pt",
               "it was saved by rank 0, but the file's name says rank 1");
  std::string no_size = text("w") + sharded(1, 8, 4);
  no_size.replace(no_size.find("shard_sizes"), 11, "other_sizes");
  write(1, no_size);
  expect_error(Errc::corrupt, "model_world_size_2_rank_1.pt", "a part without tensor, offsets and sizes");
}

TEST_F(TorchRanks, TensorsOfOtherKindsAreUnsupportedByName) {
  const std::string sparse = global("torch._utils", "_rebuild_sparse_tensor") + "(" + global("torch", "sparse_coo") +
                             "(" + plain() + plain() + tuple({4}) + "ttR";
  write(0, text("s") + sparse);
  write(1, text("s") + sparse);
  expect_error(Errc::unsupported, "model_world_size_2_rank_0.pt", "a sparse tensor in the file of one rank");
}

/// What a map says of its bytes stays inside its files, and its boxes inside their tensors.
void expect_inside(const Map& map) {
  for (std::size_t t = 0; t < map.tensors.size(); ++t) {
    const Tensor& tensor = map.tensors[t];
    const Result<> visited =
        map.index->chunks(t, {0, volume(tensor.shape)}, [&](const PlacedChunk& placed) -> Result<> {
          EXPECT_TRUE(fits(placed.chunk.box, tensor.shape));
          std::uint64_t last = 0;
          const Shape& size = placed.chunk.box.size;
          for (std::size_t d = 0; d < placed.where.strides.size(); ++d) {
            last += (size[d] - 1) * static_cast<std::uint64_t>(placed.where.strides[d]);
          }
          if (placed.where.strides.empty()) last = volume(size) - 1;
          EXPECT_LE(placed.where.offset + (last + 1) * unit_bytes(placed.where.dtype),
                    map.files[placed.where.file].bytes);
          return {};
        });
    EXPECT_TRUE(visited.has_value());
  }
}

TEST_F(TorchRanks, EveryChangedByteOfAPickleIsRefusedOrHarmless) {
  const std::string sound = text("w") + dtensor(1, 2, 8) + text("b") + plain("1");
  write(0, text("w") + dtensor(0, 2, 8) + text("b") + plain("1"));
  std::size_t opened = 0;
  std::size_t refused = 0;
  for (std::size_t at = 0; at < sound.size(); ++at) {
    for (const char mask : {'\x01', '\x10', '\x80'}) {
      std::string changed = sound;
      changed[at] = static_cast<char>(changed[at] ^ mask);
      write(1, changed);
      const auto map = open();
      map ? ++opened : ++refused;
      if (map) expect_inside(*map);
    }
  }
  EXPECT_GT(opened, 0u);
  EXPECT_GT(refused, sound.size());
}

}  // namespace
}  // namespace ckpt
