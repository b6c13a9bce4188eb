#pragma once

#include <string_view>

#include "format/result.hpp"

namespace ckpt {

/// Puts what an error is about before its message, on its way up: "OBJECT: reason".
inline Error with_context(Error error, std::string_view object) {
  error.message.insert(0, ": ").insert(0, object);
  return error;
}

}  // namespace ckpt
