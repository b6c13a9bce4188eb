#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckpt {

/// A file in the folder of a checkpoint whose own files have no place for this list.
constexpr std::string_view kBesideFile = "ckpt.beside";

/// Files that a conversion wrote beside a checkpoint (config.json, the tokenizer's): paths below the folder, and
/// hash128(bytes).words()[0]. Later it may replace them, as long as they are unchanged.
using WrittenBeside = std::vector<std::pair<std::string, std::uint64_t>>;

/// The list as text: {"config.json":"16 digits",...}.
std::string build_written_beside(const WrittenBeside& files);
/// Reads it back; nothing if it is not of that form, or names what is_extra_name does not know.
WrittenBeside parse_written_beside(std::string_view text);

}  // namespace ckpt
