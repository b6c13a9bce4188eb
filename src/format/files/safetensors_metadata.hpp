#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/model/model.hpp"
#include "format/result.hpp"

/// Members that writers add to `__metadata__` of a safetensors file, besides plain notes.
namespace ckpt::safetensors {

constexpr std::string_view kFormatKey = "format";  ///< "pt"; transformers refuses a file whose metadata lacks it
/// Slices: PyTorch's HuggingFaceStorageWriter, torch/distributed/checkpoint/_hf_utils.py
constexpr std::string_view kSlicesKey = "DCP_SHARDING_INFO";
constexpr std::string_view kSlicesVersionKey = "DCP_VERSION";
// Ours; all begin with "ckpt.".
constexpr std::string_view kOwnPrefix = "ckpt.";
constexpr std::string_view kIdKey = "ckpt.id";      ///< of the conversion that wrote the file
constexpr std::string_view kStepKey = "ckpt.step";  ///< training step, decimal
constexpr std::string_view kFactsKey = "ckpt.tensors";
constexpr std::string_view kBesideKey = "ckpt.beside";  ///< files written with it: build_written_beside

/// The begin of each tensor of a file of slices in its whole tensor: {"<name>": {"saved_offsets": [..]}, ...}.
/// errors  corrupt: not strict JSON, or not of this form
using SavedOffsets = std::unordered_map<std::string, Shape>;
Result<SavedOffsets> parse_saved_offsets(std::string_view text);

/// The model's facts about a tensor for which a safetensors entry has no field.
struct Facts {
  Role role = Role::param;
  std::string parameter{};
  std::string slot{};
  std::string true_dtype{};
  bool operator==(const Facts&) const = default;
};

/// The role by the name alone: `optimizer.state.<parameter>.<slot>` is a slot, everything else a parameter.
Facts facts_by_name(std::string_view name);

/// The facts that names do not show, as text for kFactsKey; empty if there are none. Names are those of the file.
std::string build_facts(const std::vector<std::pair<std::string_view, Facts>>& tensors);

/// Reads them back.
/// errors  corrupt: not strict JSON, or not of the form that build_facts gives
Result<std::unordered_map<std::string, Facts>> parse_facts(std::string_view text);

}  // namespace ckpt::safetensors
