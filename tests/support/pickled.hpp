#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "support/pickle_writer.hpp"

/// Python values as runs of pickle opcodes, to be nested: pickled(dict({{"a", list({integer(1)})}})).
namespace ckpt::test::py {

inline std::string ops(const PickleWriter& writer) {
  PickleWriter copy = writer;
  std::string out = copy.stop();
  out.pop_back();  // the STOP
  return out;
}
inline PickleWriter no_head() {
  return PickleWriter(0);
}

inline std::string none() {
  return "N";
}
inline std::string integer(std::int64_t value) {
  return ops(no_head().integer(value));
}
inline std::string text(std::string_view value) {
  return ops(no_head().text(value));
}
inline std::string list(std::initializer_list<std::string> items) {
  std::string out = "](";
  for (const std::string& item : items) out += item;
  return out + "e";
}
inline std::string dict(std::initializer_list<std::pair<std::string_view, std::string>> items) {
  std::string out = "}(";
  for (const auto& [key, value] : items) out += text(key) + value;
  return out + "u";
}
/// A dict with integer keys from 0.
inline std::string numbered(std::initializer_list<std::string> items) {
  std::string out = "}(";
  std::int64_t key = 0;
  for (const std::string& item : items) out += integer(key++) + item;
  return out + "u";
}
/// A float32 tensor: `count` elements in the storage `key`.
inline std::string tensor(std::string_view key, std::int64_t count, std::int64_t offset,
                          std::initializer_list<std::int64_t> size, std::initializer_list<std::int64_t> stride) {
  return ops(no_head().tensor(key, count, offset, size, stride));
}
/// A float32 tensor of one dimension that fills its storage.
inline std::string vector(std::string_view key, std::int64_t count) {
  return tensor(key, count, 0, {count}, {1});
}
/// An object of a class without arguments, with a state.
inline std::string object(std::string_view module, std::string_view name, const std::string& state) {
  return ops(no_head().global(module, name)) + ")\x81" + state + "b";
}
/// The whole pickle.
inline std::string pickled(const std::string& value) {
  return "\x80\x02" + value + ".";
}

}  // namespace ckpt::test::py
