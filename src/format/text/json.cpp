#include "format/text/json.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <tuple>

namespace ckpt::json {
namespace {

constexpr std::size_t kMostRead = 40;  // bytes of an error's "; last read: ..."

using Kind = Event::Kind;

/// Walks the document and exposes how far the lexer has read, which nlohmann reports only to its error handler.
class Cursor {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor() = default;
  Cursor(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  Cursor operator++(int) {
    Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const { return at_ != other.at_; }

 private:
  const char* at_ = nullptr;
  const char** furthest_ = nullptr;
};

tl::unexpected<Error> corrupt_at(std::size_t offset, std::string reason) {
  return fail({.code = Errc::corrupt, .message = "JSON: " + std::move(reason), .offset = offset});
}

/// Text of a message about hostile bytes: short, printable.
std::string printable(std::string_view text) {
  constexpr std::size_t kShown = 160;
  std::string out(text.substr(0, kShown));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  if (text.size() > kShown) out += "...";
  return out;
}

/// Adapts nlohmann's SAX interface to ours, and adds the strictness that it lacks.
class Bridge {
 public:
  Bridge(std::string_view document, Handler& handler, const Limits& limits)
      : begin_(document.data()), furthest_(document.data()), handler_(handler), limits_(limits) {}

  bool run(std::string_view document) {
    const Cursor first(document.data(), &furthest_);
    const Cursor last(document.data() + document.size(), &furthest_);
    return nlohmann::json::sax_parse(first, last, this);
  }
  Result<> result() && { return std::move(result_); }

  bool null() { return pass({.kind = Kind::null}); }
  bool boolean(bool value) { return pass({.kind = Kind::boolean, .boolean = value}); }
  bool number_integer(std::int64_t value) { return pass({.kind = Kind::negative, .negative = value}); }
  bool number_unsigned(std::uint64_t value) { return pass({.kind = Kind::natural, .natural = value}); }
  bool number_float(double value, const std::string&) { return pass({.kind = Kind::real, .real = value}); }
  bool string(std::string& value) { return pass({.kind = Kind::text, .text = value}); }
  bool binary(nlohmann::json::binary_t&) { return stop("binary value"); }
  bool key(std::string& value) {
    const XXH128_hash_t hash = XXH3_128bits(value.data(), value.size());
    keys_.push_back({hash.high64, hash.low64, offset()});
    return pass({.kind = Kind::key, .text = value});
  }
  bool start_object(std::size_t) {
    if (!pass({.kind = Kind::begin_object})) return false;
    first_keys_.push_back(keys_.size());
    return deeper();
  }
  bool end_object() {
    if (!unique_keys(first_keys_.back())) return false;
    keys_.resize(first_keys_.back());
    first_keys_.pop_back();
    --depth_;
    return pass({.kind = Kind::end_object});
  }
  bool start_array(std::size_t) { return pass({.kind = Kind::begin_array}) && deeper(); }
  bool end_array() {
    --depth_;
    return pass({.kind = Kind::end_array});
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error while ..."
    std::string_view reason = error.what();
    if (const std::size_t tag = reason.find("] "); tag != reason.npos) reason.remove_prefix(tag + 2);
    if (const std::size_t column = reason.find(": "); reason.starts_with("parse error at") && column != reason.npos)
      reason.remove_prefix(column + 2);
    // What was read last is part of a line that may be long.
    const std::size_t read = reason.find("; last read: ");
    if (read != reason.npos && reason.size() - read > kMostRead) reason = reason.substr(0, read);
    return stop_at(printable(reason), position);
  }

 private:
  /// A key by the 128-bit hash of its text: two different texts that collide would only refuse a document.
  struct Key {
    std::uint64_t high, low;
    std::size_t offset;
  };

  std::size_t offset() const { return static_cast<std::size_t>(furthest_ - begin_); }

  bool pass(Event event) {
    const bool ends = event.kind == Kind::end_object || event.kind == Kind::end_array;
    if (!ends && ++values_ > limits_.max_values)
      return stop("more than " + std::to_string(limits_.max_values) + " values");
    event.depth = depth_;
    event.offset = offset();
    result_ = handler_.on(event);
    return result_.has_value();
  }
  bool deeper() {
    if (++depth_ > limits_.max_depth) return stop("nested deeper than " + std::to_string(limits_.max_depth));
    return true;
  }
  /// Sorting all keys of an object once is linear in memory and needs no hash table whose growth an input decides.
  bool unique_keys(std::size_t first) {
    const auto begin = keys_.begin() + static_cast<std::ptrdiff_t>(first);
    std::sort(begin, keys_.end(), [](const Key& a, const Key& b) {
      return std::tie(a.high, a.low, a.offset) < std::tie(b.high, b.low, b.offset);
    });
    const auto twin = std::adjacent_find(begin, keys_.end(),
                                         [](const Key& a, const Key& b) { return a.high == b.high && a.low == b.low; });
    return twin == keys_.end() || stop_at("duplicate key", std::next(twin)->offset);
  }
  bool stop(std::string reason) { return stop_at(std::move(reason), offset()); }
  bool stop_at(std::string reason, std::size_t at) {
    result_ = corrupt_at(at, std::move(reason));
    return false;
  }

  const char* begin_;
  const char* furthest_;
  Handler& handler_;
  const Limits& limits_;
  Result<> result_{};
  std::vector<Key> keys_{};                // of all open objects, outermost first
  std::vector<std::size_t> first_keys_{};  // of each open object, into keys_
  std::size_t depth_ = 0;
  std::size_t values_ = 0;
};

}  // namespace

Result<> parse(std::string_view document, Handler& handler, const Limits& limits) {
  if (document.size() > limits.max_bytes)
    return corrupt_at(0, "larger than " + std::to_string(limits.max_bytes) + " bytes");
  // nlohmann skips a byte order mark and takes a NUL for the end of the text.
  if (document.starts_with("\xef\xbb\xbf")) return corrupt_at(0, "begins with a byte order mark");
  if (const std::size_t nul = document.find('\0'); nul != document.npos) return corrupt_at(nul, "a NUL byte");
  Bridge bridge(document, handler, limits);
  const bool whole = bridge.run(document);
  Result<> result = std::move(bridge).result();
  if (!whole && result) return corrupt_at(0, "not a JSON document");
  return result;
}

std::optional<double> Value::number() const {
  if (const double* number = real()) return *number;
  if (const std::uint64_t* number = natural()) return static_cast<double>(*number);
  if (const std::int64_t* number = negative()) return static_cast<double>(*number);
  return std::nullopt;
}

const Value* Value::find(std::string_view key) const {
  const Object* members = object();
  if (members == nullptr) return nullptr;
  const auto found = std::find_if(members->begin(), members->end(), [&](const auto& m) { return m.first == key; });
  return found == members->end() ? nullptr : &found->second;
}

Result<> Builder::on(const Event& event) {
  switch (event.kind) {
    case Kind::null:
      return add({nullptr});
    case Kind::boolean:
      return add({event.boolean});
    case Kind::negative:
      return add({event.negative});
    case Kind::natural:
      return add({event.natural});
    case Kind::real:
      return add({event.real});
    case Kind::text:
      return add({std::string(event.text)});
    case Kind::key:
      keys_.emplace_back(event.text);
      return {};
    case Kind::begin_object:
      open_.push_back({Object{}});
      return {};
    case Kind::begin_array:
      open_.push_back({Array{}});
      return {};
    case Kind::end_object:
    case Kind::end_array: {
      Value done = std::move(open_.back());
      open_.pop_back();
      return add(std::move(done));
    }
  }
  return {};
}

Result<> Builder::add(Value value) {
  if (open_.empty()) {
    root_ = std::move(value);
  } else if (auto* array = std::get_if<Array>(&open_.back().v)) {
    array->push_back(std::move(value));
  } else {
    std::get<Object>(open_.back().v).emplace_back(std::move(keys_.back()), std::move(value));
    keys_.pop_back();
  }
  return {};
}

Result<Value> parse(std::string_view document, const Limits& limits) {
  Limits held = limits;
  held.max_values = std::min(held.max_values, kMostHeld);
  Builder builder;
  CKPT_CHECK(parse(document, builder, held));
  return builder.take();
}

std::string parser_version() {
  return std::to_string(NLOHMANN_JSON_VERSION_MAJOR) + '.' + std::to_string(NLOHMANN_JSON_VERSION_MINOR) + '.' +
         std::to_string(NLOHMANN_JSON_VERSION_PATCH);
}

}  // namespace ckpt::json
