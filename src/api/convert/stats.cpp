#include "api/convert/stats.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "api/convert/check.hpp"
#include "api/convert/only_rule.hpp"
#include "api/convert/pool.hpp"
#include "api/convert/progress_names.hpp"
#include "api/convert/tensor_values.hpp"
#include "convert/open_source.hpp"
#include "engine/run/run.hpp"
#include "format/checked.hpp"
#include "format/model/cast.hpp"
#include "format/model/finding_error.hpp"
#include "format/model/number.hpp"
#include "format/text/error_context.hpp"
#include "format/text/nearest.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kBlock = 1024;  // elements that are widened at once

bool is_complex(Dtype dtype) {
  return dtype == Dtype::c64;
}

/// Of some elements. `mean` and `scatter` (the sum of squares about it) of several parts join without the loss of digits
/// that a plain sum of squares has. source: Chan, Golub, LeVeque, Updating formulae for computing sample variances (1979)
struct Part {
  std::uint64_t finite = 0;
  std::uint64_t zeros = 0;
  std::uint64_t nan = 0;
  std::uint64_t infinite = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  long double mean = 0;  // long: squares of F64 exceed a double, or vanish in it
  long double scatter = 0;
  long double squares = 0;

  void add(const Part& other) {
    zeros += other.zeros;
    nan += other.nan;
    infinite += other.infinite;
    if (other.finite == 0) return;
    min = std::min(min, other.min);
    max = std::max(max, other.max);
    squares += other.squares;
    const auto mine = static_cast<long double>(finite);
    const auto theirs = static_cast<long double>(other.finite);
    const long double apart = other.mean - mean;
    finite += other.finite;
    mean += apart * theirs / (mine + theirs);
    scatter += other.scatter + apart * apart * mine * theirs / (mine + theirs);
  }
};

/// Of real numbers, whose squares a Sum holds.
template <class Sum>
Part part_of(std::span<const double> values) {
  Part out;
  Sum sum = 0;
  Sum squares = 0;
  Sum scatter = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) {
      ++(std::isnan(value) ? out.nan : out.infinite);
      continue;
    }
    ++out.finite;
    out.zeros += value == 0 ? 1U : 0U;
    out.min = std::min(out.min, value);
    out.max = std::max(out.max, value);
    sum += value;
    squares += static_cast<Sum>(value) * value;
  }
  if (out.finite == 0) return out;
  const Sum mean = sum / static_cast<Sum>(out.finite);
  for (const double value : values)
    if (std::isfinite(value)) scatter += (value - mean) * (value - mean);
  out.mean = mean;
  out.squares = squares;
  out.scatter = scatter;
  return out;
}

/// Of complex numbers: only what does not ask for an order.
Part part_of_complex(Dtype dtype, std::span<const std::byte> bytes) {
  Part out;
  for (std::size_t i = 0; i < bytes.size() / unit_bytes(dtype); ++i) {
    const std::complex<double> value = number_at(dtype, bytes, i);
    if (std::isnan(value.real()) || std::isnan(value.imag())) {
      ++out.nan;
    } else if (std::isinf(value.real()) || std::isinf(value.imag())) {
      ++out.infinite;
    } else {
      ++out.finite;
      out.zeros += value == 0.0 ? 1U : 0U;
      out.squares += std::norm(value);
    }
  }
  return out;
}

Part part_of(Dtype dtype, std::span<const std::byte> bytes) {
  if (is_complex(dtype)) return part_of_complex(dtype, bytes);
  const std::size_t unit = unit_bytes(dtype);
  const bool narrow = dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
  std::array<float, kBlock> floats{};
  std::array<double, kBlock> values{};
  Part out;
  for (std::size_t begin = 0; begin < bytes.size() / unit; begin += kBlock) {
    const std::size_t count = std::min(kBlock, bytes.size() / unit - begin);
    const std::span<const std::byte> block = bytes.subspan(begin * unit, count * unit);
    if (narrow) {
      CastCounts ignored;
      cast(dtype, block.data(), Dtype::f32, reinterpret_cast<std::byte*>(floats.data()), count, ignored);
      std::copy_n(floats.begin(), count, values.begin());
    } else {
      for (std::size_t i = 0; i < count; ++i) values[i] = number_at(dtype, block, i).real();
    }
    const std::span<const double> numbers = std::span(values).first(count);
    out.add(dtype == Dtype::f64 ? part_of<long double>(numbers) : part_of<double>(numbers));
  }
  return out;
}

/// What the leaves of a run hold, by tensor. The parts of a tensor are joined in the order of its leaves, in whatever
/// order they come: sums of floating numbers depend on it.
class Parts {
 public:
  explicit Parts(const Plan& plan) : plan_(plan) {}

  void take(std::uint64_t leaf, std::span<const std::byte> bytes) {
    visit_tensors(plan_, leaf, bytes, [&](const Placement& placement, std::span<const std::byte> values) {
      const Part part = part_of(placement.dtype, values);
      const std::lock_guard lock(mutex_);
      parts_[placement.tensor].emplace(leaf, part);
    });
  }
  Part of(std::uint32_t tensor) const {
    Part out;
    if (const auto found = parts_.find(tensor); found != parts_.end())
      for (const auto& [leaf, part] : found->second) out.add(part);
    return out;
  }

 private:
  const Plan& plan_;
  std::mutex mutex_{};
  std::map<std::uint32_t, std::map<std::uint64_t, Part>> parts_{};  // guarded by mutex_
};

