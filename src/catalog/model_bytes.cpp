#include "catalog/model_bytes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "format/text/nearest.hpp"

namespace ckpt::catalog {
namespace {

struct Preset {
  std::string name;
  StateBytes state;
};

const std::array<Preset, 5>& presets() {
  static const std::array<Preset, 5> all{{
      {"mixed", {}},
      {"weights", {.master = 0, .moments = 0}},
      {"fp32", {.weights = 4, .master = 0, .moments = 8, .gradients = 4}},
      {"mixed-8bit", {.moments = 2}},
      {"mixed-bf16-moments", {.moments = 4}},
  }};
  return all;
}

double count(std::uint64_t ranks) {
  return static_cast<double>(std::max<std::uint64_t>(ranks, 1));
}

MemoryBytes row_of(double slice, const StateBytes& state, double data, int stage, Offload offload) {
  const double optimizer = slice * state.optimizer() / (stage >= 1 ? data : 1);
  const double gradients = slice * state.gradients / (stage >= 2 ? data : 1);
  const double weights = slice * state.weights / (stage >= 3 ? data : 1);
  MemoryBytes out{.zero_stage = stage, .offload = offload};
  // In stage 1 every rank makes all gradients, but only those of its part of the optimizer leave the GPU.
  const double moved = stage >= 2 ? gradients : gradients / data;
  switch (offload) {
    case Offload::none:
      out.gpu = weights + gradients + optimizer;
      break;
    case Offload::optimizer_host:
      out.gpu = weights + (gradients - moved);
      out.host = optimizer + moved;
      break;
    case Offload::optimizer_nvme:
      out.gpu = weights;
      out.host = moved;
      out.nvme = optimizer;
      break;
    case Offload::all_host:
      out.host = weights + gradients + optimizer;
      break;
    case Offload::all_nvme:
      out.host = gradients;
      out.nvme = weights + optimizer;
      break;
  }
  return out;
}

}  // namespace

Result<StateBytes> state_preset(std::string_view name) {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset.state;
    names.push_back(preset.name);
  }
  const auto near = nearest(name, names);
  return fail({.code = Errc::usage,
               .message = fmt::format("unknown precision '{}'", name),
               .hint = near ? fmt::format("did you mean '{}'?", *near)
                            : "known: mixed, weights, fp32, mixed-8bit, mixed-bf16-moments"});
}

DiskBytes disk_bytes(double parameters, const StateBytes& state, const Sharding& sharding) {
  DiskBytes out{.weights = parameters * state.weights, .optimizer = parameters * state.optimizer()};
  out.total = out.weights + out.optimizer;
  const double model = count(sharding.tensor) * count(sharding.pipeline);
  const double data = count(sharding.data);
  const double even = out.total / (model * data);
  out.largest_rank = out.smallest_rank = even;
  if (sharding.replica_parallel || sharding.zero_stage >= 3 || data == 1) return out;
  if (sharding.zero_stage == 0) {
    out.largest_rank = out.total / model;
    out.smallest_rank = 0;
  } else {
    out.smallest_rank = out.optimizer / (model * data);
    out.largest_rank = out.smallest_rank + out.weights / model;
  }
  return out;
}

const char* offload_name(Offload offload) {
  static constexpr std::array<const char*, 5> names{"none", "optimizer to host", "optimizer to NVMe",
                                                    "optimizer and parameters to host",
                                                    "optimizer and parameters to NVMe"};
  return names[static_cast<std::size_t>(offload)];
}

std::vector<MemoryBytes> memory_table(double parameters, const StateBytes& state, const Sharding& sharding) {
  const double slice = parameters / (count(sharding.tensor) * count(sharding.pipeline));
  const double data = count(sharding.data);
  std::vector<MemoryBytes> out;
  for (int stage = 0; stage <= 3; ++stage) out.push_back(row_of(slice, state, data, stage, Offload::none));
  for (int stage = 1; stage <= 3; ++stage) out.push_back(row_of(slice, state, data, stage, Offload::optimizer_host));
  for (const Offload offload : {Offload::all_host, Offload::optimizer_nvme, Offload::all_nvme})
    out.push_back(row_of(slice, state, data, 3, offload));
  return out;
}

bool fits(const MemoryBytes& need, const RankMemory& have) {
  return need.gpu <= have.gpu && need.host <= have.host && need.nvme <= have.nvme;
}

Result<double> parse_parameters(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != '_' && c != ' ') digits.push_back(c);
  }
  double scale = 1;
  if (!digits.empty()) {
    static constexpr std::string_view letters = "KMBT";
    const std::size_t at = letters.find(static_cast<char>(std::toupper(static_cast<unsigned char>(digits.back()))));
    if (at != std::string_view::npos) {
      scale = std::pow(1000.0, static_cast<double>(at + 1));
      digits.pop_back();
    }
  }
  double value = 0;
  const char* end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, value, std::chars_format::fixed);
  value = std::round(value * scale);
  if (read.ec != std::errc() || read.ptr != end || !(value >= 1 && value <= 1e18)) {
    return fail({.code = Errc::usage,
                 .message = fmt::format("'{}' is not a number of parameters", text),
                 .hint = "write 7B, 1.3B, 350M"});
  }
  return value;
}

}  // namespace ckpt::catalog
