#include "api/convert/measure.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "api/convert/pool.hpp"
#include "engine/run/run.hpp"
#include "format/checked.hpp"
#include "format/model/number.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kMostBatchBytes = std::uint64_t{64} << 20;  // of one side, held in memory
constexpr std::uint64_t kBatchShare = 16;                           // of the memory limit

/// Elements of a pair that fit into one leaf.
struct Piece {
  std::size_t pair = 0;  ///< index into the pairs
  Extent elements{};
};

bool is_number(Dtype dtype) {
  return !is_packed(dtype);
}

/// Exact for integers, also where no double holds them.
template <class Number>
long double whole_distance(std::span<const std::byte> left, std::span<const std::byte> right, std::size_t index) {
  Number a{};
  Number b{};
  std::memcpy(&a, left.data() + index * sizeof(Number), sizeof(Number));
  std::memcpy(&b, right.data() + index * sizeof(Number), sizeof(Number));
  const auto high = static_cast<std::uint64_t>(std::max(a, b));
  return static_cast<long double>(high - static_cast<std::uint64_t>(std::min(a, b)));
}

/// std::abs of complex numbers takes five times as long, and most are real.
double size_of(std::complex<double> value) {
  return value.imag() == 0 ? std::abs(value.real()) : std::abs(value);
}

/// |a - b| of the elements, whose values are `a` and `b`; finite for finite numbers.
template <class Wide>
Wide distance_of(Dtype dtype, std::span<const std::byte> left, std::span<const std::byte> right, std::size_t index,
                 std::complex<double> a, std::complex<double> b) {
  if (dtype == Dtype::i64) return static_cast<Wide>(whole_distance<std::int64_t>(left, right, index));
  if (dtype == Dtype::u64) return static_cast<Wide>(whole_distance<std::uint64_t>(left, right, index));
  if (dtype == Dtype::f64) return std::abs(static_cast<Wide>(a.real()) - static_cast<Wide>(b.real()));
  return size_of(a - b);
}

bool is_nan(std::complex<double> value) {
  return std::isnan(value.real()) || std::isnan(value.imag());
}

/// `Wide` holds distances of the type, and their squares.
template <class Wide>
void measure(Dtype dtype, std::span<const std::byte> left, std::span<const std::byte> right,
             const std::optional<Tolerance>& tolerance, ValueDifference& out) {
  const std::size_t unit = unit_bytes(dtype);
  const std::size_t count = left.size() / unit;
  const bool numbers = is_number(dtype);
  out.elements += count;
  Wide squares = 0;
  Wide other_squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool equal = std::memcmp(left.data() + i * unit, right.data() + i * unit, unit) == 0;
    const std::complex<double> b = numbers ? number_at(dtype, right, i) : 0;
    const double size_b = size_of(b);
    if (std::isfinite(size_b)) other_squares += static_cast<Wide>(size_b) * size_b;
    if (equal) continue;
    ++out.differing;
    if (!numbers) {
      ++out.beyond;
      continue;
    }
    const std::complex<double> a = number_at(dtype, left, i);
    const bool both_nan = is_nan(a) && is_nan(b);
    const Wide distance = distance_of<Wide>(dtype, left, right, i, a, b);
    const bool within =
        tolerance && (both_nan || distance == 0 ||
                      (std::isfinite(size_b) && distance <= tolerance->absolute + tolerance->relative * size_b));
    if (!within) ++out.beyond;
    if (is_nan(a) != is_nan(b)) ++out.one_is_nan;
    if (is_nan(a) || is_nan(b) || distance == 0) continue;  // 0 and -0 are different bits
    squares += distance * distance;
    out.max_absolute = std::max(out.max_absolute, static_cast<double>(distance));
    const Wide size = std::max<Wide>(size_of(a), size_b);
    out.max_relative = std::max(out.max_relative, std::isinf(size) ? 1 : static_cast<double>(distance / size));
  }
  out.squares += squares;
  out.other_squares += other_squares;
}

Result<std::vector<TargetFile>> lay_out(const Map& map, bool is_left, std::span<const TensorPair> pairs,
                                        std::span<const Piece> pieces) {
  std::vector<TargetFile> files;
  for (const Piece& piece : pieces) {
    const TensorPair& pair = pairs[piece.pair];
    const std::uint32_t tensor = is_left ? pair.left : pair.right;
    TargetFile& file = files.emplace_back();
    Placement placement{.tensor = tensor, .dtype = pair.as};
    if (is_packed(pair.as)) {
      CKPT_TRY(placement.bytes, tensor_bytes(pair.as, map.tensors[tensor].shape));
    } else {
      placement.bytes = piece.elements.size() * unit_bytes(pair.as);
      placement.chunk = Chunk{Box::whole(map.tensors[tensor].shape), piece.elements};
    }
    file.bytes = placement.bytes;
    file.placements.push_back(std::move(placement));
  }
  return files;
}

