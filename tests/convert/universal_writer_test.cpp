#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "convert/formats.hpp"
#include "convert/identity.hpp"
#include "convert/materialize.hpp"
#include "convert/open_source.hpp"
#include "convert/raw_source.hpp"
#include "format/files/safetensors.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/objects.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kWeights = "shards/weights/00000-00000.safetensors";
constexpr std::string_view kOptim = "shards/optim/00000-00000.safetensors";
constexpr std::string_view kBlobs = "blobs/00000-00000.safetensors";
constexpr std::string_view kObjects = "blobs/objects.json";

ValuePtr ptr(Value value) {
  return std::make_shared<const Value>(std::move(value));
}

Tensor slot_of(const std::string& parameter, const std::string& slot, Dtype dtype, Shape shape) {
  return {.name = "optimizer.state." + parameter + "." + slot,
          .dtype = dtype,
          .shape = std::move(shape),
          .role = Role::slot,
          .parameter = parameter,
          .slot = slot};
}

/// Every class, an alias, objects, and what a manifest can say.
struct Source : RawSource {
  Source()
      : RawSource({{.name = "wte", .dtype = Dtype::bf16, .shape = {5, 3}},
                   {.name = "a.b", .path = {std::string("a.b")}, .dtype = Dtype::f32, .shape = {1024}},
                   {.name = "flag", .dtype = Dtype::boolean, .shape = {3}, .role = Role::buffer},
                   {.name = "count", .dtype = Dtype::i64, .shape = {}, .role = Role::buffer},
                   {.name = "none", .dtype = Dtype::f16, .shape = {0, 2}},
                   {.name = "z", .dtype = Dtype::f64, .shape = {3, 2}, .true_dtype = "complex128"},
                   {.name = "sampler", .dtype = Dtype::u8, .shape = {11}, .role = Role::blob},
                   slot_of("wte", "master", Dtype::f32, {5, 3}),
                   slot_of("wte", "step", Dtype::f32, {})}) {
    map.aliases = {{"lm_head", "wte"}};
    map.objects = {{"args.lr", {std::string("args"), std::string("lr")}, {0.5}},
                   {"param_groups", {}, {List{List::Kind::list, {ptr({TensorRef{"wte"}})}}}}};
    map.meta = {.step = 7, .world_size = 4, .mesh = {{"dp", 4}}, .framework = "torch", .user = {{"k", "v"}}};
    map.chosen = "tag x";
    map.files[0].mtime_ns = 1'000'000'000;
    map.files.push_back({.path = "newer", .bytes = 0, .mtime_ns = 2'000'000'001});
    map.findings = {{Severity::note, "small talk"},
                    {Severity::warning, "a trap", "data", "wte"},
                    {Severity::warning, "another", "/home/somebody/data"}};
    request.aliases = map.aliases;
    request.objects = map.objects;
    request.source_format = "dcp";
  }
  Skeleton lay_out() { return RawSource::lay_out(universal_format(), "out"); }
};

std::vector<std::string> paths(const Skeleton& skeleton) {
  std::vector<std::string> out;
  for (const TargetFile& file : skeleton.files) out.push_back(file.path);
  return out;
}

std::vector<Hash128> leaves_of(const Skeleton& skeleton) {
  std::uint64_t count = 0;
  for (const TargetFile& file : skeleton.files) count += file.leaf_count();
  return std::vector<Hash128>(count);
}

universal::Manifest manifest_of(const Skeleton& skeleton) {
  const auto small = skeleton.finish(leaves_of(skeleton));
  EXPECT_TRUE(small.has_value()) << (small ? "" : small.error().message);
  auto manifest = universal::parse_manifest(small->back().bytes);
  EXPECT_TRUE(manifest.has_value()) << (manifest ? "" : manifest.error().message);
  return manifest ? *std::move(manifest) : universal::Manifest{};
}

const Tensor& row_of(const universal::Manifest& manifest, const std::string& name) {
  static const Tensor nothing{};
  const auto at = std::find_if(manifest.tensors.begin(), manifest.tensors.end(),
                               [&](const auto& row) { return row.tensor.name == name; });
  EXPECT_NE(at, manifest.tensors.end()) << name;
  return at == manifest.tensors.end() ? nothing : at->tensor;
}

safetensors::Header header_of(const TargetFile& file) {
  const std::string& literal = file.placements.at(0).literal;
  auto header = safetensors::parse_header(std::as_bytes(std::span(literal)), file.bytes);
  EXPECT_TRUE(header.has_value()) << (header ? "" : header.error().message);
  return header ? *std::move(header) : safetensors::Header{};
}

TEST(UniversalWriter, KeepsClassesApartInFilesNamedByThem) {
  Source source;
  const Skeleton skeleton = source.lay_out();
  EXPECT_TRUE(skeleton.directory);
  EXPECT_EQ(paths(skeleton), (std::vector<std::string>{std::string(kWeights), std::string(kOptim), std::string(kBlobs),
                                                       std::string(kObjects)}));
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(skeleton.files[i].file_class, i);
    EXPECT_EQ(skeleton.files[i].writer, 0u);
    EXPECT_EQ(skeleton.files[i].volume, 0u);
  }
}

TEST(UniversalWriter, OrdersEntriesByAlignmentAndNameAndBeginsDataOnAPage) {
  Source source;
  const Skeleton skeleton = source.lay_out();
  const TargetFile& file = skeleton.files.at(0);
  EXPECT_EQ(file.header_bytes, 4096u);
  const safetensors::Header header = header_of(file);
  EXPECT_EQ(header.data_begin, 4096u);
  std::vector<std::string> names;
  for (const auto& entry : header.entries) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a.b", "none", "z", "count", "wte", "flag"}));
  for (const Placement& placement : file.placements) {
    if (placement.from != Placement::From::tensor) continue;
    EXPECT_EQ(placement.offset % unit_bytes(placement.dtype), 0u) << placement.offset;
  }
}

TEST(UniversalWriter, SaysInEveryHeaderWhoseFileItIsAndNothingElse) {
  Source source;
  const Skeleton skeleton = source.lay_out();
  const std::vector<std::string> classes{"weights", "optim", "blobs"};
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const safetensors::Metadata expected{
        {"format", "pt"},
        {"ckpt.v1", R"({"format":"1.0","id":")" + std::string(RawSource::kId) + R"(","class":")" + classes[i] +
                        R"(","writer":0,"volume":0})"}};
    EXPECT_EQ(header_of(skeleton.files[i]).metadata, expected);
  }
}

