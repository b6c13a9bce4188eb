#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "convert/dcp_placement.hpp"
#include "convert/formats.hpp"
#include "convert/materialize.hpp"
#include "convert/raw_source.hpp"
#include "format/checked.hpp"
#include "format/torch/dcp_metadata.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

/// Elements of a box, row-major, cut out of the bytes of a whole tensor.
std::string cut_out(const std::string& whole, const Shape& shape, const Box& box, std::uint64_t unit) {
  std::string out;
  const auto strides = row_major_strides(shape);
  const std::uint64_t count = volume(box.size);
  Shape at = box.offset;
  for (std::uint64_t k = 0; k < count; ++k) {
    std::uint64_t from = 0;
    for (std::size_t d = 0; d < at.size(); ++d) from += at[d] * static_cast<std::uint64_t>(strides[d]);
    out += whole.substr(from * unit, unit);
    for (std::size_t d = at.size(); d-- > 0;) {
      if (++at[d] < box.offset[d] + box.size[d]) break;
      at[d] = box.offset[d];
    }
  }
  return out;
}

struct DcpTarget : RawSource {
  using RawSource::RawSource;
  TempDir target{};

  Skeleton lay_out() { return RawSource::lay_out(dcp_format(), target.path()); }

  /// Writes the files without the engine, late fields left at zero, and then what `finish` gives.
  Skeleton write() {
    Skeleton skeleton = lay_out();
    for (const TargetFile& file : skeleton.files) spill(target.path() + "/" + file.path, bytes_of(file));
    const auto small = skeleton.finish({});
    EXPECT_TRUE(small.has_value());
    for (const SmallFile& file : *small) spill(target.path() + "/" + file.path, file.bytes);
    return skeleton;
  }

  std::string bytes_of(const TargetFile& file) const {
    std::string bytes(file.bytes, '\0');
    for (const Placement& placement : file.placements) {
      std::string part = placement.literal;
      if (placement.from == Placement::From::tensor) {
        const Tensor& tensor = map.tensors[placement.tensor];
        part = materialize(map, dir.path(), placement.tensor);
        if (placement.chunk && !is_packed(tensor.dtype))
          part = cut_out(part, tensor.shape, placement.chunk->box, unit_bytes(tensor.dtype));
      }
      EXPECT_EQ(part.size(), placement.bytes) << file.path << " at " << placement.offset;
      bytes.replace(placement.offset, part.size(), part);
    }
    return bytes;
  }

  Result<Map> open() const {
    const auto io = open_io(IoKind::threads).value();
    return dcp_format().reader->open(*io, target.path(), {});
  }
};

std::size_t index_in(const Map& map, const std::string& name) {
  const auto at = std::ranges::find(map.tensors, name, &Tensor::name);
  return static_cast<std::size_t>(at - map.tensors.begin());
}

void expect_same(const DcpTarget& target) {
  const auto map = target.open();
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(map->id, RawSource::kId);
  for (std::size_t i = 0; i < target.map.tensors.size(); ++i) {
    const Tensor& wanted = target.map.tensors[i];
    const std::size_t at = index_in(*map, wanted.name);
    ASSERT_LT(at, map->tensors.size()) << wanted.name;
    EXPECT_EQ(map->tensors[at].dtype, wanted.dtype) << wanted.name;
    EXPECT_EQ(map->tensors[at].shape, wanted.shape) << wanted.name;
    EXPECT_EQ(map->tensors[at].true_dtype, wanted.true_dtype) << wanted.name;
    EXPECT_EQ(materialize(*map, target.target.path(), at), materialize(target.map, target.dir.path(), i))
        << wanted.name;
  }
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < map->tensors.size(); ++i) all.push_back(i);
  const auto covered = check_coverage(*map, all);
  EXPECT_TRUE(covered) << covered.error().message;
}

dcp::Metadata metadata_of(const DcpTarget& target) {
  const std::string bytes = slurp(target.target.path() + "/.metadata");
  auto parsed = dcp::parse_metadata(std::as_bytes(std::span(bytes)));
  EXPECT_TRUE(parsed) << parsed.error().message;
  return *std::move(parsed);
}

