#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "convert/formats.hpp"
#include "convert/materialize.hpp"
#include "convert/raw_source.hpp"
#include "format/universal/manifest.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "shards/weights/00000-00000.safetensors";
constexpr const char* kOptim = "shards/optim/00000-00000.safetensors";

/// A small checkpoint on the real file system, to be damaged.
class UniversalReader : public testing::Test {
 protected:
  UniversalReader() {
    RawSource source({{.name = "w", .dtype = Dtype::bf16, .shape = {5, 3}},
                      {.name = "e", .dtype = Dtype::f32, .shape = {0}},
                      {.name = "p", .dtype = Dtype::f32, .shape = {1024}},
                      {.name = "q", .dtype = Dtype::f32, .shape = {0}},
                      {.name = "z", .dtype = Dtype::f32, .shape = {0}},  // after w by name, before it in the file
                      {.name = "m", .dtype = Dtype::f32, .shape = {5, 3}, .role = Role::slot}});
    source.request.objects = {{"lr", {}, {0.5}}};
    source.request.source_format = "torch";
    write_out(source.lay_out(universal_format(), root()), source.map, source.dir.path(), root());
  }

  std::string root() const { return dir_.path() + "/x"; }
  std::string at(const std::string& path) const { return root() + "/" + path; }
  Result<Map> open() const { return open(root()); }
  Result<Map> open(const std::string& path) const { return universal_format().reader->open(*io_, path, {}); }
  Result<StoredHashes> hashes() const { return universal_format().hashes(*io_, root()); }
  Errc code() const {
    const auto map = open();
    EXPECT_FALSE(map);
    return map ? Errc::internal : map.error().code;
  }
  std::optional<Match> detected() const {
    const Place place{.io = *io_, .root = root(), .directory = true, .entries = io_->list(root()).value()};
    return universal_format().detect(place).value();
  }
  /// Writes a manifest of other content with a right hash, and its copy.
  void replace_manifest(universal::Manifest manifest) const {
    const std::string text = universal::build_manifest(manifest).value();
    spill(at("manifest.json"), text);
    spill(at("index/manifest.json"), text);
  }
  universal::Manifest manifest() const { return universal::parse_manifest(slurp(at("manifest.json"))).value(); }
  void replace_sums(const universal::Sums& sums) const {
    universal::Sums copy = sums;
    const std::string bytes = universal::build_sums(copy).value();
    spill(at("sums.bin"), bytes);
    universal::Manifest changed = manifest();
    changed.sums_bytes = bytes.size();
    changed.sums_hash = hash128(bytes);
    replace_manifest(changed);
  }
  universal::Sums sums() const {
    const std::string bytes = slurp(at("sums.bin"));
    return universal::parse_sums(std::as_bytes(std::span(bytes))).value();
  }
  /// The only finding of verification, which must be damage.
  Finding damage() const {
    const auto stored = hashes();
    EXPECT_TRUE(stored.has_value()) << (stored ? "" : stored.error().message);
    if (!stored || stored->findings.size() != 1) {
      ADD_FAILURE() << (stored ? stored->findings.size() : 0) << " findings";
      return {};
    }
    EXPECT_EQ(stored->findings[0].severity, Severity::damage);
    return stored->findings[0];
  }

  TempDir dir_{};
  std::unique_ptr<Io> io_ = open_io(IoKind::threads).value();
};

TEST_F(UniversalReader, RecognisesACheckpointByItsFiles) {
  EXPECT_TRUE(detected());
  fs::remove(at("sums.bin"));
  EXPECT_TRUE(detected()) << "by the first bytes of the manifest";
  spill(at("manifest.json"), R"({"version":"3"})");
  EXPECT_FALSE(detected()) << "some other manifest.json";
  spill(at("sums.bin"), "");
  EXPECT_TRUE(detected()) << "a damaged manifest beside sums.bin";
  fs::remove(at("manifest.json"));
  EXPECT_TRUE(detected()) << "an unfinished one";
  fs::remove(at("sums.bin"));
  EXPECT_TRUE(detected()) << "a less finished one";
  fs::remove_all(at("shards"));
  EXPECT_FALSE(detected());
}

