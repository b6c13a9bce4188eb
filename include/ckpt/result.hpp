#pragma once

// What a call of the C++ interface returns.
#include <string>
#include <tl/expected.hpp>

#include "ckpt/ckpt.h"

namespace ckpt {
inline namespace v1 {

/// Why a call failed.
struct Error {
  int code = 0;      ///< the exit code of the command line for the same failure
  std::string json;  ///< id, message, file, offset, tensor, hint: see ckpt_last_error_json
};
template <class T = void>
using Result = tl::expected<T, Error>;

namespace detail {

inline tl::unexpected<Error> failure(int code) {
  return tl::unexpected<Error>(Error{code, ckpt_last_error_json()});
}
inline Result<> check(int code) {
  if (code == 0) return {};
  return failure(code);
}
template <auto kRelease>
struct Release {
  template <class Handle>
  void operator()(Handle* handle) const {
    static_cast<void>(kRelease(handle));
  }
};

}  // namespace detail

}  // namespace v1
}  // namespace ckpt
