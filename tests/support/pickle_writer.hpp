#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace ckpt::test {

/// Writes pickles by hand: each call appends one opcode.
class PickleWriter {
 public:
  explicit PickleWriter(int protocol = 2) {
    if (protocol >= 2) raw(std::string{'\x80', static_cast<char>(protocol)});
  }

  PickleWriter& raw(std::string_view bytes) {
    out_.append(bytes);
    return *this;
  }
  PickleWriter& text(std::string_view text) { return raw("X").little(text.size(), 4).raw(text); }
  PickleWriter& bytes(std::string_view bytes) { return raw("B").little(bytes.size(), 4).raw(bytes); }
  PickleWriter& global(std::string_view module, std::string_view name) {
    return raw("c").raw(module).raw("\n").raw(name).raw("\n");
  }
  /// A signed 32-bit integer where it fits, else eight bytes.
  PickleWriter& integer(std::int64_t value) {
    const bool narrow = value >= INT32_MIN && value <= INT32_MAX;
    const auto bits = static_cast<std::uint64_t>(value);
    return narrow ? raw("J").little(bits, 4) : raw("\x8a\x08").little(bits, 8);
  }
  PickleWriter& little(std::uint64_t value, unsigned width) {
    for (unsigned i = 0; i < width; ++i) out_.push_back(static_cast<char>(value >> (8 * i) & 0xff));
    return *this;
  }
  PickleWriter& tuple_of(std::initializer_list<std::int64_t> values) {
    raw("(");
    for (const std::int64_t value : values) integer(value);
    return raw("t");
  }
  /// ('storage', class, key, 'cpu', count) as a persistent id.
  PickleWriter& storage(std::string_view key, std::int64_t count, std::string_view type = "FloatStorage",
                        std::string_view module = "torch") {
    return raw("(").text("storage").global(module, type).text(key).text("cpu").integer(count).raw("tQ");
  }
  PickleWriter& ordered_dict() { return global("collections", "OrderedDict").raw(")R"); }
  /// A float32 tensor by torch._utils._rebuild_tensor_v2.
  PickleWriter& tensor(std::string_view key, std::int64_t count, std::int64_t offset,
                       std::initializer_list<std::int64_t> size, std::initializer_list<std::int64_t> stride) {
    global("torch._utils", "_rebuild_tensor_v2").raw("(").storage(key, count).integer(offset);
    return tuple_of(size).tuple_of(stride).raw("\x89").ordered_dict().raw("tR");
  }
  std::string stop() { return out_ + "."; }

 private:
  std::string out_;
};

}  // namespace ckpt::test
