#include "support/training_job.hpp"

#include <chrono>
#include <cstring>
#include <utility>

#include "format/model/cut.hpp"
#include "format/universal/local_array.hpp"
#include "format/universal/mesh_layout.hpp"

namespace ckpt::test {
namespace {

using universal::Layout;
using universal::TensorRow;
constexpr std::uint64_t kLayers = 4;

// Axes of the mesh, in order.
constexpr std::uint32_t kPp = 0;
constexpr std::uint32_t kDp = 1;
constexpr std::uint32_t kTp = 2;

Layout on_mesh(const JobLayout& job) {
  return {.kind = Layout::Kind::mesh, .mesh = {{{"pp", job.pp}, {"dp", job.dp}, {"tp", job.tp}}}};
}

/// Value of an element: its step, tensor and place.
float value_of(std::uint64_t step, std::uint64_t tensor, std::uint64_t element) {
  return static_cast<float>(step) * 1e6F + static_cast<float>(tensor) * 1e3F + static_cast<float>(element % 997);
}

std::uint64_t linear(const Shape& shape, const Shape& index) {
  std::uint64_t out = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) out = out * shape[d] + index[d];
  return out;
}

}  // namespace

Result<Model> model_of(const JobLayout& job) {
  std::vector<Layout> layouts;
  std::vector<TensorRow> rows;
  const auto add = [&](Tensor tensor, const Layout& layout, std::uint64_t begin = 0) {
    layouts.push_back(layout);
    rows.push_back(
        {.tensor = std::move(tensor), .layout = static_cast<std::uint32_t>(layouts.size() - 1), .begin = begin});
  };
  for (std::uint64_t stage = 0; stage < job.pp; ++stage) {
    // ZeRO 1 and 2 divide the stage's parameters as one flat group, of the tensor-parallel slices.
    struct Parameter {
      std::string name;
      Shape shape;
      std::vector<Layout::Cut> cuts;
    };
    std::vector<Parameter> parameters;
    for (std::uint64_t layer = stage; layer < kLayers; layer += job.pp) {
      const std::string prefix = "layers." + std::to_string(layer) + ".";
      using Rule = Layout::Cut::Rule;
      parameters.push_back({prefix + "up", {24, 7}, {{.dim = 0, .axes = {kTp}, .rule = Rule::even}}});
      parameters.push_back({prefix + "down", {7, 24}, {{.dim = 1, .axes = {kTp}, .rule = Rule::even}}});
      parameters.push_back(
          {prefix + "glu", {24, 5}, {{.dim = 0, .axes = {kTp}, .rule = Rule::even, .segments = {12, 12}}}});
      parameters.push_back({prefix + "norm", {7}, {}});
    }
    std::uint64_t group = 0;
    for (const Parameter& parameter : parameters)
      group += volume(parameter.shape) / (parameter.cuts.empty() ? 1 : job.tp);
    CKPT_TRY(const cut::FlatGroup flat, cut::flat_group({.element_count = group, .part_count = job.dp}));
    std::uint64_t begin = 0;
    for (const Parameter& parameter : parameters) {
      Layout weight = on_mesh(job);
      weight.at = {{.axis = kPp, .indices = {stage}}};
      weight.cuts = parameter.cuts;
      const std::uint64_t local = volume(parameter.shape) / (parameter.cuts.empty() ? 1 : job.tp);
      Layout slot = weight;
      if (job.zero == 1 || job.zero == 2) slot.flat = Layout::Flat{.axes = {kDp}, .part = flat.part_elements};
      if (job.zero == 3) slot.flat = Layout::Flat{.axes = {kDp}, .part = (local + job.dp - 1) / job.dp};
      if (job.zero == 3) weight.flat = slot.flat;
      add({.name = parameter.name, .dtype = Dtype::f32, .shape = parameter.shape}, weight);
      add({.name = "optimizer.state." + parameter.name + ".exp_avg",
           .dtype = Dtype::f32,
           .shape = parameter.shape,
           .role = Role::slot,
           .parameter = parameter.name,
           .slot = "exp_avg"},
          slot, job.zero == 1 || job.zero == 2 ? begin : 0);
      begin += local;
    }
  }
  add({.name = "scale", .dtype = Dtype::f32, .shape = {}, .role = Role::buffer}, on_mesh(job));
  // Large enough for replicas to share the writing of it.
  add({.name = "table", .dtype = Dtype::f32, .shape = {64, 5000}, .role = Role::buffer}, on_mesh(job));
  return Model::make(std::move(layouts), std::move(rows));
}

