#pragma once

#include <string_view>

#include "format/result.hpp"

namespace ckpt {

/// Prefixes an error that is passed up with its object: "OBJECT: reason".
inline Error with_context(Error error, std::string_view object) {
  error.message.insert(0, ": ").insert(0, object);
  return error;
}

}  // namespace ckpt