TEST_F(UniversalReader, WithoutManifestItIsUncommitted) {
  fs::remove(at("manifest.json"));
  EXPECT_EQ(code(), Errc::uncommitted);
}

TEST_F(UniversalReader, APartialNameIsUncommittedWhateverItHolds) {
  fs::rename(root(), root() + ".partial-0123456789abcdef0123456789abcdef");
  const auto map = open(root() + ".partial-0123456789abcdef0123456789abcdef");
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, Errc::uncommitted);
}

TEST_F(UniversalReader, EverySingleBitFlipOfItsMetadataIsFound) {
  for (const std::string path : {"manifest.json", "sums.bin", "blobs/objects.json"}) {
    const std::string good = slurp(at(path));
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
      spill(at(path), bad);
      const auto map = open();
      ASSERT_FALSE(map) << path << " bit " << bit;
      ASSERT_EQ(exit_code(map.error().code), 15) << path << " bit " << bit << ": " << map.error().message;
      ASSERT_NE(map.error().file.find(path), std::string::npos) << map.error().file;
    }
    spill(at(path), good);
  }
  EXPECT_TRUE(open());
}

TEST_F(UniversalReader, MissingFilesAreNamedAndCountAsIncomplete) {
  fs::remove(at(kWeights));
  fs::remove(at("blobs/objects.json"));
  const auto map = open();
  ASSERT_TRUE(map) << map.error().message;
  std::vector<std::string> missing;
  for (const Finding& finding : map->findings) {
    if (finding.severity == Severity::incomplete) missing.push_back(finding.file);
  }
  EXPECT_EQ(missing, (std::vector<std::string>{at(kWeights), at("blobs/objects.json")}));
  const auto stored = hashes();
  ASSERT_FALSE(stored);
  EXPECT_EQ(stored.error().code, Errc::incomplete);
  EXPECT_EQ(stored.error().file, at(kWeights));
}

TEST_F(UniversalReader, WithoutHashesItIsIncomplete) {
  fs::remove(at("sums.bin"));
  EXPECT_EQ(code(), Errc::incomplete);
}

TEST_F(UniversalReader, AFileOfAnotherSizeIsCorruptAndNamed) {
  for (const std::string path : {kWeights, kOptim, "blobs/objects.json"}) {
    const std::string good = slurp(at(path));
    for (const std::string& bad : {good + "x", good.substr(0, good.size() - 1), std::string()}) {
      spill(at(path), bad);
      const auto map = open();
      ASSERT_FALSE(map) << path;
      EXPECT_EQ(map.error().code, Errc::corrupt);
      EXPECT_EQ(map.error().file, at(path));
    }
    spill(at(path), good);
  }
}

TEST_F(UniversalReader, ADirectoryInPlaceOfAShardIsCorrupt) {
  fs::remove(at(kWeights));
  fs::create_directory(at(kWeights));
  EXPECT_EQ(code(), Errc::corrupt);
}

TEST_F(UniversalReader, HashesOrObjectsOfAnotherCheckpointAreCorrupt) {
  universal::Sums other = sums();
  other.id = hash128("other");
  replace_sums(other);
  EXPECT_EQ(code(), Errc::corrupt);
  universal::Manifest changed = manifest();
  changed.id = hash128("other");
  replace_manifest(changed);
  const auto map = open();
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, Errc::corrupt);
  EXPECT_EQ(map.error().file, at("blobs/objects.json"));
}

TEST_F(UniversalReader, RowsThatTheFilesCannotHoldAreCorrupt) {
  const universal::Manifest good = manifest();
  universal::Manifest longer = good;
  longer.tensors.back().tensor.shape = {5, 4};
  replace_manifest(longer);
  EXPECT_EQ(code(), Errc::corrupt);
  universal::Manifest elsewhere = good;
  elsewhere.tensors.back().volume = 1;
  replace_manifest(elsewhere);
  EXPECT_EQ(code(), Errc::corrupt);
}

TEST_F(UniversalReader, WhatWasKnownOfTheSourceIsHistory) {
  universal::Manifest changed = manifest();
  changed.findings = {{Severity::incomplete, "rank 3 was missing"}};
  replace_manifest(changed);
  const auto map = open();
  ASSERT_TRUE(map) << map.error().message;
  ASSERT_EQ(map->findings.size(), 2u);
  EXPECT_EQ(map->findings[0].text, "converted from torch");
  EXPECT_EQ(map->findings[1].severity, Severity::warning);
  EXPECT_EQ(map->findings[1].text, "of its source: rank 3 was missing");
}