TEST(UniversalWriter, WhatItWritesReadsBackEqual) {
  Source source;
  const TempDir out;
  const std::string target = out.path() + "/x";
  write_out(source.lay_out(), source.map, source.dir.path(), target);
  const auto io = open_io(IoKind::threads).value();
  const auto map = universal_format().reader->open(*io, target, {});
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(map->id, RawSource::kId);
  EXPECT_EQ(map->format, "ckpt");
  ASSERT_EQ(map->tensors.size(), source.map.tensors.size());
  for (std::size_t i = 0; i < source.map.tensors.size(); ++i) {
    const Tensor& expected = source.map.tensors[i];
    const std::size_t index = index_of(*map, expected.name);
    ASSERT_LT(index, map->tensors.size()) << expected.name;
    const Tensor& found = map->tensors[index];
    EXPECT_EQ(found.dtype, expected.dtype) << expected.name;
    EXPECT_EQ(found.shape, expected.shape) << expected.name;
    EXPECT_EQ(found.role, expected.role) << expected.name;
    EXPECT_EQ(found.path, expected.path) << expected.name;
    EXPECT_EQ(found.parameter, expected.parameter) << expected.name;
    EXPECT_EQ(found.slot, expected.slot) << expected.name;
    EXPECT_EQ(found.true_dtype, expected.true_dtype) << expected.name;
    EXPECT_EQ(materialize(*map, target, index), materialize(source.map, source.dir.path(), i)) << expected.name;
  }
  ASSERT_EQ(map->aliases.size(), 1u);
  EXPECT_EQ(map->aliases[0].name, "lm_head");
  EXPECT_EQ(map->aliases[0].target, "wte");
  ASSERT_EQ(map->objects.size(), 2u);
  EXPECT_EQ(map->objects[0].name, "args.lr");
  EXPECT_EQ(map->objects[0].path, source.map.objects[0].path);
  EXPECT_EQ(std::get<double>(map->objects[0].value.v), 0.5);
  EXPECT_EQ(map->meta.step, 7u);
  EXPECT_EQ(map->meta.world_size, 4u);
  EXPECT_EQ(map->meta.mesh, source.map.meta.mesh);
  EXPECT_EQ(map->meta.framework, "torch");
  EXPECT_EQ(map->meta.user, source.map.meta.user);
}

TEST(UniversalWriter, TheManifestTellsWhereEverythingCameFrom) {
  Source source;
  const universal::Manifest manifest = manifest_of(source.lay_out());
  EXPECT_EQ(manifest.created, "1970-01-01T00:00:02.000000001Z");
  ASSERT_TRUE(manifest.source);
  EXPECT_EQ(manifest.source->format, "dcp");
  EXPECT_EQ(manifest.source->fingerprint, fingerprint(source.map));
  EXPECT_EQ(manifest.source->chosen, "tag x");
  ASSERT_EQ(manifest.findings.size(), 2u);
  EXPECT_EQ(manifest.findings[0].text, "a trap");
  EXPECT_EQ(manifest.findings[0].file, "data");
  EXPECT_EQ(manifest.findings[0].tensor, "wte");
  EXPECT_EQ(manifest.findings[1].file, "") << "a path that says where the source lay";
}

