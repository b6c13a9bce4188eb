#include "format/naming/settings.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "format/checked.hpp"
#include "format/text/json_writer.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::naming {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kShort{{{"h", "hidden_size"},
                                                                               {"f", "ffn_hidden_size"},
                                                                               {"n", "num_attention_heads"},
                                                                               {"g", "num_query_groups"},
                                                                               {"d", "kv_channels"},
                                                                               {"V", "vocab_size"}}};
constexpr std::size_t kMostNested = 16;

bool is_name_part(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

class Evaluation {
 public:
  Evaluation(std::string_view text, const Settings& settings) : whole_(text), rest_(text), settings_(settings) {}

  Result<std::uint64_t> run() {
    CKPT_TRY(const std::uint64_t value, sum(0));
    if (!next().empty()) return bad();
    return value;
  }

 private:
  tl::unexpected<Error> bad() const { return fail(Errc::usage, "'" + std::string(whole_) + "' is not an expression"); }

  /// The rest, without blanks before it.
  std::string_view next() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
    return rest_;
  }
  bool take(char c) {
    if (!next().starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  Result<std::uint64_t> sum(std::size_t nested) {
    if (nested > kMostNested) return bad();
    CKPT_TRY(std::uint64_t value, product(nested));
    for (;;) {
      if (take('+')) {
        CKPT_TRY(const std::uint64_t more, product(nested));
        CKPT_TRY(value, checked_add(value, more));
      } else if (take('-')) {
        CKPT_TRY(const std::uint64_t less, product(nested));
        if (less > value) return fail(Errc::refused, "'" + std::string(whole_) + "' is less than 0");
        value -= less;
      } else {
        return value;
      }
    }
  }

  Result<std::uint64_t> product(std::size_t nested) {
    CKPT_TRY(std::uint64_t value, factor(nested));
    for (;;) {
      if (take('/')) {
        CKPT_TRY(const std::uint64_t by, factor(nested));
        if (by == 0 || value % by != 0)
          return fail(Errc::refused, "'" + std::string(whole_) + "': " + std::to_string(by) + " does not divide " +
                                         std::to_string(value));
        value /= by;
        continue;
      }
      const bool follows = !next().empty() && (is_name_part(rest_.front()) || rest_.front() == '(');
      if (!take('*') && !follows) return value;
      CKPT_TRY(const std::uint64_t by, factor(nested));
      CKPT_TRY(value, checked_mul(value, by));
    }
  }

  Result<std::uint64_t> factor(std::size_t nested) {
    if (take('(')) {
      CKPT_TRY(const std::uint64_t value, sum(nested + 1));
      if (!take(')')) return bad();
      return value;
    }
    if (next().empty()) return bad();
    if (const auto number = take_number<std::uint64_t>(rest_)) return *number;
    std::size_t length = 0;
    while (length < rest_.size() && is_name_part(rest_[length])) ++length;
    if (length == 0) return bad();
    std::string_view name = rest_.substr(0, length);
    rest_.remove_prefix(length);
    for (const auto& [letter, meant] : kShort) {
      if (name == letter) name = meant;
    }
    const auto count = settings_.count(name);
    if (!count) return fail(Errc::not_found, std::string(name));
    return *count;
  }

  std::string_view whole_;
  std::string_view rest_;
  const Settings& settings_;
};

std::optional<double> number_of(const json::Value& value) {
  if (const auto* natural = value.natural()) return static_cast<double>(*natural);
  if (const auto* negative = value.negative()) return static_cast<double>(*negative);
  if (const auto* real = value.real()) return *real;
  return std::nullopt;
}

void write(json::Writer& out, const json::Value& value) {
  if (const auto* object = value.object()) {
    out.begin_object();
    for (const auto& [key, item] : *object) write(out.key(key), item);
    out.end_object();
  } else if (const auto* array = value.array()) {
    out.begin_array();
    for (const json::Value& item : *array) write(out, item);
    out.end_array();
  } else if (const auto* text = value.text()) {
    out.value(*text);
  } else if (const auto* boolean = value.boolean()) {
    out.value(*boolean);
  } else if (const auto* natural = value.natural()) {
    out.value(*natural);
  } else if (const auto* negative = value.negative()) {
    out.value(*negative);
  } else if (const auto* real = value.real()) {
    out.value(*real);
  } else {
    out.value(nullptr);
  }
}

}  // namespace

const json::Value* Settings::find(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end() || std::holds_alternative<std::nullptr_t>(found->second.v)) return nullptr;
  return &found->second;
}

std::optional<std::uint64_t> Settings::count(std::string_view name) const {
  const json::Value* value = find(name);
  return value != nullptr && value->natural() != nullptr ? std::optional(*value->natural()) : std::nullopt;
}

bool Settings::is_set(std::string_view name) const {
  const json::Value* value = find(name);
  if (value == nullptr) return false;
  if (value->boolean() != nullptr) return *value->boolean();
  if (value->text() != nullptr) return !value->text()->empty();
  if (value->array() != nullptr) return !value->array()->empty();
  return number_of(*value).value_or(1) != 0;
}

std::optional<std::vector<std::uint64_t>> Settings::counts(std::string_view name) const {
  const json::Value* value = find(name);
  if (value == nullptr || value->array() == nullptr) return std::nullopt;
  std::vector<std::uint64_t> out;
  for (const json::Value& item : *value->array()) {
    if (item.natural() == nullptr) return std::nullopt;
    out.push_back(*item.natural());
  }
  return out;
}

bool is_equal(const json::Value& a, const json::Value& b) {
  const auto first = number_of(a);
  const auto second = number_of(b);
  if (first || second) return first == second;
  return text_of(a) == text_of(b);
}

std::string text_of(const json::Value& value) {
  std::string out;
  json::Writer writer(out, {.spaced = true});
  write(writer, value);
  return out;
}

Result<std::uint64_t> evaluate(std::string_view expression, const Settings& settings) {
  return Evaluation(expression, settings).run();
}

}  // namespace ckpt::naming
