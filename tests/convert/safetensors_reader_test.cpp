#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <set>
#include <string>

#include "convert/formats.hpp"
#include "convert/materialize.hpp"
#include "format/files/safetensors.hpp"
#include "format/text/json.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

const std::string kGolden = CKPT_GOLDEN_DIR;

std::unique_ptr<Io> real_io() {
  return open_io(IoKind::threads).value();
}

Result<Map> open_at(const std::string& root) {
  const auto io = real_io();
  return safetensors_format().reader->open(*io, root, {});
}

Result<> covered(const Map& map) {
  std::vector<std::uint32_t> all(map.tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  return check_coverage(map, all);
}

struct Part {
  std::string name;
  Dtype dtype = Dtype::u8;
  Shape shape{};
  char fill = 0;
};

std::string file_of(const std::vector<Part>& parts, const safetensors::Metadata& metadata = {}) {
  std::vector<safetensors::NewEntry> entries;
  for (const Part& part : parts) entries.push_back({part.name, part.dtype, part.shape});
  auto built = safetensors::build_header(entries, metadata).value();
  std::string bytes = built.bytes;
  for (const Part& part : parts) bytes.append(tensor_bytes(part.dtype, part.shape).value(), part.fill);
  return bytes;
}

void expect_code(const std::string& root, Errc code, std::string_view text = {}) {
  const auto map = open_at(root);
  ASSERT_FALSE(map) << root;
  EXPECT_EQ(map.error().code, code) << map.error().message;
  EXPECT_NE(map.error().message.find(text), std::string::npos) << map.error().message;
  EXPECT_FALSE(map.error().file.empty()) << map.error().message;
}

/// Every `param/NAME` of the truth, or the names of `stored` among them, bit for bit.
std::size_t equal_to_truth(const std::string& case_name, bool all) {
  const std::string root = kGolden + "/" + case_name + "/ckpt";
  const auto map = open_at(root);
  EXPECT_TRUE(map.has_value()) << (map ? "" : map.error().message);
  if (!map) return 0;
  EXPECT_TRUE(covered(*map).has_value()) << case_name;
  const std::string truth_path = kGolden + "/" + case_name + "/truth.safetensors";
  const auto truth = open_at(truth_path);
  EXPECT_TRUE(truth.has_value());
  std::size_t equal = 0;
  for (std::size_t i = 0; i < truth->tensors.size(); ++i) {
    if (!truth->tensors[i].name.starts_with("param/")) continue;
    const std::string name = truth->tensors[i].name.substr(6);
    const std::size_t index = index_of(*map, name);
    if (index == map->tensors.size()) {
      EXPECT_FALSE(all) << case_name << ": " << name << " is missing";
      continue;
    }
    EXPECT_EQ(map->tensors[index].dtype, truth->tensors[i].dtype) << name;
    EXPECT_EQ(map->tensors[index].shape, truth->tensors[i].shape) << name;
    EXPECT_TRUE(materialize(*map, root, index) == materialize(*truth, truth_path, i)) << case_name << ": " << name;
    ++equal;
  }
  return equal;
}

TEST(SafetensorsReader, GenuineFilesAndDirectoriesEqualTheirTruth) {
  EXPECT_EQ(equal_to_truth("safetensors/dtypes", true), 20u);
  EXPECT_EQ(equal_to_truth("safetensors/empty_and_scalar", true), 6u);
  EXPECT_EQ(equal_to_truth("safetensors/single", true), 4u);
  EXPECT_EQ(equal_to_truth("safetensors/no_tensors", true), 0u);
  EXPECT_EQ(equal_to_truth("safetensors/llama_sharded", true), 30u);
  // A tied head is not stored; the truth holds it under both names.
  EXPECT_EQ(equal_to_truth("safetensors/gpt2_single_file", false), 28u);
  EXPECT_EQ(equal_to_truth("safetensors/gpt2_tied", false), 28u);
  EXPECT_EQ(equal_to_truth("safetensors/llama_tied_sharded", false), 29u);
  // Experts are stored one by one under other names than the model's own.
  EXPECT_EQ(equal_to_truth("safetensors/mixtral_sharded", false), 15u);
}

TEST(SafetensorsReader, SlicesOfPyTorchJoinToTheirTruth) {
  EXPECT_EQ(equal_to_truth("torch/hf_sharded", true), 6u);
  const auto map = open_at(kGolden + "/torch/hf_sharded/ckpt");
  ASSERT_TRUE(map);
  EXPECT_EQ(map->meta.framework, "torch");
  EXPECT_EQ(map->meta.world_size, 4u);
  EXPECT_EQ(map->variant, "4 files of slices");
  EXPECT_TRUE(map->meta.user.empty());
}

TEST(SafetensorsReader, FullFilesWinOverTheSlicesBesideThem) {
  EXPECT_EQ(equal_to_truth("torch/hf_consolidated", true), 6u);
  const auto map = open_at(kGolden + "/torch/hf_consolidated/ckpt");
  ASSERT_TRUE(map);
  EXPECT_EQ(map->files.size(), 2u);
  EXPECT_NE(map->chosen.find("sharded/"), std::string::npos);
  // The slices alone are the same checkpoint.
  const auto slices = open_at(kGolden + "/torch/hf_consolidated/ckpt/sharded");
  ASSERT_TRUE(slices) << slices.error().message;
  EXPECT_EQ(slices->tensors.size(), 6u);
  EXPECT_EQ(slices->files.size(), 8u);
  EXPECT_TRUE(covered(*slices));
}

TEST(SafetensorsReader, ScalarsThatTorchsConsolidationLostAreReadFromTheSlices) {
  const auto slices = [](const std::string& text) { return safetensors::Metadata{{"DCP_SHARDING_INFO", text}}; };
  const TempDir dir;
  std::filesystem::create_directory(dir.path() + "/sharded");
  const std::vector<Part> full{{"kept", Dtype::f32, {}, 'k'},
                               {"lost", Dtype::f32, {}, '\0'},
                               {"other", Dtype::i64, {}, '\0'},
                               {"w", Dtype::f32, {2}, '\0'}};
  spill(dir.path() + "/model-00001-of-00001.safetensors", file_of(full));
  const std::string rank = dir.path() + "/sharded/shard-0000";
  spill(rank + "1-model-00001-of-00001.safetensors",
        file_of({{"w", Dtype::f32, {2}, 'x'}}, slices(R"({"w":{"saved_offsets":[0]}})")));
  spill(rank + "2-model-00001-of-00001.safetensors",
        file_of({{"kept", Dtype::f32, {}, 'x'}, {"lost", Dtype::f32, {}, 'l'}, {"other", Dtype::f32, {}, 'x'}},
                slices(R"({"kept":{"saved_offsets":[]},"lost":{"saved_offsets":[]},"other":{"saved_offsets":[]}})")));
  const auto map = open_at(dir.path());
  ASSERT_TRUE(map) << map.error().message;
  const std::vector<std::string> wanted{"kkkk", "llll", std::string(8, '\0'), std::string(8, '\0')};
  ASSERT_EQ(map->tensors.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(materialize(*map, dir.path(), i), wanted[i]) << map->tensors[i].name;
  }
  ASSERT_EQ(map->findings.size(), 1u);
  EXPECT_EQ(map->findings[0].severity, Severity::warning);
  EXPECT_EQ(map->findings[0].tensor, "lost");
}

TEST(SafetensorsReader, TellsTheFrameworkAndKeepsUserText) {
  const auto llama = open_at(kGolden + "/safetensors/llama_sharded/ckpt");
  ASSERT_TRUE(llama);
  EXPECT_EQ(llama->meta.framework, "transformers");
  EXPECT_EQ(llama->meta.framework_version, "5.23.0");
  EXPECT_EQ(llama->variant, "2 files with an index");
  const auto single = open_at(kGolden + "/safetensors/single/ckpt");
  ASSERT_TRUE(single);
  const std::set<std::pair<std::string, std::string>> user(single->meta.user.begin(), single->meta.user.end());
  EXPECT_EQ(user, (std::set<std::pair<std::string, std::string>>{{"step", "7"}, {"note", "grüß \"quoted\""}}));
}

TEST(SafetensorsReader, BrokenDirectoriesGiveTheirCode) {
  std::size_t cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kGolden + "/broken")) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("st_") && !name.starts_with("hf_index")) continue;
    ++cases;
    const auto about = json::parse(slurp(entry.path() / "about.json")).value();
    const std::string& expected = *about.find("expected")->find("error")->text();
    expect_code(entry.path() / "ckpt", expected == "corrupt"      ? Errc::corrupt
                                       : expected == "incomplete" ? Errc::incomplete
                                                                  : Errc::refused);
  }
  EXPECT_EQ(cases, 15u);
}

