#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "format/result.hpp"

/// Strict JSON (RFC 8259): one document, valid UTF-8 without a byte order mark, no duplicate keys in an object, no NaN
/// or Infinity, nothing after the end but blanks. Neither reading nor its errors depend on the call stack: nesting is
/// counted, not recursed into.
namespace ckpt::json {

/// Limits of every document; each overrun is `corrupt`.
struct Limits {
  std::size_t max_bytes = 100'000'000;
  std::size_t max_depth = 64;                      ///< nested objects and arrays
  std::size_t max_values = std::size_t{16} << 20;  ///< values and keys
};

/// One token of a document, in document order.
struct Event {
  enum class Kind : std::uint8_t {
    null,
    boolean,
    negative,  ///< an integer with a minus sign: `negative`
    natural,   ///< an integer from 0 to 2^64 - 1: `natural`
    real,      ///< any other number: `real`
    text,
    key,
    begin_object,
    end_object,
    begin_array,
    end_array,
  } kind = Kind::null;
  bool boolean = false;
  std::int64_t negative = 0;
  std::uint64_t natural = 0;
  double real = 0;
  std::string_view text{};  ///< of text and key, escapes decoded; valid during the call only
  std::size_t depth = 0;    ///< open objects and arrays around the token; for begin and end: outside of it
  std::size_t offset = 0;   ///< bytes of the document consumed when the token was complete
};

/// Receives the tokens of a document. Duplicate keys are only known at the end of their object, so the tokens are valid
/// only after `parse` has succeeded.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual Result<> on(const Event& event) = 0;  ///< an error ends the parse and is its result
};

/// A handler that knows whether the failure of a parse is its own, or one of the document.
class JudgingHandler : public Handler {
 public:
  Result<> on(const Event& event) final {
    auto taken = take(event);
    failed_ = !taken.has_value();
    return taken;
  }
  bool has_failed() const { return failed_; }

 private:
  virtual Result<> take(const Event& event) = 0;
  bool failed_ = false;
};

/// Reads a document of any size without building it.
/// errors   corrupt with `offset`, bytes from the start of the document; the handler's own
Result<> parse(std::string_view document, Handler& handler, const Limits& limits = {});

/// A document held in memory.
struct Value;
using Array = std::vector<Value>;
using Object = std::vector<std::pair<std::string, Value>>;  ///< in document order

struct Value {
  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object> v{};

  const Object* object() const { return std::get_if<Object>(&v); }
  const Array* array() const { return std::get_if<Array>(&v); }
  const std::string* text() const { return std::get_if<std::string>(&v); }
  const bool* boolean() const { return std::get_if<bool>(&v); }
  const std::uint64_t* natural() const { return std::get_if<std::uint64_t>(&v); }  ///< integers >= 0
  const std::int64_t* negative() const { return std::get_if<std::int64_t>(&v); }   ///< integers < 0
  const double* real() const { return std::get_if<double>(&v); }
  std::optional<double> number() const;  ///< any of the three
  /// The member of an object, found by a linear search; null if absent or not an object.
  const Value* find(std::string_view key) const;
};

/// Builds a Value from tokens: those of a whole document, or of one value inside it that a handler passes on.
class Builder final : public Handler {
 public:
  Result<> on(const Event& event) override;
  /// The value, once its last token was received; the builder is then ready for the next one.
  Value take() { return std::exchange(root_, Value{}); }

 private:
  Result<> add(Value value);

  Value root_{};
  std::vector<Value> open_{};        // the containers around the next token
  std::vector<std::string> keys_{};  // whose values are still open
};

/// Values and keys of a document that is held; beyond them it is `corrupt`, whatever its limits say.
inline constexpr std::size_t kMostHeld = std::size_t{2} << 20;

/// Reads a document that is small enough to hold (about 40 bytes a value and the text).
Result<Value> parse(std::string_view document, const Limits& limits = {});

/// Of the library below: "3.11.2".
std::string parser_version();

}  // namespace ckpt::json
