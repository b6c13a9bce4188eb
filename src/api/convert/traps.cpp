#include "api/convert/traps.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "format/text/name_list.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kNamed = 3;

/// The tensors of one parameter.
struct HeldNames {
  bool any_slot = false;
  bool master = false;
  bool moments = false;  // a slot other than master and step
};

bool is_float(Dtype dtype) {
  return is_castable(dtype);
}

bool is_half(Dtype dtype) {
  return dtype == Dtype::f16 || dtype == Dtype::bf16;
}

/// "2 of 9 parameters have REASON: a, b"; of a single one with the verb's other form, "has".
void add(std::vector<Finding>& out, const std::vector<std::string_view>& names, std::size_t of, std::string_view one,
         std::string_view many, std::string_view reason) {
  if (names.empty()) return;
  std::string text = std::to_string(names.size()) + " of " + std::to_string(of) + " parameters ";
  text += names.size() == 1 ? one : many;
  text += reason;
  text += ": " + name_list(names, kNamed);
  out.push_back({.text = std::move(text)});
}

}  // namespace

std::vector<Finding> traps(const Map& map) {
  std::unordered_map<std::string_view, std::string_view> tied;  // to the name that is stored
  for (const Alias& alias : map.aliases) tied.emplace(alias.name, alias.target);
  std::unordered_map<std::string_view, HeldNames> held;  // by parameter
  bool any_slot = false;
  bool any_master = false;
  for (const Tensor& tensor : map.tensors) {
    if (tensor.role != Role::slot) continue;
    any_slot = true;
    any_master = any_master || tensor.slot == "master";
    const auto alias = tied.find(tensor.parameter);
    HeldNames& of = held[alias == tied.end() ? std::string_view(tensor.parameter) : alias->second];
    of.any_slot = true;
    of.master = of.master || tensor.slot == "master";
    of.moments = of.moments || (tensor.slot != "master" && tensor.slot != "step");
  }
  std::vector<std::string_view> without_state;
  std::vector<std::string_view> rounded;
  std::vector<std::string_view> without_moments;
  std::size_t floats = 0;
  std::size_t halves = 0;
  for (const Tensor& tensor : map.tensors) {
    if (tensor.role != Role::param || !is_float(tensor.dtype)) continue;
    ++floats;
    halves += is_half(tensor.dtype) ? 1u : 0u;
    const auto found = held.find(tensor.name);
    const HeldNames of = found == held.end() ? HeldNames{} : found->second;
    if (!of.any_slot) without_state.push_back(tensor.name);
    if (of.moments && !of.master && is_half(tensor.dtype)) rounded.push_back(tensor.name);
    if (of.master && !of.moments) without_moments.push_back(tensor.name);
  }
  std::vector<Finding> out;
  if (floats == 0) return out;
  if (!any_slot) {
    const std::string_view kind = halves == floats ? "16-bit weights only (no fp32 masters, no optimizer state)"
                                  : halves != 0 ? "weights only, some in 16 bits (no fp32 masters, no optimizer state)"
                                                : "weights only (no optimizer state)";
    out.push_back({.text = std::string(kind)});
    return out;
  }
  if (without_state.size() == floats) {
    out.push_back(
        {.text = "optimizer state is indexed by number, not by parameter name; it is kept under those numbers"});
  } else {
    add(out, without_state, floats, "has", "have", " no optimizer state (frozen?)");
  }
  add(out, rounded, floats, "is", "are", " 16-bit without an fp32 master: training updates rounded weights");
  if (any_master)
    add(out, without_moments, floats, "has", "have", " a master but no moments: training resumes with zero moments");
  return out;
}

}  // namespace ckpt
