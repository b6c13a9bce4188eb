#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "format/little_endian.hpp"
#include "helper/h5_file.hpp"

/// Standard input: little-endian numbers, and texts of u32 length and bytes. Ends the process if it is
/// truncated.
class Input {
 public:
  Input() {
    char block[65536];
    for (;;) {
      const ssize_t count = ::read(STDIN_FILENO, block, sizeof block);
      if (count < 0) stop("cannot read the request", Verdict::io);
      if (count == 0) break;
      bytes_.append(block, static_cast<std::size_t>(count));
    }
  }
  std::uint64_t number(std::size_t bytes) {
    if (bytes_.size() - at_ < bytes) stop("the request is cut short");
    const std::uint64_t value = ckpt::read_little_endian(bytes_, at_, bytes);
    at_ += bytes;
    return value;
  }
  std::string text() {
    const std::uint64_t length = number(4);
    if (bytes_.size() - at_ < length) stop("the request is cut short");
    std::string out = bytes_.substr(at_, length);
    at_ += length;
    return out;
  }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};
