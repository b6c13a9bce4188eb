#include "catalog/filter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "format/text/nearest.hpp"
#include "format/text/parse_number.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::catalog {
namespace {

constexpr std::size_t kLongestText = 4096;
constexpr std::size_t kDeepest = 32;  // parentheses

/// Filters of earlier releases, in policy files, have other words for some states.
constexpr std::string_view kMetric = "metric.";

std::string_view current_state_word(std::string_view word) {
  if (word == "committed") return "complete";
  if (word == "corrupt") return "damaged";
  if (word == "uncommitted") return "unfinished";
  return word;
}

bool is_attribute(std::string_view name) {
  return std::find(kAttributes.begin(), kAttributes.end(), name) != kAttributes.end();
}
bool is_text(std::string_view name) {
  return name == "run" || name == "id" || name == "state" || name == "tag" || is_attribute(name);
}
bool is_number(std::string_view name) {
  return name == "step" || name == "series" || name == "generation" || name == "bytes" || name == "age" ||
         (name.starts_with(kMetric) && name.size() > kMetric.size());
}
bool word_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_./-+").find(c) != std::string_view::npos;
}

struct Token {
  enum class Kind : std::uint8_t { end, word, text, symbol } kind = Kind::end;
  std::string_view value{};
  std::size_t column = 1;
};

}  // namespace

std::string attribute_of(const Checkpoint& checkpoint, std::string_view name) {
  if (name == "run") return checkpoint.run;
  if (name == "id") return checkpoint.id;
  if (name == "state") return std::string(state_word(checkpoint));
  if (name == "series") return std::to_string(checkpoint.series);
  if (name == "step") return std::to_string(checkpoint.step);
  for (const auto& [key, value] : checkpoint.attributes) {
    if (key == name) return value;
  }
  return {};
}

/// Reads infix, writes postfix with one stack of operators that wait for their right side.
class Filter::Compiler {
 public:
  explicit Compiler(std::string_view text) : text_(text) {}

  Result<std::vector<Instruction>> compile() {
    bool operand = true;  // a comparison follows, not an operator between two
    for (;;) {
      CKPT_TRY(const Token token, next());
      const bool word = token.kind == Token::Kind::word;
      if (operand) {
        if (word && token.value == "not") {
          CKPT_CHECK(wait(Op::negate, token));
        } else if (token.value == "(" && token.kind == Token::Kind::symbol) {
          CKPT_CHECK(wait(Op::open, token));
        } else if (word) {
          CKPT_CHECK(comparison(token));
          operand = false;
        } else {
          return wrong(token, "expected a comparison, e.g. kind == 'weights'");
        }
      } else if (token.kind == Token::Kind::end) {
        while (!waiting_.empty()) {
          if (waiting_.back() == Op::open) return wrong(token, "missing )");
          emit();
        }
        return std::move(program_);
      } else if (token.value == ")" && token.kind == Token::Kind::symbol) {
        while (!waiting_.empty() && waiting_.back() != Op::open) emit();
        if (waiting_.empty()) return wrong(token, "unmatched )");
        waiting_.pop_back();
      } else if (word && (token.value == "and" || token.value == "or")) {
        const Op op = token.value == "and" ? Op::both : Op::either;
        while (!waiting_.empty() && waiting_.back() != Op::open && (op == Op::either || waiting_.back() != Op::either))
          emit();
        CKPT_CHECK(wait(op, token));
        operand = true;
      } else {
        return wrong(token, "expected 'and' or 'or'");
      }
    }
  }

 private:
  static tl::unexpected<Error> wrong(const Token& token, std::string_view what) {
    return fail(Errc::usage, fmt::format("column {}: {}", token.column, what));
  }

  Result<> wait(Op op, const Token& token) {
    if (waiting_.size() >= 2 * kDeepest) return wrong(token, "nested too deeply");
    waiting_.push_back(op);
    return {};
  }
  void emit() {
    program_.push_back({.op = waiting_.back()});
    waiting_.pop_back();
  }

  Result<> comparison(const Token& name) {
    const bool text = is_text(name.value);
    if (!text && !is_number(name.value)) {
      std::vector<std::string> known{"run", "id", "state", "tag", "step", "series", "generation", "bytes", "age"};
      known.insert(known.end(), kAttributes.begin(), kAttributes.end());
      const auto near = nearest(name.value, known);
      return fail(
          {.code = Errc::usage,
           .message = fmt::format("column {}: unknown name '{}'", name.column, name.value),
           .hint = near ? fmt::format("did you mean '{}'?", *near)
                        : fmt::format("known names: {}, metric.NAME", fmt::join(known.begin(), known.end(), ", "))});
    }
    CKPT_TRY(const Token sign, next());
    static constexpr std::array<std::string_view, 6> signs{"==", "!=", "<", "<=", ">", ">="};
    const auto* at = std::find(signs.begin(), signs.end(), sign.value);
    if (sign.value == "=") return wrong(sign, "use == to compare");
    if (sign.kind != Token::Kind::symbol || at == signs.end()) return wrong(sign, "expected == != < <= > or >=");
    CKPT_TRY(const Token literal, next());
    Instruction out{.op = static_cast<Op>(at - signs.begin()), .name = std::string(name.value)};
    out.literal = std::string(literal.value);
    if (text) {
      if (literal.kind == Token::Kind::word)
        return wrong(literal, fmt::format("expected a quoted string: '{}'", literal.value));
      if (literal.kind != Token::Kind::text) return wrong(literal, "expected a quoted string, e.g. 'weights'");
      if (name.value == "state") out.literal = current_state_word(literal.value);
      if (out.op != Op::equal && out.op != Op::unequal) return wrong(sign, "strings can only be compared by == and !=");
    } else if (literal.kind != Token::Kind::word || !read_number(name.value, literal.value, out.number)) {
      return wrong(literal, fmt::format("'{}' is not a value of {}", literal.value, name.value));
    }
    program_.push_back(std::move(out));
    return {};
  }