TEST(SafetensorsReader, NamesTheFilesThatAreMissing) {
  expect_code(kGolden + "/broken/hf_index_missing_file/ckpt", Errc::incomplete, "model-00002-of-00002.safetensors");
  expect_code(kGolden + "/broken/hf_index_missing_tensor/ckpt", Errc::incomplete, "ghost");
}

TEST(SafetensorsReader, AGapInASeriesWithoutIndexIsIncomplete) {
  const TempDir dir;
  spill(dir.path() + "/model-00001-of-00003.safetensors", file_of({{"a"}}));
  spill(dir.path() + "/model-00003-of-00003.safetensors", file_of({{"c"}}));
  expect_code(dir.path(), Errc::incomplete, "model-00002-of-00003.safetensors");
  spill(dir.path() + "/model-00002-of-00003.safetensors", file_of({{"b"}}));
  const auto map = open_at(dir.path());
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(map->tensors.size(), 3u);
}

TEST(SafetensorsReader, AnAbsurdTotalInANameIsIncompleteAtOnce) {
  const TempDir dir;
  spill(dir.path() + "/model-00001-of-18446744073709551615.safetensors", file_of({{"a"}}));
  expect_code(dir.path(), Errc::incomplete, "18446744073709551614 of its files are missing");
}

TEST(SafetensorsReader, TheIndexDecidesWhichCopyOfANameCounts) {
  const TempDir dir;
  spill(dir.path() + "/base.safetensors", file_of({{"w", Dtype::u8, {2}, 'o'}, {"x", Dtype::u8, {1}, 'x'}}));
  spill(dir.path() + "/overlay.safetensors", file_of({{"w", Dtype::u8, {2}, 'n'}}));
  spill(dir.path() + "/stale.safetensors", file_of({{"y"}}));
  expect_code(dir.path(), Errc::ambiguous, "also in base.safetensors");
  spill(dir.path() + "/model.safetensors.index.json",
        R"({"weight_map":{"w":"overlay.safetensors","x":"base.safetensors"}})");
  const auto map = open_at(dir.path());
  ASSERT_TRUE(map) << map.error().message;
  ASSERT_EQ(map->tensors.size(), 2u);
  EXPECT_EQ(materialize(*map, dir.path(), index_of(*map, "w")), "nn");
  EXPECT_EQ(map->files.size(), 2u);
  std::string notes;
  for (const Finding& finding : map->findings) notes += finding.text + "\n";
  EXPECT_NE(notes.find("stale.safetensors"), std::string::npos) << notes;
  EXPECT_NE(notes.find("w was left out: the index takes it from another file"), std::string::npos) << notes;
}

