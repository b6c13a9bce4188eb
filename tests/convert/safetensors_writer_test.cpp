#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "convert/formats.hpp"
#include "convert/materialize.hpp"
#include "convert/raw_source.hpp"
#include "format/files/hf_index.hpp"
#include "format/files/safetensors.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kId = RawSource::kId;

Result<Map> open_at(const std::string& root) {
  const auto io = open_io(IoKind::threads).value();
  return safetensors_format().reader->open(*io, root, {});
}

struct Source : RawSource {
  using RawSource::RawSource;
  Skeleton lay_out(const std::string& target) { return RawSource::lay_out(safetensors_format(), target); }
};

std::vector<std::string> paths(const Skeleton& skeleton) {
  std::vector<std::string> out;
  for (const TargetFile& file : skeleton.files) out.push_back(file.path);
  return out;
}

Tensor slot_of(const std::string& parameter, const std::string& slot, Dtype dtype, Shape shape) {
  return {.name = "optimizer.state." + parameter + "." + slot,
          .dtype = dtype,
          .shape = std::move(shape),
          .role = Role::slot,
          .parameter = parameter,
          .slot = slot};
}

std::vector<Tensor> small_model() {
  return {{.name = "emb", .dtype = Dtype::bf16, .shape = {5, 3}},
          {.name = "a.b", .dtype = Dtype::f32, .shape = {4}},
          {.name = "flag", .dtype = Dtype::boolean, .shape = {3}, .role = Role::buffer},
          {.name = "count", .dtype = Dtype::i64, .shape = {}, .role = Role::buffer},
          {.name = "none", .dtype = Dtype::f16, .shape = {0, 2}},
          slot_of("emb", "exp_avg", Dtype::f32, {5, 3}),
          slot_of("a.b", "exp_avg", Dtype::f32, {4})};
}

/// All tensors of the source, with names, dtypes, roles and bytes.
void expect_equal(const Source& source, const std::string& target, bool roles = true) {
  const auto map = open_at(target);
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(map->id, kId);
  ASSERT_EQ(map->tensors.size(), source.map.tensors.size());
  for (std::size_t i = 0; i < source.map.tensors.size(); ++i) {
    const Tensor& expected = source.map.tensors[i];
    const std::size_t index = index_of(*map, expected.name);
    ASSERT_LT(index, map->tensors.size()) << expected.name;
    const Tensor& found = map->tensors[index];
    EXPECT_EQ(found.dtype, expected.dtype) << expected.name;
    EXPECT_EQ(found.shape, expected.shape) << expected.name;
    EXPECT_EQ(materialize(*map, target, index), materialize(source.map, source.dir.path(), i)) << expected.name;
    if (!roles) continue;
    EXPECT_EQ(found.role, expected.role) << expected.name;
    EXPECT_EQ(found.parameter, expected.parameter) << expected.name;
    EXPECT_EQ(found.slot, expected.slot) << expected.name;
    EXPECT_EQ(found.true_dtype, expected.true_dtype) << expected.name;
  }
}

TEST(SafetensorsWriter, AFileTargetHoldsEverythingInOneFile) {
  Source source(small_model());
  const TempDir out;
  const std::string target = out.path() + "/all.safetensors";
  const Skeleton skeleton = source.lay_out(target);
  EXPECT_FALSE(skeleton.directory);
  ASSERT_EQ(paths(skeleton), std::vector<std::string>{""});
  EXPECT_FALSE(skeleton.finish);
  write_out(skeleton, source.map, source.dir.path(), target);
  expect_equal(source, target);
}

TEST(SafetensorsWriter, DataBeginsOn4096AndTensorsOnTheirElementSize) {
  Source source(small_model());
  const Skeleton skeleton = source.lay_out("x.safetensors");
  const TargetFile& file = skeleton.files.at(0);
  ASSERT_EQ(file.placements.at(0).from, Placement::From::literal);
  EXPECT_EQ(file.placements[0].bytes % 4096, 0u);
  EXPECT_EQ(file.header_bytes, file.placements[0].bytes);
  std::uint64_t end = file.placements[0].bytes;
  for (std::size_t i = 1; i < file.placements.size(); ++i) {
    const Placement& placement = file.placements[i];
    EXPECT_EQ(placement.offset, end) << "no holes";
    EXPECT_EQ(placement.offset % unit_bytes(placement.dtype), 0u);
    end = placement.offset + placement.bytes;
  }
  EXPECT_EQ(end, file.bytes);
}

TEST(SafetensorsWriter, ADirectoryKeepsWeightsAndOptimizerApart) {
  Source source(small_model());
  const TempDir out;
  const std::string target = out.path() + "/hf";
  const Skeleton skeleton = source.lay_out(target);
  EXPECT_TRUE(skeleton.directory);
  EXPECT_EQ(paths(skeleton), (std::vector<std::string>{"model.safetensors", "optimizer.safetensors"}));
  write_out(skeleton, source.map, source.dir.path(), target);
  expect_equal(source, target);
}

