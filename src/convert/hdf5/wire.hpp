#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/little_endian.hpp"

namespace ckpt::hdf5 {

/// A request to the helper (helper/ckpt_h5.cpp): little-endian numbers, and texts of u32 length and bytes.
class Wire {
 public:
  void number(std::uint64_t value, std::size_t bytes) { append_little_endian(bytes_, value, bytes); }
  void text(std::string_view value) {
    number(value.size(), 4);
    bytes_ += value;
  }
  void attributes(const std::vector<std::pair<std::string, std::string>>& pairs) {
    number(pairs.size(), 4);
    for (const auto& [name, value] : pairs) {
      text(name);
      text(value);
    }
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace ckpt::hdf5
