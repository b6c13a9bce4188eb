// Every placement that a model can declare: what was saved on one mesh is loaded on another, each element where an
// oracle that knows only lists of indices says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "api/run/run.hpp"
#include "support/random_mesh.hpp"
#include "support/temp_dir.hpp"
#include "support/thread_comm.hpp"

namespace ckpt::test {
namespace {

using universal::Layout;
using universal::Mesh;
using universal::TensorRow;
using Indices = std::vector<std::uint64_t>;

/// The part's number of the rank with these coordinates, and how many parts there are.
std::pair<std::uint64_t, std::uint64_t> part_of(const Mesh& mesh, const std::vector<std::uint32_t>& axes,
                                                const Indices& at) {
  std::uint64_t part = 0;
  std::uint64_t parts = 1;
  for (const std::uint32_t axis : axes) {
    part = part * mesh.axes[axis].size + at[axis];
    parts *= mesh.axes[axis].size;
  }
  return {part, parts};
}

Indices slice(const Indices& all, std::uint64_t begin, std::uint64_t end) {
  const auto place = [&](std::uint64_t at) {
    return all.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(at, all.size()));
  };
  return {place(begin), place(std::max(begin, end))};
}

Indices cut_by(const Layout::Cut& cut, const Indices& all, std::uint64_t part, std::uint64_t parts) {
  if (cut.rule == Layout::Cut::Rule::points) return slice(all, cut.points[part], cut.points[part + 1]);
  if (cut.rule == Layout::Cut::Rule::ceil) {
    const std::uint64_t each = (all.size() + parts - 1) / parts;
    return slice(all, part * each, part * each + each);
  }
  const std::uint64_t each = all.size() / parts;
  const std::uint64_t more = all.size() % parts;
  const std::uint64_t begin = part * each + std::min(part, more);
  return slice(all, begin, begin + each + (part < more ? 1 : 0));
}

/// The elements of a rank's local array, in its order, as indices in the tensor.
Indices local_elements(const MeshCase& one, std::uint64_t rank) {
  const Mesh& mesh = one.layout.mesh;
  Indices at(mesh.axes.size());
  for (std::size_t i = at.size(); i-- > 0; rank /= mesh.axes[i].size) at[i] = rank % mesh.axes[i].size;
  for (const Layout::At& holders : one.layout.at) {
    if (std::count(holders.indices.begin(), holders.indices.end(), at[holders.axis]) == 0) return {};
  }
  std::vector<Indices> dims;
  for (const std::uint64_t length : one.tensor.shape) {
    for (dims.emplace_back(); dims.back().size() < length;) dims.back().push_back(dims.back().size());
  }
  for (const Layout::Cut& cut : one.layout.cuts) {
    const auto [part, parts] = part_of(mesh, cut.axes, at);
    Indices& dim = dims[cut.dim];
    if (cut.segments.empty()) {
      dim = cut_by(cut, dim, part, parts);
      continue;
    }
    Indices kept;
    std::uint64_t begin = 0;
    for (const std::uint64_t length : cut.segments) {
      const Indices own = cut_by(cut, slice(dim, begin, begin + length), part, parts);
      kept.insert(kept.end(), own.begin(), own.end());
      begin += length;
    }
    dim = kept;
  }
  Indices out{0};
  for (std::size_t d = 0; d < dims.size(); ++d) {
    Indices longer;
    for (const std::uint64_t before : out) {
      for (const std::uint64_t index : dims[d]) longer.push_back(before * one.tensor.shape[d] + index);
    }
    out = std::move(longer);
  }
  if (!one.layout.flat) return out;
  const auto [part, parts] = part_of(mesh, one.layout.flat->axes, at);
  Indices mine;
  for (std::uint64_t i = 0; i < out.size(); ++i) {
    if ((one.begin + i) / one.layout.flat->part == part) mine.push_back(out[i]);
  }
  return mine;
}

/// The bytes of elements: the same on every mesh.
std::vector<std::byte> values_of(const Tensor& tensor, const Indices& elements) {
  const std::size_t unit = unit_bytes(tensor.dtype);
  std::vector<std::byte> out;
  for (const std::uint64_t element : elements) {
    const std::uint64_t value = (element + 1) * 0x9E3779B97F4A7C15U + tensor.name.size() * 0x100000001B3U;
    for (std::size_t i = 0; i < unit; ++i) out.push_back(static_cast<std::byte>(value >> (8 * (7 - i))));
  }
  return out;
}

Model model_of(const std::vector<MeshCase>& cases) {
  std::vector<Layout> layouts;
  std::vector<TensorRow> rows;
  for (const MeshCase& one : cases) {
    rows.push_back({.tensor = one.tensor, .layout = static_cast<std::uint32_t>(layouts.size()), .begin = one.begin});
    layouts.push_back(one.layout);
  }
  return Model::make(std::move(layouts), std::move(rows)).value();
}

using Body = std::function<void(std::uint64_t rank, ckpt::Run& run)>;
void on_ranks(const std::string& directory, const std::vector<MeshCase>& cases, const Body& body) {
  std::uint64_t ranks = 1;
  for (const universal::Axis& axis : cases[0].layout.mesh.axes) ranks *= axis.size;
  ThreadRanks(static_cast<int>(ranks)).run_tables([&](const ckpt_comm_table& table) {
    auto comm = std::make_unique<Comm>(table);
    const auto rank = static_cast<std::uint64_t>(comm->rank());
    auto run = ckpt::Run::open(open_io(IoKind::threads, 8), std::move(comm), directory, {.verify_all = true});
    ASSERT_TRUE(run) << run.error().message;
    (*run)->set_model(model_of(cases));
    body(rank, **run);
  });
}

void save(const std::string& directory, const std::vector<MeshCase>& cases) {
  on_ranks(directory, cases, [&](std::uint64_t rank, ckpt::Run& run) {
    ASSERT_TRUE(run.begin(1));
    std::vector<std::vector<std::byte>> memory;
    for (const MeshCase& one : cases) {
      const auto& part = memory.emplace_back(values_of(one.tensor, local_elements(one, rank)));
      const auto added =
          run.saver().add({.name = one.tensor.name, .memory = {.data = part.data(), .bytes = part.size()}});
      ASSERT_TRUE(added) << added.error().message;
    }
    const auto pending = run.commit({});
    ASSERT_TRUE(pending) << pending.error().message;
    const auto durable = run.saver().wait(*pending, std::chrono::minutes(2));
    ASSERT_TRUE(durable) << durable.error().message;
  });
}

void expect_loads(const std::string& directory, const std::vector<MeshCase>& cases) {
  on_ranks(directory, cases, [&](std::uint64_t rank, ckpt::Run& run) {
    std::vector<std::vector<std::byte>> memory;
    std::vector<NamedRead> reads;
    for (const MeshCase& one : cases) {
      memory.emplace_back(local_elements(one, rank).size() * unit_bytes(one.tensor.dtype));
      reads.push_back({.name = one.tensor.name, .out = memory.back().data(), .bytes = memory.back().size()});
    }
    const auto loaded = run.load(reads, false);
    ASSERT_TRUE(loaded) << loaded.error().message;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      EXPECT_TRUE(memory[i] == values_of(cases[i].tensor, local_elements(cases[i], rank)))
          << "rank " << rank << ", " << cases[i].tensor.name;
    }
  });
}