TEST(SafetensorsWriter, SplitsGreedilyAndWritesAnIndexForEachSeries) {
  std::vector<Tensor> tensors;
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::uint64_t>>{
           {"a", 40}, {"b", 50}, {"huge", 300}, {"c", 20}, {"d", 10}, {"e", 90}})
    tensors.push_back({.name = name, .dtype = Dtype::u8, .shape = {bytes}});
  tensors.push_back(slot_of("a", "exp_avg", Dtype::u8, {60}));
  tensors.push_back(slot_of("b", "exp_avg", Dtype::u8, {60}));
  Source source(tensors);
  source.request.shard_bytes = 100;
  const TempDir out;
  const std::string target = out.path() + "/hf";
  const Skeleton skeleton = source.lay_out(target);
  EXPECT_EQ(paths(skeleton),
            (std::vector<std::string>{"model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                                      "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors",
                                      "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"}));
  write_out(skeleton, source.map, source.dir.path(), target);
  expect_equal(source, target);
  const auto index = hf::parse_index(slurp(target + "/model.safetensors.index.json")).value();
  EXPECT_EQ(index.total_size, 510u);
  std::map<std::string, std::string> files(index.weight_map.begin(), index.weight_map.end());
  EXPECT_EQ(files.size(), 6u);
  // "huge" has a file of its own and does not close the one that a and b are in.
  EXPECT_EQ(files["huge"], "model-00001-of-00004.safetensors");
  EXPECT_EQ(files["a"], files["b"]);
  EXPECT_EQ(files["c"], files["d"]);
  EXPECT_NE(files["c"], files["a"]);
  EXPECT_NE(files["e"], files["d"]);
  EXPECT_TRUE(std::filesystem::exists(target + "/optimizer.safetensors.index.json"));
}

TEST(SafetensorsWriter, OneSeriesMaySplitWhileTheOtherDoesNot) {
  Source source({{.name = "a", .dtype = Dtype::u8, .shape = {60}},
                 {.name = "b", .dtype = Dtype::u8, .shape = {60}},
                 slot_of("a", "step", Dtype::u8, {1})});
  source.request.shard_bytes = 100;
  const TempDir out;
  const Skeleton skeleton = source.lay_out(out.path() + "/hf");
  write_out(skeleton, source.map, source.dir.path(), out.path() + "/hf");
  EXPECT_FALSE(std::filesystem::exists(out.path() + "/hf/optimizer.safetensors.index.json"));
  expect_equal(source, out.path() + "/hf");
}

TEST(SafetensorsWriter, NothingSelectedIsAFileWithoutTensors) {
  Source source(std::vector<Tensor>{});
  const TempDir out;
  const Skeleton skeleton = source.lay_out(out.path() + "/hf");
  EXPECT_EQ(paths(skeleton), std::vector<std::string>{"model.safetensors"});
  write_out(skeleton, source.map, source.dir.path(), out.path() + "/hf");
  expect_equal(source, out.path() + "/hf");
}

TEST(SafetensorsWriter, OnlySlotsGiveNoModelFile) {
  Source source({slot_of("a", "exp_avg", Dtype::f32, {2})});
  EXPECT_EQ(paths(source.lay_out("hf")), std::vector<std::string>{"optimizer.safetensors"});
}

TEST(SafetensorsWriter, WhatNamesDoNotTellSurvives) {
  Source source({{.name = "z", .dtype = Dtype::f64, .shape = {3, 2}, .true_dtype = "complex128"},
                 {.name = "optimizer.state.lookalike.param", .dtype = Dtype::u8, .shape = {1}},
                 {.name = "net.running_mean", .dtype = Dtype::f32, .shape = {1}, .role = Role::buffer},
                 {.name = "optim.state.0.exp_avg",
                  .dtype = Dtype::f32,
                  .shape = {1},
                  .role = Role::slot,
                  .parameter = "z",
                  .slot = "exp_avg"},
                 {.name = "optimizer.state.0.exp_avg_sq",
                  .dtype = Dtype::f32,
                  .shape = {1},
                  .role = Role::slot,
                  .parameter = "z",
                  .slot = "exp_avg_sq"}});
  const TempDir out;
  for (const std::string& target : {out.path() + "/all.safetensors", out.path() + "/hf"}) {
    write_out(source.lay_out(target), source.map, source.dir.path(), target);
    expect_equal(source, target);
  }
}