TEST(UniversalWriter, BytesDependOnTheRequestAlone) {
  Source one;
  Source two;
  std::reverse(two.request.tensors.begin(), two.request.tensors.end());
  const Skeleton a = one.lay_out();
  const Skeleton b = two.lay_out();
  ASSERT_EQ(paths(a), paths(b));
  for (std::size_t i = 0; i < a.files.size(); ++i) {
    EXPECT_EQ(a.files[i].bytes, b.files[i].bytes);
    EXPECT_EQ(a.files[i].placements[0].literal, b.files[i].placements[0].literal);
  }
  const auto first = a.finish(leaves_of(a)).value();
  const auto second = b.finish(leaves_of(b)).value();
  ASSERT_EQ(first.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(first[i].bytes, second[i].bytes);
}

TEST(UniversalWriter, TheManifestIsWrittenLastAndItsCopyFirst) {
  Source source;
  const Skeleton skeleton = source.lay_out();
  const auto small = skeleton.finish(leaves_of(skeleton)).value();
  ASSERT_EQ(small.size(), 3u);
  EXPECT_EQ(small[0].path, "index/manifest.json");
  EXPECT_EQ(small[1].path, "sums.bin");
  EXPECT_EQ(small[2].path, "manifest.json");
  EXPECT_EQ(small[0].bytes, small[2].bytes);
}

TEST(UniversalWriter, FinishingWithTheWrongNumberOfLeavesFails) {
  Source source;
  const Skeleton skeleton = source.lay_out();
  std::vector<Hash128> leaves = leaves_of(skeleton);
  leaves.pop_back();
  EXPECT_FALSE(skeleton.finish(leaves));
}

TEST(UniversalWriter, CutsVolumesAtTheGivenSizeInNameOrder) {
  RawSource source({{.name = "d", .dtype = Dtype::u8, .shape = {3000}},
                    {.name = "a", .dtype = Dtype::u8, .shape = {3000}},
                    {.name = "c", .dtype = Dtype::u8, .shape = {9000}},
                    {.name = "b", .dtype = Dtype::u8, .shape = {3000}}});
  source.request.shard_bytes = 12000;
  const TempDir out;
  const std::string target = out.path() + "/x";
  const Skeleton skeleton = source.lay_out(universal_format(), target);
  ASSERT_EQ(skeleton.files.size(), 3u);
  std::vector<std::vector<std::string>> names;
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(skeleton.files[i].volume, i);
    EXPECT_EQ(skeleton.files[i].path, "shards/weights/00000-0000" + std::to_string(i) + ".safetensors");
    names.emplace_back();
    for (const auto& entry : header_of(skeleton.files[i]).entries) names.back().push_back(entry.name);
  }
  EXPECT_EQ(names, (std::vector<std::vector<std::string>>{{"a", "b"}, {"c"}, {"d"}}));
  EXPECT_LE(skeleton.files[0].bytes, 12000u);
  write_out(skeleton, source.map, source.dir.path(), target);
  const auto io = open_io(IoKind::threads).value();
  const auto map = universal_format().reader->open(*io, target, {});
  ASSERT_TRUE(map) << map.error().message;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(materialize(*map, target, index_of(*map, source.map.tensors[i].name)),
              materialize(source.map, source.dir.path(), i));
  }
}

TEST(UniversalWriter, NewNamesReachParametersAndObjects) {
  Source source;
  source.map.nested = true;
  for (Selected& selected : source.request.tensors) {
    if (selected.name == "wte") selected.name = "model.wte";
    if (selected.name == "a.b") selected.name = "model.a.b";
  }
  source.request.aliases = {{"model.lm_head", "model.wte"}};
  const Skeleton skeleton = source.lay_out();
  const universal::Manifest manifest = manifest_of(skeleton);
  EXPECT_EQ(row_of(manifest, "optimizer.state.wte.master").parameter, "model.wte");
  EXPECT_TRUE(row_of(manifest, "model.a.b").path.empty());
  EXPECT_FALSE(manifest.nested);
  ASSERT_EQ(manifest.aliases.size(), 1u);
  EXPECT_EQ(manifest.aliases[0].target, "model.wte");
  EXPECT_NE(skeleton.files.back().placements[0].literal.find(R"({"tensor":"model.wte"})"), std::string::npos);
}

TEST(UniversalWriter, NestedNamesThatStayAreStillNested) {
  Source source;
  source.map.nested = true;
  EXPECT_TRUE(manifest_of(source.lay_out()).nested);
}

