#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "format/little_endian.hpp"
#include "format/result.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::pickle {

/// Reads the opcodes of a pickle and their arguments; nothing is taken past the end. Failures name the byte of the
/// opcode that was begun last.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> data) : data_(data) {}

  std::size_t size() const { return data_.size(); }
  std::size_t left() const { return data_.size() - position_; }
  std::size_t position() const { return position_; }
  std::uint64_t opcode_at() const { return opcode_at_; }
  /// Data past the end was requested: more input may contain it.
  bool ran_out() const { return ran_out_; }

  tl::unexpected<Error> failed(Errc code, std::string_view why) const {
    std::string message = "pickle: byte " + std::to_string(opcode_at_) + ": ";
    return fail({.code = code, .message = message.append(why), .offset = opcode_at_});
  }
  tl::unexpected<Error> broken(std::string_view why) const { return failed(Errc::corrupt, why); }
  tl::unexpected<Error> refuse(std::string_view why) const { return failed(Errc::refused, why); }

  // Called for every opcode, so these two do without a Result.
  /// The next opcode; false at the end of the data.
  bool next(std::uint8_t& opcode) {
    opcode_at_ = position_;
    if (position_ == data_.size()) {
      ran_out_ = true;
      return false;
    }
    opcode = std::to_integer<std::uint8_t>(data_[position_++]);
    return true;
  }
  /// An unsigned little-endian number of kWidth bytes; false if it extends past the end.
  template <unsigned kWidth>
  bool number(std::uint64_t& value) {
    if (kWidth > left()) {
      ran_out_ = true;
      return false;
    }
    value = read_little_endian(data_, position_, kWidth);
    position_ += kWidth;
    return true;
  }
  tl::unexpected<Error> cut_short(std::uint64_t bytes) const {
    return broken("a value of " + std::to_string(bytes) + " bytes runs past the end");
  }
  Result<std::string_view> take(std::uint64_t count) {
    if (count > left()) {
      ran_out_ = true;
      return cut_short(count);
    }
    const std::string_view out(reinterpret_cast<const char*>(data_.data()) + position_, count);
    position_ += count;
    return out;
  }
  /// The bytes up to the next newline, which is taken too.
  Result<std::string_view> line() {
    const auto* begin = reinterpret_cast<const char*>(data_.data()) + position_;
    const void* end = left() == 0 ? nullptr : std::memchr(begin, '\n', left());
    if (end == nullptr) {
      ran_out_ = true;
      return broken("a line runs past the end");
    }
    const auto size = static_cast<std::size_t>(static_cast<const char*>(end) - begin);
    position_ += size + 1;
    return std::string_view(begin, size);
  }
  Result<std::uint64_t> line_index() {
    CKPT_TRY(const std::string_view text, line());
    const auto value = parse_number<std::uint64_t>(text);
    if (!value) return broken("a memo index is not a number");
    return *value;
  }

 private:
  std::span<const std::byte> data_;
  std::size_t position_ = 0;
  std::uint64_t opcode_at_ = 0;
  bool ran_out_ = false;
};

}  // namespace ckpt::pickle
