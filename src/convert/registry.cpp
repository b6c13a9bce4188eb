#include "convert/format.hpp"

#include <array>

#include "convert/formats.hpp"

namespace ckpt {
namespace {

#define CKPT_CALL_FORMAT(NAME) NAME##_format(),
const std::array kFormats{CKPT_FORMATS(CKPT_CALL_FORMAT)};
#undef CKPT_CALL_FORMAT

}  // namespace

std::span<const Format> formats() {
  return kFormats;
}

const Format* find_format(std::string_view name) {
  for (const Format& format : formats()) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

}  // namespace ckpt
