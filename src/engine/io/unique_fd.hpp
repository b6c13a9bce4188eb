#pragma once

#include <unistd.h>

#include <utility>

namespace ckpt {

/// An owned file descriptor. The destructor closes it and ignores the result; a caller that must see late write errors
/// calls `release` and closes it.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int value) : value_(value) {}
  UniqueFd(UniqueFd&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      value_ = std::exchange(other.value_, -1);
    }
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return value_; }
  explicit operator bool() const { return value_ >= 0; }
  int release() { return std::exchange(value_, -1); }
  void reset() {
    if (value_ >= 0) ::close(std::exchange(value_, -1));
  }

 private:
  int value_ = -1;
};

}  // namespace ckpt
