#include "format/model/value_text.hpp"

#include <fmt/format.h>

#include <type_traits>
#include <variant>

#include "format/model/scalar_json.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kDeepest = 32;  // levels shown; state of unknown origin may nest deeper
constexpr std::string_view kMore = "...";

class Printer {
 public:
  explicit Printer(std::size_t limit) : limit_(limit) {}

  void put(const Value& value, std::size_t depth) {
    if (is_full() || depth > kDeepest) {
      put_more();
      return;
    }
    std::visit([&](const auto& held) { put_held(held, depth); }, value.v);
  }
  std::string take() { return std::move(out_); }

 private:
  bool is_full() const { return out_.size() >= limit_; }
  void put_more() {
    if (!out_.ends_with(kMore)) out_ += kMore;
  }
  void put_pointer(const ValuePtr& value, std::size_t depth) {
    if (value)
      put(*value, depth);
    else
      out_ += "None";
  }

  void put_held(const None&, std::size_t) { out_ += "None"; }
  void put_held(bool value, std::size_t) { out_ += value ? "True" : "False"; }
  void put_held(std::int64_t value, std::size_t) { out_ += fmt::format("{}", value); }
  void put_held(const BigInt& value, std::size_t) { out_ += value.decimal.substr(0, limit_); }
  void put_held(double value, std::size_t) {
    std::string digits = fmt::format("{}", value);
    if (digits.find_first_not_of("-0123456789") == digits.npos) digits += ".0";  // unlike the integer
    out_ += digits;
  }
  void put_held(const std::string& value, std::size_t) {
    const std::size_t room = limit_ - out_.size();
    out_ += fmt::format("'{}{}'", universal::shown_text(value.substr(0, room)), value.size() > room ? kMore : "");
  }
  void put_held(const Bytes& value, std::size_t) { out_ += fmt::format("<{} bytes>", value.data.size()); }
  void put_held(const TensorRef& value, std::size_t) { out_ += fmt::format("<tensor {}>", value.name); }
  void put_held(const Opaque& value, std::size_t) { out_ += fmt::format("<{}>", value.global); }
  void put_held(const List& value, std::size_t depth) {
    const bool is_tuple = value.kind == List::Kind::tuple;
    out_ += is_tuple ? "(" : value.kind == List::Kind::set ? "{" : "[";
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      if (i != 0) out_ += ", ";
      if (is_full()) {
        put_more();
        break;
      }
      put_pointer(value.items[i], depth + 1);
    }
    if (is_tuple && value.items.size() == 1) out_ += ",";
    out_ += is_tuple ? ")" : value.kind == List::Kind::set ? "}" : "]";
  }
  void put_held(const Dict& value, std::size_t depth) {
    out_ += "{";
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      if (i != 0) out_ += ", ";
      if (is_full()) {
        put_more();
        break;
      }
      put_pointer(value.items[i].first, depth + 1);
      out_ += ": ";
      put_pointer(value.items[i].second, depth + 1);
    }
    out_ += "}";
  }

  std::size_t limit_;
  std::string out_{};
};

}  // namespace

std::string value_text(const Value& value, std::size_t limit) {
  Printer printer(limit);
  printer.put(value, 0);
  return printer.take();
}

}  // namespace ckpt