TEST(SafetensorsWriter, SlotsFollowTheNewNamesOfTheirParameters) {
  Source source({{.name = "module.w", .dtype = Dtype::u8, .shape = {1}},
                 slot_of("module.w", "exp_avg", Dtype::u8, {1}),
                 slot_of("module.gone", "exp_avg", Dtype::u8, {1})});
  source.request.tensors[0].name = "w";
  source.request.tensors[1].name = "optimizer.state.w.exp_avg";
  source.request.tensors[2].name = "optimizer.state.gone.exp_avg";
  const TempDir out;
  const std::string target = out.path() + "/x.safetensors";
  write_out(source.lay_out(target), source.map, source.dir.path(), target);
  const auto map = open_at(target).value();
  EXPECT_EQ(map.tensors[index_of(map, "optimizer.state.w.exp_avg")].parameter, "w");
  EXPECT_EQ(map.tensors[index_of(map, "optimizer.state.gone.exp_avg")].parameter, "gone");
}

TEST(SafetensorsWriter, MetadataCarriesIdStepUserTextAndTiedNames) {
  Source source({{.name = "wte", .dtype = Dtype::u8, .shape = {1}}});
  source.map.meta.step = 12;
  source.map.meta.user = {{"format", "np"}, {"note", "grüß"}, {"ckpt.id", "old"}, {"bad", "\xff"}};
  source.request.aliases = {{"lm_head", "wte"}, {"other", "not selected"}, {"note", "wte"}};
  const TempDir out;
  const std::string target = out.path() + "/x.safetensors";
  const Skeleton skeleton = source.lay_out(target);
  write_out(skeleton, source.map, source.dir.path(), target);
  const std::string bytes = slurp(target);
  const auto header = safetensors::parse_header(std::as_bytes(std::span(bytes)), bytes.size()).value();
  EXPECT_EQ(
      header.metadata,
      (safetensors::Metadata{
          {"format", "pt"}, {"ckpt.id", std::string(kId)}, {"ckpt.step", "12"}, {"note", "grüß"}, {"lm_head", "wte"}}));
  const auto map = open_at(target).value();
  EXPECT_EQ(map.meta.step, 12u);
  ASSERT_EQ(map.aliases.size(), 1u);
  EXPECT_EQ(map.aliases[0].name, "lm_head");
  // The key of user text cannot also be a tied name: that one is listed.
  ASSERT_EQ(skeleton.dropped.size(), 1u);
  EXPECT_NE(skeleton.dropped[0].text.find("note = wte"), std::string::npos) << skeleton.dropped[0].text;
}

TEST(SafetensorsWriter, ListsBlobsAndObjectsAsDropped) {
  Source source({{.name = "w", .dtype = Dtype::u8, .shape = {1}},
                 {.name = "rng", .dtype = Dtype::u8, .shape = {9}, .role = Role::blob}});
  for (int i = 0; i < 7; ++i) source.request.objects.push_back({.name = "args." + std::to_string(i)});
  const Skeleton skeleton = source.lay_out("x.safetensors");
  ASSERT_EQ(skeleton.dropped.size(), 2u);
  EXPECT_EQ(skeleton.dropped[0].text, "not written: 1 opaque blob, which safetensors cannot hold: rng");
  EXPECT_EQ(
      skeleton.dropped[1].text,
      "not written: 7 Python objects, which safetensors cannot hold: args.0, args.1, args.2, args.3, args.4 and 2 more");
  EXPECT_EQ(skeleton.files.at(0).placements.size(), 2u);
}

TEST(SafetensorsWriter, GenuineCasesRoundTrip) {
  std::size_t cases = 0;
  for (const char* name :
       {"safetensors/dtypes", "safetensors/empty_and_scalar", "safetensors/no_tensors", "safetensors/single",
        "safetensors/gpt2_tied", "safetensors/llama_sharded", "torch/hf_sharded", "torch/hf_consolidated"}) {
    ++cases;
    const std::string root = std::string(CKPT_GOLDEN_DIR) + "/" + name + "/ckpt";
    const Map source = open_at(root).value();
    WriteRequest request{.source = &source, .aliases = source.aliases, .shard_bytes = 1000, .id = std::string(kId)};
    for (std::uint32_t i = 0; i < source.tensors.size(); ++i)
      request.tensors.push_back({i, source.tensors[i].name, source.tensors[i].dtype});
    const TempDir out;
    for (const std::string& target : {out.path() + "/one.safetensors", out.path() + "/many"}) {
      request.target = target;
      write_out(safetensors_format().writer->lay_out(request).value(), source, root, target);
      const auto back = open_at(target);
      ASSERT_TRUE(back) << back.error().message;
      ASSERT_EQ(back->tensors.size(), source.tensors.size()) << name;
      EXPECT_EQ(std::set(back->meta.user.begin(), back->meta.user.end()),
                std::set(source.meta.user.begin(), source.meta.user.end()));
      for (std::size_t i = 0; i < source.tensors.size(); ++i) {
        const std::size_t index = index_of(*back, source.tensors[i].name);
        ASSERT_LT(index, back->tensors.size());
        EXPECT_TRUE(materialize(*back, target, index) == materialize(source, root, i))
            << name << ": " << source.tensors[i].name;
      }
    }
  }
  EXPECT_EQ(cases, 8u);
}

}  // namespace
}  // namespace ckpt
