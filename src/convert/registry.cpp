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

}  // namespace ckpt