Layout::Cut segments(std::uint32_t dim, std::uint32_t axis, std::vector<std::uint64_t> lengths) {
  return {.dim = dim, .axes = {axis}, .rule = Layout::Cut::Rule::even, .segments = std::move(lengths)};
}

TEST(RunPlacements, SegmentsAlongSeveralDimensionsStandWhereTheyBelong) {
  const TempDir directory(memory_temp_dir());
  const Mesh mesh{{{"a", 2}, {"b", 2}}};
  const auto fused = [&](std::string name, Shape shape, std::vector<Layout::Cut> cuts) {
    return MeshCase{.layout = {.kind = Layout::Kind::mesh, .mesh = mesh, .cuts = std::move(cuts)},
                    .tensor = {.name = std::move(name), .dtype = Dtype::f32, .shape = std::move(shape)}};
  };
  const std::vector<MeshCase> saved{
      fused("square", {8, 8}, {segments(0, 0, {4, 4}), segments(1, 1, {4, 4})}),
      fused("uneven", {5, 2, 3}, {segments(2, 1, {2, 1}), segments(0, 0, {4, 1})}),
      fused("inner", {3, 6, 4}, {segments(1, 0, {2, 4}), segments(2, 1, {2, 2})}),
  };
  std::vector<MeshCase> whole = saved;
  for (MeshCase& one : whole) one.layout = {.kind = Layout::Kind::mesh};
  save(directory.path() + "/run", saved);
  expect_loads(directory.path() + "/run", whole);
  expect_loads(directory.path() + "/run", saved);
  save(directory.path() + "/back", whole);
  expect_loads(directory.path() + "/back", saved);
}

Mesh random_mesh(std::mt19937_64& random) {
  Mesh mesh;
  std::uint64_t ranks = 1;
  while (mesh.axes.size() < 3) {
    const std::uint64_t size = 1 + random() % 3;
    if (ranks * size > 6) break;
    ranks *= size;
    mesh.axes.push_back({.name = "axis" + std::to_string(mesh.axes.size()), .size = size});
  }
  return mesh;
}

TEST(RunPlacements, WhatAnyMeshSavesAnyOtherLoads) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const TempDir directory(memory_temp_dir());
    const Mesh from = random_mesh(random);
    const Mesh to = random_mesh(random);
    std::vector<MeshCase> saved;
    std::vector<MeshCase> loaded;
    for (int i = 0; i < 24; ++i) {
      Tensor tensor{.name = "t" + std::string(static_cast<std::size_t>(i), '+'), .dtype = Dtype::f32};
      if (i % 3 == 1) tensor.dtype = Dtype::u8;
      if (i % 3 == 2) tensor.dtype = Dtype::f64;
      for (std::uint64_t d = random() % 4; d > 0; --d)
        tensor.shape.push_back(random() % 20 == 0 ? 0 : 1 + random() % 9);
      saved.push_back(random_layout_of(random, tensor, from));
      loaded.push_back(random_layout_of(random, tensor, to));
    }
    save(directory.path() + "/run", saved);
    expect_loads(directory.path() + "/run", loaded);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace ckpt::test
