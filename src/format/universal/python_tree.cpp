#include "format/universal/python_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

#include "format/model/value_text.hpp"
#include "format/text/json.hpp"

namespace ckpt::universal {
namespace {

constexpr std::uint64_t kTreeVersion = 1;
constexpr std::size_t kTreeLevels = 100;
constexpr json::Limits kTreeLimits{.max_bytes = std::numeric_limits<std::size_t>::max(),
                                   .max_depth = 3 * kTreeLevels + 8};

using Kind = json::Event::Kind;

ValuePtr made_of(Value value) {
  return std::make_shared<const Value>(std::move(value));
}

// What JSON's parser refuses passes it as text that begins with U+FFFF: lone surrogates, which Python's text may hold, and that
// character itself, with four hexadecimal digits after it; integers that are longer than 64 bits with an "i" and their
// digits. In a Value a surrogate is the three bytes that UTF-8 would have for it.
constexpr std::string_view kMark = "\xef\xbf\xbf";
constexpr std::size_t kMostDigits = 18;  // of an integer that surely fits 64 bits

/// The length of an integer that begins the text and may not fit 64 bits, else 0.
std::size_t long_integer(std::string_view text) {
  const std::size_t sign = text.starts_with('-') ? 1 : 0;
  const std::size_t length = std::min(text.find_first_not_of("0123456789", sign), text.size());
  const bool ends = length == text.size() || (text[length] != '.' && text[length] != 'e' && text[length] != 'E');
  return ends && length - sign > kMostDigits ? length : 0;
}

std::optional<unsigned> code_at(std::string_view text, std::size_t at) {
  if (text.size() < at + 6 || text[at] != '\\' || text[at + 1] != 'u') return std::nullopt;
  unsigned code = 0;
  const auto [end, error] = std::from_chars(text.data() + at + 2, text.data() + at + 6, code, 16);
  if (error != std::errc{} || end != text.data() + at + 6) return std::nullopt;
  return code;
}

std::string with_marks(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 64);
  bool in_text = false;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 1;
    std::optional<unsigned> marked;
    if (text[at] == '"') in_text = !in_text;
    if (!in_text) {
      const bool begins = (text[at] >= '0' && text[at] <= '9') || text[at] == '-';
      length = begins ? std::min(text.find_first_not_of("0123456789+-.eE", at), text.size()) - at : 1;
      if (begins && long_integer(text.substr(at, length)) == length) {
        out += fmt::format("\"{}i{}\"", kMark, text.substr(at, length));
        at += length;
        continue;
      }
    } else if (const auto code = code_at(text, at)) {
      const auto next = code_at(text, at + 6);
      const bool is_pair = *code >> 10 == 0x36 && next && *next >> 10 == 0x37;
      length = is_pair ? 12 : 6;
      if (!is_pair && (*code >> 11 == 0x1b || *code == 0xffff)) marked = code;
    } else if (text[at] == '\\') {
      length = std::min<std::size_t>(2, text.size() - at);
    } else if (text.substr(at).starts_with(kMark)) {
      length = kMark.size();
      marked = 0xffff;
    }
    if (marked) {
      out += fmt::format("{}{:04x}", kMark, *marked);
    } else {
      out += text.substr(at, length);
    }
    at += length;
  }
  return out;
}

std::string without_marks(std::string_view text) {
  std::string out;
  for (std::size_t at = text.find(kMark); at != text.npos; at = text.find(kMark)) {
    unsigned code = 0xffff;
    const std::string_view digits = text.substr(at + kMark.size(), 4);
    std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    out += text.substr(0, at);
    for (const unsigned byte : {0xe0 | code >> 12, 0x80 | (code >> 6 & 0x3f), 0x80 | (code & 0x3f)})
      out += static_cast<char>(byte);
    text.remove_prefix(at + kMark.size() + digits.size());
  }
  return out += text;
}

Value text_or_integer(std::string_view text) {
  if (!text.starts_with(kMark) || !text.substr(kMark.size()).starts_with('i')) return {without_marks(text)};
  const std::string_view digits = text.substr(kMark.size() + 1);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error == std::errc{}) return {number};
  return {BigInt{std::string(digits)}};
}

/// Builds the tree from the tokens of its JSON.
class TreeHandler final : public json::Handler {
 public:
  Result<> on(const json::Event& event) override {
    if (open_.empty()) {
      if (event.kind != Kind::begin_object || root_) return unknown(event);
      open_.push_back({.kind = Frame::document});
      return {};
    }
    switch (open_.back().kind) {
      case Frame::document:
        return document(event);
      case Frame::node:
        return node(event);
      case Frame::pairs:
        return pairs(event);
      case Frame::pair:
        return pair(event);
      case Frame::items:
        return event.kind == Kind::end_array ? close_items() : value(event);
    }
    return unknown(event);
  }

  Result<ValuePtr> take() {
    if (root_ && has_version_) return std::move(root_);
    return fail(Errc::corrupt, "unexpected JSON");
  }

 private:
  /// A container of the JSON that is open.
  struct Frame {
    enum : std::uint8_t { document, node, pairs, pair, items } kind = document;
    std::string member{};                                  ///< of an object: the key that was read last
    Value value{};                                         ///< of a node
    bool has_value = false;                                ///< of a node
    std::vector<ValuePtr> parts{};                         ///< of an array
    std::vector<std::pair<ValuePtr, ValuePtr>> entries{};  ///< of a dict's array
  };