TEST(UniversalWriter, ASlotsNewNameTellsItsParameterWhereThatIsNotTaken) {
  Source source;
  source.request.tensors = {{7, "optimizer.state.model.wte.master", Dtype::f32}};
  source.request.aliases.clear();
  const universal::Manifest manifest = manifest_of(source.lay_out());
  EXPECT_EQ(row_of(manifest, "optimizer.state.model.wte.master").parameter, "model.wte");
}

TEST(UniversalWriter, AMasterTakenAsTheWeightIsAWeight) {
  Source source;
  source.request.tensors = {{7, "wte", Dtype::f32}};
  source.request.tensors[0].role = Role::param;
  source.request.aliases.clear();
  source.request.objects.clear();
  const Skeleton skeleton = source.lay_out();
  EXPECT_EQ(paths(skeleton), std::vector<std::string>{std::string(kWeights)});
  const universal::Manifest manifest = manifest_of(skeleton);
  EXPECT_EQ(row_of(manifest, "wte").role, Role::param);
  EXPECT_EQ(row_of(manifest, "wte").slot, "");
  EXPECT_EQ(row_of(manifest, "wte").parameter, "");
}

TEST(UniversalWriter, ACastForgetsTheTrueDtype) {
  Source source;
  for (Selected& selected : source.request.tensors) {
    if (selected.name == "z") selected.dtype = Dtype::f32;
  }
  const universal::Manifest manifest = manifest_of(source.lay_out());
  EXPECT_EQ(row_of(manifest, "z").dtype, Dtype::f32);
  EXPECT_EQ(row_of(manifest, "z").true_dtype, "");
}

TEST(UniversalWriter, TiedNamesThatCannotBeKeptAreTold) {
  Source source;
  source.request.aliases = {{"flag", "wte"}, {"x", "wte"}, {"x", "count"}, {"y", "nobody"}};
  const Skeleton skeleton = source.lay_out();
  EXPECT_EQ(skeleton.dropped.size(), 3u);
  ASSERT_EQ(manifest_of(skeleton).aliases.size(), 1u);
}

TEST(UniversalWriter, NothingIsACheckpointToo) {
  RawSource source({});
  const TempDir out;
  const std::string target = out.path() + "/x";
  const Skeleton skeleton = source.lay_out(universal_format(), target);
  EXPECT_TRUE(skeleton.files.empty());
  write_out(skeleton, source.map, source.dir.path(), target);
  const auto io = open_io(IoKind::threads).value();
  const auto map = universal_format().reader->open(*io, target, {});
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_TRUE(map->tensors.empty());
}

TEST(UniversalWriter, NamesThatCannotStandAreRefused) {
  RawSource reserved({{.name = "__metadata__", .dtype = Dtype::u8, .shape = {1}}});
  const auto first = universal_format().writer->lay_out(reserved.request);
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code, Errc::unsupported);
  RawSource twice({{.name = "a", .dtype = Dtype::u8, .shape = {1}}, {.name = "b", .dtype = Dtype::u8, .shape = {1}}});
  twice.request.tensors[1].name = "a";
  const auto second = universal_format().writer->lay_out(twice.request);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::usage);
}

TEST(UniversalWriter, ObjectsThatCannotBeWrittenAreRefusedByName) {
  Source source;
  ValuePtr bomb = ptr({true});
  for (int i = 0; i < 30; ++i) bomb = ptr({List{List::Kind::list, {bomb, bomb}}});
  source.request.objects.push_back({"bomb", {}, *bomb});
  const auto skeleton = universal_format().writer->lay_out(source.request);
  ASSERT_FALSE(skeleton);
  EXPECT_EQ(skeleton.error().code, Errc::refused);
  EXPECT_NE(skeleton.error().message.find("bomb"), std::string::npos);
}

TEST(UniversalWriter, ATrueDtypeThatContradictsTheStoredOneIsCorruptToAnyReader) {
  for (const Tensor& wrong :
       std::vector<Tensor>{{.name = "z", .dtype = Dtype::f32, .shape = {3, 2}, .true_dtype = "complex128"},
                           {.name = "z", .dtype = Dtype::f64, .shape = {3}, .true_dtype = "complex128"},
                           {.name = "z", .dtype = Dtype::f64, .shape = {}, .true_dtype = "complex128"},
                           {.name = "z", .dtype = Dtype::f64, .shape = {3, 2}, .true_dtype = "float32"}}) {
    RawSource source({wrong});
    const std::string target = source.dir.path() + "/out";
    write_out(source.lay_out(universal_format(), "out"), source.map, source.dir.path(), target);
    auto io = open_io(IoKind::threads, 8);
    ASSERT_TRUE(io.has_value());
    const auto opened = open_source(**io, target, "", {});
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code, Errc::corrupt);
    EXPECT_EQ(opened.error().tensor, "z");
    EXPECT_NE(opened.error().message.find("its recorded dtype"), std::string::npos) << opened.error().message;
  }
}

}  // namespace
}  // namespace ckpt