Result<> read_side(Session& session, const Side& side, std::vector<TargetFile> files,
                   const std::function<void(std::size_t piece, std::span<const std::byte>)>& take) {
  CKPT_TRY(const Plan plan, Plan::make(side.map, std::move(files)));
  CKPT_TRY(RunOptions options, run_options(session, plan));
  options.source_root = side.root;
  options.deliver = [&](std::uint64_t leaf, const Hash128&, std::span<const std::byte> bytes) -> Result<> {
    take(static_cast<std::size_t>(leaf), bytes);  // each piece is one leaf
    return {};
  };
  const auto solo = Comm::solo();
  CKPT_CHECK(run(plan, session.io, *solo, options));
  return {};
}

}  // namespace

void ValueDifference::add(const ValueDifference& part) {
  elements += part.elements;
  differing += part.differing;
  one_is_nan += part.one_is_nan;
  max_absolute = std::max(max_absolute, part.max_absolute);
  max_relative = std::max(max_relative, part.max_relative);
  squares += part.squares;
  other_squares += part.other_squares;
  beyond += part.beyond;
}

double ValueDifference::norm() const {
  if (squares == 0) return 0;
  return other_squares == 0 ? std::numeric_limits<double>::infinity()
                            : static_cast<double>(std::sqrt(squares / other_squares));
}

void measure_values(Dtype dtype, std::span<const std::byte> left, std::span<const std::byte> right,
                    const std::optional<Tolerance>& tolerance, ValueDifference& out) {
  const bool wide = dtype == Dtype::f64 || dtype == Dtype::i64 || dtype == Dtype::u64;
  wide ? measure<long double>(dtype, left, right, tolerance, out) : measure<double>(dtype, left, right, tolerance, out);
}

Result<std::vector<ValueDifference>> measure_differences(Session& session, const Side& left, const Side& right,
                                                         std::span<const TensorPair> pairs,
                                                         const std::optional<Tolerance>& tolerance,
                                                         const std::string& phase) {
  std::vector<Piece> pieces;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::uint64_t elements = volume(left.map.tensors[pairs[i].left].shape);
    const std::uint64_t step = is_packed(pairs[i].as) ? elements : kLeafBytes / unit_bytes(pairs[i].as);
    CKPT_TRY(const std::uint64_t bytes, tensor_bytes(pairs[i].as, left.map.tensors[pairs[i].left].shape));
    if (is_packed(pairs[i].as) && bytes > kLeafBytes) continue;  // cannot be cut
    for (std::uint64_t begin = 0; begin < elements; begin += step)
      pieces.push_back({.pair = i, .elements = {begin, std::min(begin + step, elements)}});
    total += bytes;
  }
  const std::uint64_t most = std::max(kLeafBytes, std::min(kMostBatchBytes, session.memory_bytes / kBatchShare));
  std::vector<ValueDifference> out(pairs.size());
  std::uint64_t done = 0;
  for (std::size_t first = 0; first < pieces.size();) {
    std::size_t end = first;
    std::uint64_t bytes = 0;
    for (; end < pieces.size() && (end == first || bytes < most); ++end)
      bytes += pieces[end].elements.size() * unit_bytes(pairs[pieces[end].pair].as);
    const std::span batch(pieces.data() + first, end - first);
    std::vector<std::vector<std::byte>> held(batch.size());
    std::vector<ValueDifference> measured(batch.size());
    CKPT_TRY(auto left_files, lay_out(left.map, true, pairs, batch));
    CKPT_CHECK(read_side(session, left, std::move(left_files), [&](std::size_t piece, std::span<const std::byte> read) {
      held[piece].assign(read.begin(), read.end());
    }));
    CKPT_TRY(auto right_files, lay_out(right.map, false, pairs, batch));
    CKPT_CHECK(
        read_side(session, right, std::move(right_files), [&](std::size_t piece, std::span<const std::byte> read) {
          measure_values(pairs[batch[piece].pair].as, held[piece], read, tolerance, measured[piece]);
        }));
    for (std::size_t i = 0; i < batch.size(); ++i) out[batch[i].pair].add(measured[i]);
    first = end;
    done += bytes;
    if (session.progress) session.progress({phase, std::min(done, total), total});
  }
  return out;
}

std::optional<std::string> missing_prefix(const std::vector<std::string>& here, const std::vector<std::string>& there) {
  const std::vector<std::string>& few = here.size() <= there.size() ? here : there;
  const std::vector<std::string>& many = here.size() <= there.size() ? there : here;
  if (few.empty()) return std::nullopt;
  const std::unordered_set<std::string_view> known(many.begin(), many.end());
  for (const std::string& other : many) {
    const std::string& first = few.front();
    const std::string& longer = other.size() > first.size() ? other : first;
    const std::string& shorter = other.size() > first.size() ? first : other;
    if (longer.size() == shorter.size() || !longer.ends_with("." + shorter)) continue;
    const std::string prefix = longer.substr(0, longer.size() - shorter.size());
    const bool few_lack_it = &longer == &other;
    const bool all = std::ranges::all_of(few, [&](const std::string& name) {
      if (few_lack_it) return known.contains(prefix + name);
      return name.starts_with(prefix) && known.contains(std::string_view(name).substr(prefix.size()));
    });
    if (all) return prefix;
  }
  return std::nullopt;
}

}  // namespace ckpt