// transformers leaves the index of a divided save where it is when it saves one file over it, and loads the file.
TEST(SafetensorsReader, AnIndexOfWhichNoFileIsLeftGivesWayToTheOneFile) {
  const TempDir dir;
  spill(dir.path() + "/model.safetensors", file_of({{"w", Dtype::u8, {2}, 'n'}}));
  spill(dir.path() + "/model.safetensors.index.json",
        R"({"weight_map":{"w":"model-00001-of-00002.safetensors","x":"model-00002-of-00002.safetensors"}})");
  const auto map = open_at(dir.path());
  ASSERT_TRUE(map) << map.error().message;
  ASSERT_EQ(map->tensors.size(), 1u);
  EXPECT_EQ(materialize(*map, dir.path(), 0), "nn");
  ASSERT_EQ(map->findings.size(), 1u);
  EXPECT_NE(map->findings[0].text.find("left over from an earlier save"), std::string::npos) << map->findings[0].text;
  spill(dir.path() + "/model-00001-of-00002.safetensors", file_of({{"w"}}));
  expect_code(dir.path(), Errc::incomplete, "model-00002-of-00002.safetensors");
}

TEST(SafetensorsReader, OurOptimizerFilesBesideAModelAreOneMap) {
  const TempDir dir;
  spill(dir.path() + "/m-1.safetensors", file_of({{"w"}}, {{"ckpt.id", "aa"}}));
  spill(dir.path() + "/model.safetensors.index.json", R"({"weight_map":{"w":"m-1.safetensors"}})");
  spill(dir.path() + "/optimizer.safetensors", file_of({{"optimizer.state.w.exp_avg"}}, {{"ckpt.id", "aa"}}));
  const auto map = open_at(dir.path());
  ASSERT_TRUE(map) << map.error().message;
  ASSERT_EQ(map->tensors.size(), 2u);
  EXPECT_EQ(map->id, "aa");
  EXPECT_EQ(map->tensors[1].role, Role::slot);
  EXPECT_EQ(map->tensors[1].parameter, "w");
  EXPECT_EQ(map->tensors[1].slot, "exp_avg");
  // Written by somebody else it is a stranger in the directory.
  spill(dir.path() + "/optimizer.safetensors", file_of({{"optimizer.state.w.exp_avg"}}, {{"ckpt.id", "bb"}}));
  const auto other = open_at(dir.path());
  ASSERT_TRUE(other);
  EXPECT_EQ(other->tensors.size(), 1u);
  EXPECT_EQ(other->findings.size(), 1u);
}