std::vector<std::byte> part_of(const Model& model, const TensorRow& row, std::uint64_t rank, std::uint64_t step) {
  const auto held = universal::held_chunks(model.layouts[row.layout], row.tensor, row.begin, rank);
  if (!held) return {};
  const std::uint64_t tensor = std::hash<std::string>{}(row.tensor.name) % 1000;
  std::vector<float> values;
  for (const Chunk& chunk : *held) {
    std::vector<Box> boxes;
    split_flat(chunk.box, chunk.flat.value_or(Extent{0, volume(chunk.box.size)}), boxes);
    for (const Box& box : boxes) {
      Shape index = box.offset;
      for (std::uint64_t n = 0; n < volume(box.size); ++n) {
        std::uint64_t rest = n;
        for (std::size_t d = box.size.size(); d-- > 0;) {
          index[d] = box.offset[d] + rest % box.size[d];
          rest /= box.size[d];
        }
        values.push_back(value_of(step, tensor, linear(row.tensor.shape, index)));
      }
    }
  }
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

Result<> add_all(Run& run, std::uint64_t step, std::vector<std::vector<std::byte>>& memory) {
  const auto rank = static_cast<std::uint64_t>(run.rank());
  for (const TensorRow& row : run.model().rows) {
    const auto& part = memory.emplace_back(part_of(run.model(), row, rank, step));
    CKPT_CHECK(run.saver().add({.name = row.tensor.name, .memory = {.data = part.data(), .bytes = part.size()}}));
  }
  const auto& blob = memory.emplace_back(std::vector<std::byte>(17, static_cast<std::byte>(rank)));
  return run.saver().add(
      {.described =
           Tensor{
               .name = "rng@" + std::to_string(rank), .dtype = Dtype::u8, .shape = {blob.size()}, .role = Role::blob},
       .chunk = {.box = Box::whole({blob.size()})},
       .memory = {.data = blob.data(), .bytes = blob.size()}});
}

Result<> save_step(Run& run, std::uint64_t step) {
  std::vector<std::vector<std::byte>> memory;
  CKPT_CHECK(run.begin(step));
  CKPT_CHECK(add_all(run, step, memory));
  CKPT_TRY(const auto pending, run.commit({{"metric.loss", "1.5"}}));
  for (auto& part : memory) std::fill(part.begin(), part.end(), std::byte{0xEE});  // must not reach the file
  return run.saver().wait(pending, std::chrono::minutes(2));
}

Result<Run::Loaded> load_parts(Run& run) {
  const auto rank = static_cast<std::uint64_t>(run.rank());
  std::vector<std::vector<std::byte>> memory;
  std::vector<NamedRead> reads;
  for (const TensorRow& row : run.model().rows) {
    memory.emplace_back(part_of(run.model(), row, rank, 0).size());
    reads.push_back({.name = row.tensor.name, .out = memory.back().data(), .bytes = memory.back().size()});
  }
  CKPT_TRY(Run::Loaded loaded, run.load(reads, false));
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (memory[i] != part_of(run.model(), run.model().rows[i], rank, loaded.step)) {
      return fail(Errc::internal, reads[i].name + ": other values than were saved");
    }
  }
  return loaded;
}

Result<std::uint64_t> load_all(Run& run) {
  CKPT_TRY(const Run::Loaded loaded, load_parts(run));
  return loaded.step;
}

void with_runs(const JobLayout& layout, const std::string& run_directory, const Run::Options& options,
               const std::function<std::unique_ptr<Io>(std::size_t rank)>& io,
               const std::function<void(std::size_t rank, Result<std::unique_ptr<Run>> run)>& body) {
  const ThreadRanks ranks(static_cast<int>(layout.ranks()));
  ranks.run_tables([&](const ckpt_comm_table& table) {
    auto comm = std::make_unique<Comm>(table);
    const auto rank = static_cast<std::size_t>(comm->rank());
    auto run = Run::open(io(rank), std::move(comm), run_directory, options);
    if (run) {
      auto model = model_of(layout);
      if (!model) {
        run = fail(model.error());
      } else {
        (*run)->set_model(std::move(*model));
      }
    }
    body(rank, std::move(run));
  });
}

}  // namespace ckpt::test