TensorStats stats_of(const Tensor& tensor, const Part& part, std::uint64_t repeats) {
  TensorStats out{.name = tensor.name,
                  .dtype = tensor.true_dtype.empty() ? std::string(dtype_name(tensor.dtype)) : tensor.true_dtype,
                  .shape = tensor.shape,
                  .elements = volume(tensor.shape)};
  if (is_packed(tensor.dtype)) return out;
  out.zeros = part.zeros * repeats;
  out.nan = part.nan * repeats;
  out.infinite = part.infinite * repeats;
  out.norm = static_cast<double>(std::sqrt(part.squares * static_cast<long double>(repeats)));
  if (part.finite == 0 || is_complex(tensor.dtype)) return out;
  out.moments = TensorStats::Moments{
      .min = part.min,
      .max = part.max,
      .mean = static_cast<double>(part.mean),
      .deviation = static_cast<double>(std::sqrt(part.scatter / static_cast<long double>(part.finite)))};
  return out;
}

tl::unexpected<Error> none_wanted(const Map& map, const StatsRequest& request) {
  std::vector<std::string> names;
  for (const Tensor& tensor : map.tensors) names.push_back(tensor.name);
  const auto near = request.only.empty() ? std::nullopt : nearest(request.only.front(), names);
  return fail({.code = Errc::not_found,
               .message = request.only.empty() ? request.path + ": no tensors"
                                               : fmt::format("{}: no tensor matches --only {}", request.path,
                                                             fmt::join(request.only, ", ")),
               .hint = near ? fmt::format("did you mean '{}'?", *near) : ""});
}

/// The tensors that are asked for, without bytes that are no tensor's.
std::vector<std::uint32_t> choose(const Map& map, const OnlyRule& wanted) {
  std::unordered_set<std::uint32_t> left_out;
  for (const Extra& extra : map.extras) left_out.insert(extra.tensor);
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < map.tensors.size(); ++i) {
    const Tensor& tensor = map.tensors[i];
    if (tensor.role != Role::blob && !left_out.contains(i) && wanted.takes(tensor.role, tensor.name)) out.push_back(i);
  }
  return out;
}

/// Small tensors share a leaf. Nothing of packed ones is read.
struct Layout {
  std::vector<TargetFile> files{};
  std::map<std::uint32_t, std::uint64_t> repeats{};  ///< of tensors that repeat their elements
};
Result<Layout> lay_out(const Map& map, const std::vector<std::uint32_t>& chosen) {
  Layout out;
  for (const std::uint32_t i : chosen) {
    const Tensor& tensor = map.tensors[i];
    if (is_packed(tensor.dtype)) continue;
    Placement placement{.tensor = i, .dtype = tensor.dtype};
    CKPT_TRY(placement.bytes, tensor_bytes(tensor.dtype, tensor.shape));
    if (placement.bytes == 0) continue;
    CKPT_TRY(placement.chunk, without_repeats(map, i));
    if (placement.chunk) {
      out.repeats[i] = volume(tensor.shape) / placement.chunk->volume();
      placement.bytes = placement.chunk->volume() * unit_bytes(tensor.dtype);
    }
    if (out.files.empty() || round_up(out.files.back().bytes, 8) + placement.bytes > kLeafBytes)
      out.files.emplace_back();
    TargetFile& file = out.files.back();
    placement.offset = round_up(file.bytes, 8);
    file.bytes = placement.offset + placement.bytes;
    file.placements.push_back(std::move(placement));
  }
  return out;
}

Result<StatsReport> stats_of(Session& session, const Source& source, const StatsRequest& request) {
  const Map& map = source.map;
  const std::vector<std::uint32_t> chosen = choose(map, OnlyRule(request.only));
  if (chosen.empty()) return none_wanted(map, request);
  if (auto covered = check_coverage(map, chosen); !covered)
    return fail(with_file(std::move(covered).error(), source.root));
  CKPT_TRY(Layout layout, lay_out(map, chosen));
  CKPT_TRY(const Plan plan, Plan::make(map, std::move(layout.files)));
  Parts parts(plan);
  if (plan.totals().leaves != 0) {
    CKPT_TRY(RunOptions options, run_options(session, plan));
    options.source_root = source.root;
    options.deliver = [&](std::uint64_t leaf, const Hash128&, std::span<const std::byte> bytes) -> Result<> {
      parts.take(leaf, bytes);
      return {};
    };
    const ProgressNames names(plan);
    if (session.progress)
      options.progress = [&](std::uint64_t done, std::uint64_t total) {
        session.progress({"stats", done, total, names.at(done)});
      };
    const auto solo = Comm::solo();
    CKPT_CHECK(run(plan, session.io, *solo, options));
  }
  StatsReport out{.format = map.format, .bytes = plan.totals().target_bytes, .findings = map.findings};
  for (const std::uint32_t i : chosen) {
    const auto repeats = layout.repeats.find(i);
    out.tensors.push_back(stats_of(map.tensors[i], parts.of(i), repeats == layout.repeats.end() ? 1 : repeats->second));
  }
  return out;
}

}  // namespace

Result<StatsReport> stats(Session& session, const StatsRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  CKPT_TRY(
      const Source source,
      open_source(
          session.io, request.path, request.from,
          {.metadata_limit = session.memory_bytes, .rules = session.rules, .stop = session.stop, .saved_trees = true}));
  for (const Finding& finding : source.map.findings)
    if (finding.severity == Severity::incomplete || finding.severity == Severity::damage)
      return fail(
          as_error(finding, request.path, finding.severity == Severity::damage ? Errc::corrupt : Errc::incomplete));
  CKPT_TRY(StatsReport out, stats_of(session, source, request));
  CKPT_CHECK(source.check_unchanged());
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace ckpt