TEST(SafetensorsReader, SlicesThatContradictAreCorrupt) {
  const auto slices = [](const std::string& text) { return safetensors::Metadata{{"DCP_SHARDING_INFO", text}}; };
  const TempDir dir;
  const std::string path = dir.path() + "/shard-00001-model-00001-of-00001.safetensors";
  const std::vector<Part> part{{"w", Dtype::u8, {2, 3}, 'a'}};
  for (const std::string_view text :
       {"{}", "[]", "x", R"({"w":{}})", R"({"w":{"saved_offsets":[0]}})", R"({"w":{"saved_offsets":[0,-1]}})",
        R"({"w":{"saved_offsets":[18446744073709551615,0]}})", R"({"v":{"saved_offsets":[0,0]}})"}) {
    spill(path, file_of(part, slices(std::string(text))));
    expect_code(dir.path(), Errc::corrupt);
  }
  spill(path, file_of(part, slices(R"({"w":{"saved_offsets":[9223372036854775807,9223372036854775807]}})")));
  expect_code(dir.path(), Errc::corrupt, "overflow");
  spill(path, file_of(part, slices(R"({"w":{"saved_offsets":[2,0]}})")));
  const auto hole = open_at(dir.path());
  ASSERT_TRUE(hole);
  EXPECT_EQ(hole->tensors[0].shape, (Shape{4, 3}));
  EXPECT_EQ(covered(*hole).error().code, Errc::uncovered);
  spill(dir.path() + "/shard-00003-model-00001-of-00001.safetensors",
        file_of({{"w", Dtype::i8, {2, 3}}}, slices(R"({"w":{"saved_offsets":[0,0]}})")));
  expect_code(dir.path(), Errc::corrupt, "dtype or dimensions differ");
}