std::vector<Shape> offsets_of(const dcp::Metadata& metadata, const std::string& fqn) {
  std::vector<Shape> out;
  for (const dcp::Entry& entry : metadata.entries) {
    if (entry.fqn != fqn) continue;
    for (std::uint64_t i = entry.first_item; i < entry.first_item + entry.item_count; ++i)
      out.push_back(metadata.box(entry, i).offset);
  }
  return out;
}

std::vector<Tensor> every_type() {
  std::vector<Tensor> out;
  for (int i = 0; i < kDtypeCount; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    if (dtype == Dtype::f6_e2m3 || dtype == Dtype::f6_e3m2) continue;
    out.push_back({.name = std::string(dtype_name(dtype)), .dtype = dtype, .shape = {7, 4}});
  }
  out.push_back({.name = "complex128", .dtype = Dtype::f64, .shape = {5, 2}, .true_dtype = "complex128"});
  out.push_back({.name = "complex32", .dtype = Dtype::f16, .shape = {5, 3, 2}, .true_dtype = "complex32"});
  return out;
}

TEST(DcpWriter, EveryElementTypeIsReadBackFromAnyNumberOfRanks) {
  for (const std::uint64_t ranks : {1u, 3u, 8u}) {
    SCOPED_TRACE(ranks);
    DcpTarget target(every_type());
    target.request.options.ranks = ranks;
    // Pairs of F4 share bytes: whole here, as materialize() takes them from one file.
    target.request.options.placements = {{"F4", "R"}};
    target.write();
    expect_same(target);
  }
}

TEST(DcpWriter, RowsAreCutAsTorchChunkCutsThem) {
  DcpTarget target({{.name = "w", .dtype = Dtype::f32, .shape = {10, 4}},
                    {.name = "tail", .dtype = Dtype::f32, .shape = {5, 3}},
                    {.name = "few", .dtype = Dtype::f32, .shape = {2}},
                    {.name = "none", .dtype = Dtype::f32, .shape = {0, 4}},
                    {.name = "scalar", .dtype = Dtype::f32, .shape = {}}});
  target.request.options.ranks = 4;
  target.write();
  expect_same(target);
  const dcp::Metadata metadata = metadata_of(target);
  EXPECT_EQ(offsets_of(metadata, "w"), (std::vector<Shape>{{0, 0}, {3, 0}, {6, 0}, {9, 0}}));
  EXPECT_EQ(offsets_of(metadata, "tail"), (std::vector<Shape>{{0, 0}, {2, 0}, {4, 0}}));
  EXPECT_EQ(offsets_of(metadata, "few"), (std::vector<Shape>{{0}, {1}}));
  EXPECT_EQ(offsets_of(metadata, "scalar"), (std::vector<Shape>{{}}));
}

TEST(DcpWriter, PlacementsCutOtherDimensionsAndSeveral) {
  DcpTarget target({{.name = "column", .dtype = Dtype::bf16, .shape = {6, 5}},
                    {.name = "grid", .dtype = Dtype::bf16, .shape = {5, 7}},
                    {.name = "twice", .dtype = Dtype::bf16, .shape = {9, 2}},
                    {.name = "copy", .dtype = Dtype::bf16, .shape = {6, 5}}});
  target.request.options.ranks = 6;
  target.request.options.placements = {
      {"column", "S1"}, {"grid", "S0:2,S1"}, {"twice", "S0:2,S0:3"}, {"c*", "R"}, {"unheard", "R"}};
  const Skeleton skeleton = target.write();
  expect_same(target);
  const dcp::Metadata metadata = metadata_of(target);
  EXPECT_EQ(offsets_of(metadata, "column"), (std::vector<Shape>{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}}));
  EXPECT_EQ(offsets_of(metadata, "grid"), (std::vector<Shape>{{0, 0}, {0, 3}, {0, 6}, {3, 0}, {3, 3}, {3, 6}}));
  EXPECT_EQ(offsets_of(metadata, "twice"), (std::vector<Shape>{{0, 0}, {2, 0}, {4, 0}, {5, 0}, {7, 0}}));
  EXPECT_EQ(offsets_of(metadata, "copy").size(), 1u);
  EXPECT_TRUE(std::ranges::any_of(skeleton.dropped, [](const Finding& finding) {
    return finding.text == "--placement 'unheard': no tensor matches";
  }));
}

