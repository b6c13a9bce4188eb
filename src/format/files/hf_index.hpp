#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/result.hpp"

/// The index of a checkpoint split over several files, in Hugging Face's form: `model.safetensors.index.json`,
/// `pytorch_model.bin.index.json`: {"metadata": {"total_size": bytes, ...}, "weight_map": {name: file}}. If there is
/// one, it alone decides which file holds a tensor; files may hold stale tensors of the same name.
namespace ckpt::hf {

constexpr std::size_t kMaxIndexBytes = 100'000'000;

struct Index {
  std::optional<std::uint64_t> total_size{};                      ///< bytes of all tensors, where given as an integer
  std::vector<std::pair<std::string, std::string>> weight_map{};  ///< tensor -> file, in document order
};

/// errors   corrupt: not strict JSON, or no weight_map of text to text; refused: a file that is not below the index's
///          own directory (absolute, "..", empty or "." parts, NUL)
/// offsets  of errors are bytes from the start of the text
Result<Index> parse_index(std::string_view text);

/// Writes the index as transformers does: two blanks of indentation, names in byte order.
std::string build_index(const Index& index);

}  // namespace ckpt::hf