TEST_F(UniversalReader, HashesAreThoseOfTheFilesAsTheMapCountsThem) {
  const auto stored = hashes();
  ASSERT_TRUE(stored) << stored.error().message;
  EXPECT_TRUE(stored->findings.empty()) << stored->findings[0].text;
  const auto map = open();
  ASSERT_TRUE(map);
  std::vector<Hash128> leaves;
  for (const TargetFile& file : stored->files) {
    ASSERT_EQ(file.placements.size(), 1u);
    EXPECT_EQ(file.placements[0].bytes, file.bytes);
    EXPECT_EQ(map->files.at(file.placements[0].raw_file).path, file.path);
    const std::string bytes = slurp(at(file.path));
    EXPECT_EQ(bytes.size(), file.bytes);
    leaves.push_back(hash128(bytes));
  }
  EXPECT_EQ(stored->leaves, leaves);
  EXPECT_EQ(stored->files.size(), 3u);
}

TEST_F(UniversalReader, AShardHeaderThatDisagreesIsDamageInThatFile) {
  const std::string good = slurp(at(kWeights));
  struct Change {
    std::string from, to;
  };
  for (const auto& [from, to] : std::vector<Change>{{R"("w")", R"("v")"},
                                                    {R"("BF16")", R"("F16" )"},
                                                    {R"([5,3])", R"([3,5])"},
                                                    {R"("pt")", R"("tf")"},
                                                    {R"("ckpt.v1")", R"("ckpt.v2")"},
                                                    {R"(\"volume\":0)", R"(\"volume\":1)"},
                                                    {R"(\"class\":\"weights\")", R"(\"class\":\"weighty\")"},
                                                    {R"(\"id\":\"0)", R"(\"id\":\"1)"},
                                                    {R"("dtype")", R"("etype")"}}) {
    std::string bad = good;
    const std::size_t found = bad.find(from);
    ASSERT_NE(found, std::string::npos) << from;
    spill(at(kWeights), bad.replace(found, from.size(), to));
    EXPECT_EQ(damage().file, at(kWeights)) << from;
  }
  spill(at(kWeights), std::string(good).replace(good.find(R"("w")"), 3, R"("v")"));
  EXPECT_EQ(damage().tensor, "w");
  std::string longer = good;
  longer[0] = static_cast<char>(longer[0] + 8);
  spill(at(kWeights), longer);
  EXPECT_EQ(damage().file, at(kWeights));
}

TEST_F(UniversalReader, ARootThatIsNotThatOfItsLeavesIsDamage) {
  std::string bytes = slurp(at("sums.bin"));
  bytes[64 + 48] = static_cast<char>(bytes[64 + 48] ^ 1);
  spill(at("sums.bin"), bytes);
  universal::Manifest changed = manifest();
  changed.sums_hash = hash128(bytes);
  replace_manifest(changed);
  EXPECT_EQ(damage().file, at(kWeights));
}

TEST_F(UniversalReader, TheSecondCopyMustBeThereAndEqual) {
  const std::string good = slurp(at("index/manifest.json"));
  spill(at("index/manifest.json"), good + " ");
  EXPECT_EQ(damage().file, at("index/manifest.json"));
  fs::remove(at("index/manifest.json"));
  EXPECT_EQ(damage().file, at("index/manifest.json"));
  EXPECT_TRUE(open()) << "reading does not need it";
}

TEST_F(UniversalReader, FilesThatBelongToNothingAreToldButNoDamage) {
  spill(at("shards/weights/notes.txt"), "x");
  fs::create_directories(at("marks"));
  spill(at("marks/pin"), "x");
  const auto stored = hashes();
  ASSERT_TRUE(stored) << stored.error().message;
  ASSERT_EQ(stored->findings.size(), 1u);
  EXPECT_EQ(stored->findings[0].severity, Severity::note);
  EXPECT_EQ(stored->findings[0].file, at("shards/weights/notes.txt"));
}

}  // namespace
}  // namespace ckpt