  static Result<> unknown(const json::Event& event) {
    return fail({.code = Errc::corrupt, .message = "unexpected JSON", .offset = event.offset});
  }

  Result<> document(const json::Event& event) {
    std::string& member = open_.back().member;
    if (event.kind == Kind::key) {
      member = event.text;
      return {};
    }
    if (event.kind == Kind::end_object) {
      open_.clear();
      return {};
    }
    if (member == "version" && event.kind == Kind::natural) {
      has_version_ = true;
      if (event.natural == kTreeVersion) return {};
      return fail(Errc::newer, fmt::format("{} has version {}; this release reads version {}", kPythonTree,
                                           event.natural, kTreeVersion));
    }
    return member == "tree" && !root_ ? value(event) : unknown(event);
  }

  /// A value of the tree begins, or is all of this token.
  Result<> value(const json::Event& event) {
    if (level_ > kTreeLevels) return unknown(event);
    switch (event.kind) {
      case Kind::null:
        return finish(made_of({None{}}));
      case Kind::boolean:
        return finish(made_of({event.boolean}));
      case Kind::text:
        return finish(made_of(text_or_integer(event.text)));
      case Kind::negative:
        return finish(made_of({event.negative}));
      case Kind::natural:
        return finish(made_of({static_cast<std::int64_t>(event.natural)}));  // longer ones come as text
      case Kind::real:
        return finish(made_of({event.real}));
      case Kind::begin_object:
        ++level_;
        open_.push_back({.kind = Frame::node});
        return {};
      default:
        return unknown(event);
    }
  }

  Result<> finish(ValuePtr value) {
    Frame& around = open_.back();
    if (around.kind == Frame::document) {
      root_ = std::move(value);
    } else {
      around.parts.push_back(std::move(value));
    }
    return {};
  }

  Result<> node(const json::Event& event) {
    Frame& frame = open_.back();
    if (event.kind == Kind::key) {
      const bool is_library = event.text == "library" && std::holds_alternative<TensorRef>(frame.value.v);
      if (frame.has_value && !is_library) return unknown(event);
      frame.member = event.text;
      return {};
    }
    if (event.kind == Kind::end_object) {
      const bool lacks_library = std::holds_alternative<TensorRef>(frame.value.v) && frame.member != "library";
      if (!frame.has_value || lacks_library) return unknown(event);
      --level_;
      ValuePtr made = made_of(std::move(frame.value));
      open_.pop_back();
      return finish(std::move(made));
    }
    if (frame.has_value) return frame.member == "library" && event.kind == Kind::text ? Result<>{} : unknown(event);
    if (event.kind == Kind::begin_array && frame.member == "dict") return open(Frame{.kind = Frame::pairs});
    if (event.kind == Kind::begin_array && (frame.member == "list" || frame.member == "tuple"))
      return open(Frame{.kind = Frame::items});
    if (event.kind != Kind::text) return unknown(event);
    frame.has_value = true;
    if (frame.member == "tensor") {
      frame.value = {TensorRef{.name = without_marks(event.text)}};
      return {};
    }
    using Limits = std::numeric_limits<double>;
    if (frame.member != "float") return unknown(event);
    if (event.text == "nan")
      frame.value = {Limits::quiet_NaN()};
    else if (event.text == "inf")
      frame.value = {Limits::infinity()};
    else if (event.text == "-inf")
      frame.value = {-Limits::infinity()};
    else
      return unknown(event);
    return {};
  }

  Result<> open(Frame frame) {
    open_.push_back(std::move(frame));
    return {};
  }

  Result<> close_items() {
    List list{.items = std::move(open_.back().parts)};
    open_.pop_back();
    Frame& node = open_.back();
    if (node.member == "tuple") list.kind = List::Kind::tuple;
    node.value = {std::move(list)};
    node.has_value = true;
    return {};
  }

  Result<> pairs(const json::Event& event) {
    if (event.kind == Kind::begin_array) return open(Frame{.kind = Frame::pair});
    if (event.kind != Kind::end_array) return unknown(event);
    Dict dict{.items = std::move(open_.back().entries)};
    std::unordered_set<std::string> keys;
    for (const auto& [key, item] : dict.items) {
      if (!keys.insert(value_text(*key, std::numeric_limits<std::size_t>::max())).second) return unknown(event);
    }
    open_.pop_back();
    open_.back().value = {std::move(dict)};
    open_.back().has_value = true;
    return {};
  }

  Result<> pair(const json::Event& event) {
    Frame& frame = open_.back();
    if (event.kind == Kind::end_array) {
      if (frame.parts.size() != 2) return unknown(event);
      std::pair<ValuePtr, ValuePtr> entry(std::move(frame.parts[0]), std::move(frame.parts[1]));
      open_.pop_back();
      open_.back().entries.push_back(std::move(entry));
      return {};
    }
    const bool is_key = (event.kind == Kind::text && !event.text.empty()) || event.kind == Kind::natural ||
                        event.kind == Kind::negative;
    if (frame.parts.size() == 2 || (frame.parts.empty() && !is_key)) return unknown(event);
    return value(event);
  }

  bool has_version_ = false;
  std::size_t level_ = 0;  // of open nodes
  std::vector<Frame> open_{};
  ValuePtr root_{};
};

}  // namespace

Result<ValuePtr> parse_python_tree(std::string_view text) {
  const std::string marked = with_marks(text);
  TreeHandler handler;
  CKPT_CHECK(json::parse(marked, handler, kTreeLimits));
  return handler.take();
}

}  // namespace ckpt::universal
