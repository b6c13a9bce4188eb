#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "catalog/checkpoint.hpp"
#include "format/result.hpp"

namespace ckpt::catalog {

/// Texts that the catalog knows of a checkpoint, besides its run, id and state.
inline constexpr std::array<std::string_view, 3> kAttributes{"format", "kind", "tier"};

/// The `where` of a rule: "kind == 'weights' and (step >= 1000 or tag == 'eval')".
///
/// Comparisons == != < <= > >= of a name with a literal, joined by and, or, not and parentheses. Names: run, id, state,
/// tag, format, kind, tier (texts in quotes, == and != only); step, series, generation (whole numbers); bytes (a size:
/// 10GiB); age (a time: 7d); metric.NAME (a number). A value that a checkpoint lacks, or NaN, equals nothing: == and
/// the order comparisons are false, != is true.
class Filter {
 public:
  /// errors   usage, with the column in the text
  static Result<Filter> parse(std::string_view text);

  bool matches(const Checkpoint& checkpoint, Time now) const;
  const std::string& text() const { return text_; }
  /// NAME of each metric.NAME in it.
  std::vector<std::string> metrics() const;
  bool operator==(const Filter& other) const { return text_ == other.text_; }

 private:
  enum class Op : std::uint8_t { equal, unequal, less, less_equal, greater, greater_equal, both, either, negate, open };
  struct Instruction {  ///< in postfix order
    Op op = Op::equal;
    std::string name{};
    std::string literal{};
    double number = 0;
  };
  class Compiler;

  static bool test(const Instruction& instruction, const Checkpoint& checkpoint, Time now);

  std::string text_;
  std::vector<Instruction> program_;
};

/// Names that groups and filters use: run, id, state, series, step or one of kAttributes; "" if unknown.
std::string attribute_of(const Checkpoint& checkpoint, std::string_view name);

}  // namespace ckpt::catalog