  static bool read_number(std::string_view name, std::string_view text, double& out) {
    if (name == "bytes") {
      const auto size = parse_size(text);
      if (size) out = static_cast<double>(*size);
      return size.has_value();
    }
    if (name == "age") {
      const auto duration = parse_duration(text);
      if (duration) out = static_cast<double>(duration->count());
      return duration.has_value();
    }
    const auto number = parse_number<double>(text);
    if (number) out = *number;
    return number.has_value();
  }

  Result<Token> next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
    Token token{.column = at_ + 1};
    if (at_ == text_.size()) return token;
    const char c = text_[at_];
    if (c == '\'' || c == '"') {
      const std::size_t end = text_.find(c, at_ + 1);
      if (end == std::string_view::npos) return wrong(token, "missing closing quote");
      token.kind = Token::Kind::text;
      token.value = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
    } else if (word_letter(c)) {
      std::size_t end = at_;
      while (end < text_.size() && word_letter(text_[end])) ++end;
      token.kind = Token::Kind::word;
      token.value = text_.substr(at_, end - at_);
      at_ = end;
    } else {
      const bool pair = at_ + 1 < text_.size() && text_[at_ + 1] == '=' && c != '(' && c != ')';
      token.kind = Token::Kind::symbol;
      token.value = text_.substr(at_, pair ? 2 : 1);
      at_ += token.value.size();
    }
    return token;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<Op> waiting_;
  std::vector<Instruction> program_;
};

Result<Filter> Filter::parse(std::string_view text) {
  if (text.size() > kLongestText) return fail(Errc::usage, "longer than 4096 bytes");
  Filter out;
  out.text_ = text;
  CKPT_TRY(out.program_, Compiler(out.text_).compile());
  return out;
}

bool Filter::test(const Instruction& instruction, const Checkpoint& checkpoint, Time now) {
  const Op op = instruction.op;
  const std::string& name = instruction.name;
  if (name == "tag") {
    const auto& tags = checkpoint.tags;
    return (std::find(tags.begin(), tags.end(), instruction.literal) != tags.end()) == (op == Op::equal);
  }
  if (is_text(name)) return (attribute_of(checkpoint, name) == instruction.literal) == (op == Op::equal);
  double value = 0;
  if (name == "step") value = static_cast<double>(checkpoint.step);
  if (name == "series") value = static_cast<double>(checkpoint.series);
  if (name == "generation") value = static_cast<double>(checkpoint.generation);
  if (name == "bytes") value = static_cast<double>(checkpoint.bytes);
  if (name == "age") value = static_cast<double>(elapsed(checkpoint.created, now).count());
  if (name.starts_with(kMetric)) {
    const double* metric = find_metric(checkpoint, name.substr(kMetric.size()));
    if (metric == nullptr) return op == Op::unequal;
    value = *metric;
  }
  switch (op) {
    case Op::equal:
      return value == instruction.number;
    case Op::unequal:
      return value != instruction.number;
    case Op::less:
      return value < instruction.number;
    case Op::less_equal:
      return value <= instruction.number;
    case Op::greater:
      return value > instruction.number;
    default:
      return value >= instruction.number;
  }
}

std::vector<std::string> Filter::metrics() const {
  std::vector<std::string> out;
  for (const Instruction& one : program_)
    if (one.name.starts_with(kMetric)) out.push_back(one.name.substr(kMetric.size()));
  return out;
}

bool Filter::matches(const Checkpoint& checkpoint, Time now) const {
  std::vector<bool> stack;
  for (const Instruction& instruction : program_) {
    if (instruction.op == Op::negate) {
      stack.back() = !stack.back();
    } else if (instruction.op == Op::both || instruction.op == Op::either) {
      const bool right = stack.back();
      stack.pop_back();
      stack.back() = instruction.op == Op::both ? stack.back() && right : stack.back() || right;
    } else {
      stack.push_back(test(instruction, checkpoint, now));
    }
  }
  return stack.empty() || stack.back();
}

}  // namespace ckpt::catalog
