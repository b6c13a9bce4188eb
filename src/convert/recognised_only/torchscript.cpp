#include <fmt/format.h>

#include <array>

#include "convert/formats.hpp"
#include "convert/torch_program.hpp"

namespace ckpt {
namespace {

constexpr std::array<std::string_view, 1> kTorchScriptSuffixes{".pt2"};

Result<std::optional<Match>> detect_torchscript(const Place& place) {
  const std::string_view kind = torch_program_kind(place);
  if (kind.empty()) return std::nullopt;
  return Match{
      .why = fmt::format("a zip archive of {}", kind),
      .hint = "load it in Python (torch.jit.load, torch.export.load) and save its state_dict() with torch.save"};
}

}  // namespace

Format torchscript_format() {
  return {.name = "torchscript",
          .summary = "a TorchScript or torch.export program",
          .detect = detect_torchscript,
          .suffixes = kTorchScriptSuffixes};
}

}  // namespace ckpt