TEST(DcpWriter, LargeReplicatedTensorsAreSharedAmongTheirRanks) {
  DcpTarget target({{.name = "big", .dtype = Dtype::u8, .shape = {1024, 1024}}});
  target.request.options.ranks = 4;
  target.request.options.placements = {{"big", "R"}};
  const Skeleton skeleton = target.write();
  EXPECT_EQ(skeleton.files.size(), 4u);
  expect_same(target);
}

TEST(DcpWriter, TiedNamesAreEntriesOfTheirOwn) {
  DcpTarget target({{.name = "emb", .dtype = Dtype::f32, .shape = {3, 2}}});
  target.request.aliases = {{"head", "emb"}};
  target.write();
  const auto map = target.open();
  ASSERT_TRUE(map) << map.error().message;
  const std::size_t head = index_in(*map, "head");
  ASSERT_LT(head, map->tensors.size());
  EXPECT_EQ(materialize(*map, target.target.path(), head), materialize(target.map, target.dir.path(), 0));
}

TEST(DcpWriter, ObjectsAreItemsAsTorchFlattensThem) {
  DcpTarget target({{.name = "w", .dtype = Dtype::f32, .shape = {3}}});
  target.map.nested = true;
  const auto value = [](auto v) {
    auto out = std::make_shared<Value>();
    out->v = std::move(v);
    return out;
  };
  Dict group{.items = {{value(std::string("lr")), value(0.5)},
                       {value(std::string("betas")),
                        value(List{.kind = List::Kind::tuple, .items = {value(0.9), value(0.999)}})}}};
  Value groups;
  groups.v = List{.items = {value(std::move(group))}};
  Value names;
  names.v = List{.items = {value(std::string("a")), value(std::string("b"))}};
  Value unknown;
  unknown.v = Opaque{.global = "module.Class"};
  target.request.objects = {{.name = "optim.param_groups", .value = groups},
                            {.name = "names", .value = names},
                            {.name = "odd", .value = unknown}};
  const Skeleton skeleton = target.write();
  const auto map = target.open();
  ASSERT_TRUE(map) << map.error().message;
  std::set<std::string> found;
  for (const NamedObject& object : map->objects) found.insert(object.name);
  EXPECT_EQ(found, (std::set<std::string>{"names", "optim.param_groups.0.betas", "optim.param_groups.0.lr"}));
  const auto lr = std::ranges::find(map->objects, "optim.param_groups.0.lr", &NamedObject::name);
  EXPECT_EQ(lr->path, (Path{std::string("optim"), std::string("param_groups"), std::int64_t{0}, std::string("lr")}));
  EXPECT_EQ(std::get<double>(lr->value.v), 0.5);
  EXPECT_TRUE(std::ranges::any_of(
      skeleton.dropped, [](const Finding& finding) { return finding.text.find("odd") != std::string::npos; }));
}

TEST(DcpWriter, ElementTypesThatTorchLacksAreRefusedByName) {
  DcpTarget target({{.name = "six", .dtype = Dtype::f6_e2m3, .shape = {4, 4}}});
  target.request.target = target.target.path();
  const auto refused = dcp_format().writer->lay_out(target.request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_EQ(refused.error().tensor, "six");
}

TEST(DcpPlacement, WhatIsNoPlacementIsRefused) {
  for (const char* text : {"", "S", "T0", "S0,", "S0:0", "R:3,S0:2", "S0,S1", "S0:4,R:3", "s0", "S-1"}) {
    const auto parsed = dcp::Placements::parse({{"*", text}}, 4);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Errc::usage) << text;
  }
}

TEST(DcpPlacement, DimensionThatATensorLacksIsNamedWithTheTensor) {
  const auto placements = dcp::Placements::parse({{"*", "S1"}}, 2);
  ASSERT_TRUE(placements);
  EXPECT_TRUE(placements->of("matrix", {4, 4}));
  EXPECT_TRUE(placements->of("scalar", {}));
  const auto bias = placements->of("bias", {4});
  ASSERT_FALSE(bias);
  EXPECT_EQ(bias.error().tensor, "bias");
}

}  // namespace
}  // namespace ckpt
