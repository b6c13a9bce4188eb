#include <array>

#include "convert/formats.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kOnnxSuffix = ".onnx";
constexpr std::array kOnnxSuffixes{kOnnxSuffix};
constexpr char kFirstField = 0x08;  // protobuf: ir_version, field 1, a varint

Result<std::optional<Match>> detect_onnx(const Place& place) {
  if (place.directory || !place.root.ends_with(kOnnxSuffix)) return std::nullopt;
  CKPT_TRY(const std::string head, place.head("", 1));
  if (head.empty() || head[0] != kFirstField) return std::nullopt;
  return Match{.why = "an .onnx file",
               .hint = "read its initializers in Python (onnx.numpy_helper) and save them as safetensors"};
}

}  // namespace

Format onnx_format() {
  return {.name = "onnx", .summary = "an ONNX model", .detect = detect_onnx, .suffixes = kOnnxSuffixes};
}

}  // namespace ckpt