TEST(SafetensorsReader, ARankWithoutFilesIsAWarning) {
  const TempDir dir;
  const auto slice = [&](const std::string& rank, const std::string& offset) {
    spill(
        dir.path() + "/shard-0000" + rank + "-model-00001-of-00001.safetensors",
        file_of({{"w", Dtype::u8, {2}, 'a'}}, {{"DCP_SHARDING_INFO", "{\"w\":{\"saved_offsets\":[" + offset + "]}}"}}));
  };
  slice("1", "0");
  slice("3", "2");
  const auto map = open_at(dir.path());
  ASSERT_TRUE(map) << map.error().message;
  ASSERT_EQ(map->findings.size(), 1u);
  EXPECT_EQ(map->findings[0].severity, Severity::warning);
  EXPECT_EQ(map->meta.world_size, 3u);
}

TEST(SafetensorsReader, TiedNamesNotedInMetadataBecomeAliases) {
  const TempDir dir;
  const std::string path = dir.path() + "/m.safetensors";
  spill(path, file_of({{"wte"}}, {{"format", "pt"}, {"lm_head", "wte"}, {"note", "no tensor"}}));
  const auto map = open_at(path);
  ASSERT_TRUE(map);
  ASSERT_EQ(map->aliases.size(), 1u);
  EXPECT_EQ(map->aliases[0].name, "lm_head");
  EXPECT_EQ(map->aliases[0].target, "wte");
  EXPECT_EQ(map->meta.user.size(), 1u);
}

TEST(SafetensorsReader, NotesInOurOwnMetadataAreChecked) {
  const TempDir dir;
  const std::string path = dir.path() + "/m.safetensors";
  for (const std::string_view text : {"x", "[]", R"({"w":{}})", R"({"w":{"role":"blob"}})", R"({"w":{"role":1}})",
                                      R"({"w":{"role":"param","dtype":"complex128"}})"}) {
    spill(path, file_of({{"w"}}, {{"ckpt.tensors", std::string(text)}}));
    expect_code(path, Errc::corrupt);
  }
}

TEST(SafetensorsReader, ALargeHeaderIsReadWhole) {
  const TempDir dir;
  std::vector<Part> parts;
  for (int i = 0; i < 3000; ++i)
    parts.push_back({"model.layers." + std::to_string(i) + ".weight", Dtype::u8, {1}, 'x'});
  const std::string path = dir.path() + "/m.safetensors";
  spill(path, file_of(parts));
  const auto map = open_at(path);
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(map->tensors.size(), 3000u);
  EXPECT_EQ(materialize(*map, path, 2999), "x");
  const auto io = real_io();
  const auto bounded = safetensors_format().reader->open(*io, path, {.metadata_limit = 100'000});
  ASSERT_FALSE(bounded);
  EXPECT_EQ(bounded.error().code, Errc::memory);
}

TEST(SafetensorsReader, AGitLfsPointerIsIncomplete) {
  const TempDir dir;
  spill(dir.path() + "/model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  expect_code(dir.path(), Errc::incomplete, "Git LFS pointer");
}

TEST(SafetensorsReader, AnyHeaderByteChangesTheMetadataHash) {
  const TempDir dir;
  const std::string path = dir.path() + "/m.safetensors";
  spill(path, file_of({{"w", Dtype::u8, {1}, 'x'}}));
  const std::string before = open_at(path)->metadata_hash;
  spill(path, file_of({{"w", Dtype::u8, {1}, 'y'}}));
  EXPECT_EQ(open_at(path)->metadata_hash, before) << "data is not metadata";
  spill(path, file_of({{"v", Dtype::u8, {1}, 'x'}}));
  EXPECT_NE(open_at(path)->metadata_hash, before);
}

}  // namespace
}  // namespace ckpt
