#include "format/naming/segments.hpp"

#include <utility>

#include "format/checked.hpp"

namespace ckpt::naming {
namespace {

constexpr std::uint64_t kMostGroups = std::uint64_t{1} << 12;

class Cutter {
 public:
  Cutter(const Rule& rule, const Settings& settings) : rule_(rule), settings_(settings) {}

  Result<Cutting> run() {
    for (const std::string& size : rule_.shape) {
      CKPT_TRY(const std::uint64_t value, evaluate(size, settings_));
      out_.megatron.push_back(value);
    }
    CKPT_CHECK(checked_volume(out_.megatron));
    switch (rule_.form) {
      case Form::same:
      case Form::vocab:
        add_tensor(out_.megatron[0]);
        add(0, 0, 0, out_.megatron[0]);
        break;
      case Form::glu: {
        if (out_.megatron[0] % 2 != 0) return fail(Errc::refused, "its halves are not equal");
        const std::uint64_t half = out_.megatron[0] / 2;
        for (const std::size_t which : {0U, 1U}) {
          add_tensor(half);
          add(which, which * half, 0, half);
        }
        break;
      }
      case Form::qkv:
      case Form::fused:
        CKPT_CHECK(cut_groups());
        break;
    }
    if (rule_.is_transposed) transpose();
    return std::move(out_);
  }

 private:
  void add_tensor(std::uint64_t rows) {
    out_.hf.push_back(out_.megatron);
    out_.hf.back()[0] = rows;
  }

  /// Rows of both sides.
  void add(std::size_t tensor, std::uint64_t megatron, std::uint64_t hf, std::uint64_t rows) {
    Segment segment{.megatron = Box::whole(out_.megatron), .tensor = tensor, .hf = Box::whole(out_.hf[tensor])};
    segment.megatron.offset[0] = megatron;
    segment.hf.offset[0] = hf;
    segment.megatron.size[0] = segment.hf.size[0] = rows;
    out_.segments.push_back(std::move(segment));
  }

  Result<> cut_groups() {
    CKPT_TRY(const std::uint64_t groups, evaluate("g", settings_));
    CKPT_TRY(const std::uint64_t queries, evaluate("n / g d", settings_));
    CKPT_TRY(const std::uint64_t head, evaluate("d", settings_));
    CKPT_TRY(const std::uint64_t rows, evaluate("(n + 2g) d", settings_));
    if (groups == 0 || groups > kMostGroups || rows != out_.megatron[0])
      return fail(Errc::refused, std::to_string(groups) + " groups of queries do not give its rows");
    const bool is_fused = rule_.form == Form::fused;
    if (is_fused) {
      add_tensor(rows);
    } else {
      for (const std::uint64_t each : {groups * queries, groups * head, groups * head}) add_tensor(each);
    }
    for (std::uint64_t group = 0; group < groups; ++group) {
      std::uint64_t at = group * (queries + 2 * head);
      std::uint64_t first = 0;  // row of the fused tensor where the queries, keys or values begin
      for (const std::size_t which : {0U, 1U, 2U}) {
        const std::uint64_t count = which == 0 ? queries : head;
        add(is_fused ? 0 : which, at, first + group * count, count);
        at += count;
        if (is_fused) first += groups * count;
      }
    }
    return {};
  }

  void transpose() {
    const auto swap_first = [](Shape& shape) { std::swap(shape[0], shape[1]); };
    for (Shape& shape : out_.hf) swap_first(shape);
    for (Segment& segment : out_.segments) {
      swap_first(segment.hf.offset);
      swap_first(segment.hf.size);
    }
  }

  const Rule& rule_;
  const Settings& settings_;
  Cutting out_{};
};

}  // namespace

Result<Cutting> cutting_of(const Rule& rule, const Settings& settings) {
  return Cutter(rule, settings).run();
}

}  // namespace ckpt::naming
