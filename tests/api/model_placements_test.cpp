// Placements of a model, by the public interface alone: what one mesh saves another loads, and every element stands
// where a list of indices, made here by the trainers' rules, says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/ckpt.hpp"
#include "support/rank_tables.hpp"
#include "support/temp_dir.hpp"

namespace ckpt::test {
namespace {

using Indices = std::vector<std::uint64_t>;

struct Sizes {
  std::uint64_t pp = 1, ep = 1, tp = 1;
  std::uint64_t ranks() const { return pp * ep * tp; }
};
struct Coordinates {
  std::uint64_t pp = 0, ep = 0, tp = 0;
};
Coordinates at(const Sizes& mesh, std::uint64_t rank) {
  return {rank / mesh.tp / mesh.ep, rank / mesh.tp % mesh.ep, rank % mesh.tp};
}

Indices range(std::uint64_t begin, std::uint64_t end) {
  Indices out(end > begin ? end - begin : 0);
  std::iota(out.begin(), out.end(), begin);
  return out;
}

/// Elements of some rows, all columns; or of all rows, some columns.
Indices rows_of(const Indices& rows, std::uint64_t columns) {
  Indices out;
  for (const std::uint64_t row : rows) {
    for (std::uint64_t c = 0; c < columns; ++c) out.push_back(row * columns + c);
  }
  return out;
}
Indices columns_of(std::uint64_t rows, std::uint64_t columns, const Indices& chosen) {
  Indices out;
  for (std::uint64_t r = 0; r < rows; ++r) {
    for (const std::uint64_t c : chosen) out.push_back(r * columns + c);
  }
  return out;
}

/// A tensor, its steps on a mesh, and the elements of a rank's part in their order.
struct Placed {
  Tensor tensor;
  std::function<std::vector<Step>(const Sizes&)> steps;
  std::function<Indices(const Sizes&, const Coordinates&)> elements;
};

constexpr std::uint64_t kWidth = 8;

/// Parameters of one ZeRO group, whose parts are aligned to `align_factor` elements a rank.
const Indices kGroupCounts{13, 4, 30};

Indices group_part(const Sizes& mesh, std::uint64_t part_of, std::size_t parameter) {
  const std::uint64_t alignment = 2 * mesh.tp;
  const std::uint64_t total = std::accumulate(kGroupCounts.begin(), kGroupCounts.end(), std::uint64_t{0});
  const std::uint64_t each = (total + alignment - 1) / alignment * alignment / mesh.tp;
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < parameter; ++i) begin += kGroupCounts[i];
  Indices out;
  for (std::uint64_t i = 0; i < kGroupCounts[parameter]; ++i) {
    if ((begin + i) / each == part_of) out.push_back(i);
  }
  return out;
}

std::vector<Placed> all_placements() {
  const auto same = [](std::vector<Step> steps) { return [steps](const Sizes&) { return steps; }; };
  std::vector<Placed> out;
  out.push_back({{.name = "column", .shape = {24, kWidth}},
                 same({Model::column("tp")}),
                 [](const Sizes& mesh, const Coordinates& rank) {
                   const std::uint64_t each = 24 / mesh.tp;
                   return rows_of(range(rank.tp * each, rank.tp * each + each), kWidth);
                 }});
  out.push_back(
      {{.name = "row", .shape = {5, 24}}, same({Model::row("tp")}), [](const Sizes& mesh, const Coordinates& rank) {
         const std::uint64_t each = 24 / mesh.tp;
         return columns_of(5, 24, range(rank.tp * each, rank.tp * each + each));
       }});
  out.push_back({{.name = "norm", .shape = {kWidth}}, same(Model::replicated()), [](const Sizes&, const Coordinates&) {
                   return range(0, kWidth);
                 }});
  // 21 rows in multiples of 4 a rank: for 3 ranks padded to 24, for 4 to 32.
  out.push_back({{.name = "vocabulary", .shape = {21, kWidth}},
                 same({Model::vocabulary("tp", 4)}),
                 [](const Sizes& mesh, const Coordinates& rank) {
                   const std::uint64_t multiple = 4 * mesh.tp;
                   const std::uint64_t each = (21 + multiple - 1) / multiple * 4;
                   return rows_of(range(std::min<std::uint64_t>(21, rank.tp * each),
                                        std::min<std::uint64_t>(21, rank.tp * each + each)),
                                  kWidth);
                 }});
  // 24 heads in 12 groups: each group is two query heads, a key head and a value head of 2 rows.
  out.push_back({{.name = "qkv", .shape = {std::uint64_t{12} * 4 * 2, 3}},
                 same({Model::qkv("tp", 24, 12, 2)}),
                 [](const Sizes& mesh, const Coordinates& rank) {
                   Indices rows;
                   for (std::uint64_t group = 0; group < 12; ++group) {
                     if (group / (12 / mesh.tp) != rank.tp) continue;
                     for (std::uint64_t row = 0; row < 8; ++row) rows.push_back(group * 8 + row);
                   }
                   return rows_of(rows, 3);
                 }});
  out.push_back(
      {{.name = "glu", .shape = {48, 3}}, same({Model::glu("tp")}), [](const Sizes& mesh, const Coordinates& rank) {
         const std::uint64_t each = 24 / mesh.tp;
         Indices rows = range(rank.tp * each, rank.tp * each + each);
         for (const std::uint64_t row : range(rank.tp * each, rank.tp * each + each)) rows.push_back(24 + row);
         return rows_of(rows, 3);
       }});
  for (std::uint64_t expert = 0; expert < 4; ++expert) {
    out.push_back({{.name = "experts." + std::to_string(expert), .shape = {24, 2}},
                   same({Model::expert("ep", 4, expert), Model::column("tp")}),
                   [expert](const Sizes& mesh, const Coordinates& rank) {
                     const std::uint64_t each = 24 / mesh.tp;
                     if (expert / (4 / mesh.ep) != rank.ep) return Indices{};
                     return rows_of(range(rank.tp * each, rank.tp * each + each), 2);
                   }});
  }
  out.push_back({{.name = "stacked_experts", .shape = {4, 3}},
                 same({Model::stacked_experts("ep")}),
                 [](const Sizes& mesh, const Coordinates& rank) {
                   return rows_of(range(rank.ep * 4 / mesh.ep, (rank.ep + 1) * 4 / mesh.ep), 3);
                 }});
  for (std::uint64_t layer = 0; layer < 8; ++layer) {
    out.push_back({{.name = "layers." + std::to_string(layer), .shape = {6}},
                   same({Model::layer("pp", 8, layer, 2), Model::partition("ep")}),
                   [layer](const Sizes& mesh, const Coordinates& rank) {
                     // Two runs of layers a stage: of 2 stages, 0 has layers 0, 1, 4, 5.
                     const std::uint64_t piece = 8 / (2 * mesh.pp);
                     if (layer / piece % mesh.pp != rank.pp) return Indices{};
                     const std::uint64_t each = (6 + mesh.ep - 1) / mesh.ep;
                     return range(std::min<std::uint64_t>(6, rank.ep * each),
                                  std::min<std::uint64_t>(6, rank.ep * each + each));
                   }});
  }
  out.push_back({{.name = "tied", .shape = {3}},
                 [](const Sizes& mesh) {
                   return std::vector<Step>{Model::stage("pp", mesh.pp == 1 ? Indices{0} : Indices{0, mesh.pp - 1})};
                 },
                 [](const Sizes& mesh, const Coordinates& rank) {
                   return rank.pp == 0 || rank.pp == mesh.pp - 1 ? range(0, 3) : Indices{};
                 }});
  for (std::size_t i = 0; i < kGroupCounts.size(); ++i) {
    out.push_back({{.name = "group." + std::to_string(i), .shape = {kGroupCounts[i]}},
                   [i](const Sizes& mesh) {
                     const auto steps = Model::flat_group("tp", mesh.tp, kGroupCounts);
                     EXPECT_TRUE(steps) << steps.error().json;
                     return steps ? std::vector<Step>{(*steps)[i]} : std::vector<Step>{};
                   },
                   [i](const Sizes& mesh, const Coordinates& rank) { return group_part(mesh, rank.tp, i); }});
  }
  return out;
}

/// The value of an element: its own in the whole model.
std::vector<float> values(const Placed& placed, const Indices& elements) {
  std::vector<float> out;
  for (const std::uint64_t element : elements)
    out.push_back(static_cast<float>(std::hash<std::string>()(placed.tensor.name) % 4096 * 1024 + element));
  return out;
}

Model model_on(const Sizes& mesh, const std::vector<Placed>& placements) {
  auto model = Model::on({{"pp", mesh.pp}, {"ep", mesh.ep}, {"tp", mesh.tp}});
  EXPECT_TRUE(model) << model.error().json;
  for (const Placed& placed : placements) {
    const auto declared = model->tensor(placed.tensor, placed.steps(mesh));
    EXPECT_TRUE(declared) << placed.tensor.name << ": " << declared.error().json;
  }
  return std::move(*model);
}

void save(const std::string& directory, const Sizes& mesh, const std::vector<Placed>& placements) {
  on_rank_tables(static_cast<int>(mesh.ranks()), [&](int rank, const ckpt_comm_table& table) {
    auto run = Run::open(directory, {.comm = table});
    ASSERT_TRUE(run) << run.error().json;
    ASSERT_TRUE(run->set_model(model_on(mesh, placements)));
    auto begun = run->begin(1);
    ASSERT_TRUE(begun) << begun.error().json;
    std::vector<std::vector<float>> memory;
    for (const Placed& placed : placements)
      memory.push_back(values(placed, placed.elements(mesh, at(mesh, static_cast<std::uint64_t>(rank)))));
    for (std::size_t i = 0; i < placements.size(); ++i) {
      if (memory[i].empty()) continue;
      const auto added = begun->add(placements[i].tensor.name, std::as_bytes(std::span(memory[i])));
      EXPECT_TRUE(added) << "rank " << rank << ": " << added.error().json;
    }
    const auto pending = begun->commit();
    EXPECT_TRUE(pending) << pending.error().json;
    EXPECT_TRUE(run->close());
  });
}

void expect_loads(const std::string& directory, const Sizes& mesh, const std::vector<Placed>& placements) {
  on_rank_tables(static_cast<int>(mesh.ranks()), [&](int rank, const ckpt_comm_table& table) {
    auto run = Run::open(directory, {.comm = table, .verify_all = true});
    ASSERT_TRUE(run) << run.error().json;
    const Model model = model_on(mesh, placements);
    ASSERT_TRUE(run->set_model(model));
    std::vector<std::vector<float>> memory, wanted;
    for (const Placed& placed : placements) {
      wanted.push_back(values(placed, placed.elements(mesh, at(mesh, static_cast<std::uint64_t>(rank)))));
      memory.emplace_back(wanted.back().size(), -1.0F);
      EXPECT_EQ(model.part_bytes(placed.tensor.name, static_cast<std::uint64_t>(rank)).value_or(1),
                wanted.back().size() * sizeof(float))
          << placed.tensor.name;
    }
    std::vector<Read> reads;
    for (std::size_t i = 0; i < placements.size(); ++i) {
      if (!memory[i].empty())
        reads.push_back({.name = placements[i].tensor.name, .out = std::as_writable_bytes(std::span(memory[i]))});
    }
    const auto loaded = run->load(reads);
    ASSERT_TRUE(loaded) << loaded.error().json;
    for (std::size_t i = 0; i < placements.size(); ++i)
      EXPECT_EQ(memory[i], wanted[i]) << "rank " << rank << ", " << placements[i].tensor.name;
    EXPECT_TRUE(run->close());
  });
}

TEST(ModelPlacements, WhatOneMeshSavedAnotherLoads) {
  const TempDir directory(memory_temp_dir());
  const std::vector<Placed> placements = all_placements();
  const std::vector<Sizes> meshes{{.pp = 2, .ep = 2, .tp = 2}, {.tp = 3}, {.pp = 4}, {.ep = 4}, {.tp = 4}, {}};
  for (std::size_t i = 0; i < meshes.size(); ++i) {
    const std::string run = directory.path() + "/run" + std::to_string(i);
    save(run, meshes[i], placements);
    for (const Sizes& mesh : meshes) expect_loads(run, mesh, placements);
  }
}

TEST(ModelPlacements, WhatTheTrainersOwnRuleRefusesIsRefused) {
  const auto refused = [](const Tensor& tensor, const std::vector<Step>& steps, const std::string& reason) {
    auto model = Model::on({{"pp", 2}, {"ep", 3}, {"tp", 4}});
    ASSERT_TRUE(model);
    const auto declared = model->tensor(tensor, steps);
    ASSERT_FALSE(declared) << reason;
    EXPECT_EQ(declared.error().code, 2) << declared.error().json;
    EXPECT_NE(declared.error().json.find(reason), std::string::npos) << declared.error().json;
  };
  refused({.name = "w", .shape = {10, 8}}, {Model::column("tp")}, "10 rows or columns do not divide among 4");
  refused({.name = "w", .shape = {8, 10}}, {Model::row("tp")}, "10 rows or columns do not divide among 4");
  refused({.name = "bias", .shape = {8}}, {Model::row("tp")}, "divides dimension 1");
  refused({.name = "w", .shape = {8, 10}}, {Model::column("dp")}, "no axis 'dp'");
  refused({.name = "qkv", .shape = {32, 8}}, {Model::qkv("tp", 8, 2, 2)}, "2 groups of query heads do not divide");
  refused({.name = "qkv", .shape = {30, 8}}, {Model::qkv("tp", 8, 4, 2)}, "are 32 rows, not 30");
  refused({.name = "glu", .shape = {9}}, {Model::glu("tp")}, "9 rows cannot be split into two halves");
  refused({.name = "glu", .shape = {12}}, {Model::glu("tp")}, "6 stacked rows do not divide");
  refused({.name = "e", .shape = {12}}, {Model::expert("ep", 4, 0)}, "4 experts do not divide among 3");
  refused({.name = "e", .shape = {12}}, {Model::expert("ep", 6, 6)}, "expert 6 of 6");
  refused({.name = "l", .shape = {12}}, {Model::layer("pp", 6, 1, 2)}, "6 layers do not divide among 4");
  refused({.name = "v", .shape = {12}}, {Model::vocabulary("tp", 0)}, "multiple of 0");
  refused({.name = "v", .shape = {12}}, {Model::vocabulary("tp", 1), Model::partition("ep")},
          "only cuts into equal parts");
  refused({.name = "w", .shape = {12}}, {Model::partition("ep"), Model::column("tp")}, "must be the last step");
}

}  // namespace
}  // namespace ckpt::test
