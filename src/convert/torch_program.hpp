#pragma once

#include <string_view>

#include "convert/place.hpp"

namespace ckpt {

/// Which kind of program in a zip archive a file is: "TorchScript" or "torch.export"; empty for any other file. Looks
/// at the names in the archive's directory, as far as they are in the last 64 KiB of the file.
/// source   torch: csrc/jit/serialization/export_module.cpp, export/pt2_archive/constants.py
std::string_view torch_program_kind(const Place& place);

}  // namespace ckpt
