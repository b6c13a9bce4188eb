#pragma once

#include <string>
#include <string_view>

#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt {

/// A finding that ends a command: "OBJECT: text", with the finding's file, tensor and offset.
inline Error as_error(const Finding& finding, std::string_view object, Errc code) {
  return {.code = code,
          .message = std::string(object) + ": " + finding.text,
          .file = finding.file,
          .offset = finding.offset,
          .tensor = finding.tensor};
}

}  // namespace ckpt
