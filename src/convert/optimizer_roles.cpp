#include "convert/optimizer_roles.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace ckpt {
namespace {

constexpr std::uint32_t kSeveral = 0xffffffff;
constexpr std::size_t kPrefixParts = 3;  // "app.model." and the like in front of a parameter's own name

// Slots of torch.optim, for state at the root.
constexpr std::array<std::string_view, 9> kKnownSlots{
    "exp_avg", "exp_avg_sq", "exp_inf", "max_exp_avg_sq", "momentum_buffer", "step", "square_avg", "sum", "grad_avg"};

std::string_view first_part(std::string_view text) {
  return text.substr(0, text.find('.'));
}

/// The text after the first `count` parts, or nothing if there are no more.
std::optional<std::string_view> after_parts(std::string_view text, std::size_t count) {
  for (; count > 0; --count) {
    const std::size_t dot = text.find('.');
    if (dot == std::string_view::npos) return std::nullopt;
    text.remove_prefix(dot + 1);
  }
  return text;
}

bool names_optimizer(std::string_view part) {
  constexpr std::string_view kOptim = "optim";
  if (part == "opt_state") return true;  // of Flax
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return std::search(part.begin(), part.end(), kOptim.begin(), kOptim.end(), same) != part.end();
}

/// The parts of a name before and after `state`.
struct Split {
  bool in_optimizer = false;  // below a part that names an optimizer
  std::string_view rest{};    // after "state.", or, in an optimizer without it, after the optimizer's name
  bool in_state = false;
};

/// Looks for an optimizer's name among the first parts and for "state" right below it, or one part further down.
Split split(std::string_view name) {
  for (std::size_t at = 0; at <= kPrefixParts; ++at) {
    const auto here = after_parts(name, at);
    if (!here) break;
    const auto below = after_parts(*here, 1);
    if (!below) break;
    if (at == 0 && first_part(*here) == "state") return {.rest = *below, .in_state = true};
    if (!names_optimizer(first_part(*here))) continue;
    for (std::size_t deeper = 0; deeper < 2; ++deeper) {
      const auto state = after_parts(*below, deeper);
      const auto rest = after_parts(*below, deeper + 1);
      if (state && rest && first_part(*state) == "state")
        return {.in_optimizer = true, .rest = *rest, .in_state = true};
    }
    return {.in_optimizer = true, .rest = *below};
  }
  return {};
}

std::size_t part_bytes(const PathPart& part) {
  const auto* text = std::get_if<std::string>(&part);
  return text != nullptr ? text->size() : std::to_string(std::get<std::int64_t>(part)).size();
}

/// The part of the path that begins at byte `begin` of the name, or null.
const PathPart* part_at(const Path& path, std::size_t begin) {
  std::size_t at = 0;
  for (const PathPart& part : path) {
    if (at == begin) return &part;
    at += part_bytes(part) + 1;
  }
  return nullptr;
}

/// The parameter at the start of `rest`, by the path if one of its parts ends there: a slot may itself be nested.
std::size_t parameter_length(std::string_view rest, std::string_view name, const Path& path) {
  const std::size_t begin = name.size() - rest.size();
  if (const PathPart* part = part_at(path, begin); part != nullptr && begin + part_bytes(*part) < name.size()) {
    return part_bytes(*part);
  }
  const std::size_t dot = rest.rfind('.');
  return dot == std::string_view::npos ? 0 : dot;
}

bool begins_with(const Path& path, const Path& head) {
  return head.size() < path.size() && std::equal(head.begin(), head.end(), path.begin());
}

/// The innermost known optimizer that holds the path, or null.
const OptimizerState* holder(const Path& path, std::span<const OptimizerState> known) {
  const OptimizerState* found = nullptr;
  for (const OptimizerState& state : known) {
    if (begins_with(path, state.path) && (found == nullptr || state.path.size() > found->path.size())) found = &state;
  }
  return found;
}

/// The split of a name whose first parts are a known optimizer's path.
Split split_below(std::string_view name, const Path& path, std::size_t depth) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < depth; ++i) begin += part_bytes(path[i]) + 1;
  const std::string_view rest = name.substr(begin);
  const auto below = after_parts(rest, 1);
  if (below && first_part(rest) == "state") return {.in_optimizer = true, .rest = *below, .in_state = true};
  return {.in_optimizer = true, .rest = rest};
}

/// Weights by the text after the first one to three parts of their names.
class Weights {
 public:
  explicit Weights(const std::vector<Tensor>& tensors) : tensors_(tensors) {
    for (std::uint32_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].role != Role::param) continue;
      for (std::size_t parts = 0; parts <= kPrefixParts; ++parts) {
        const auto rest = after_parts(tensors[i].name, parts);
        if (!rest || rest->empty()) break;
        const auto [at, is_new] = by_rest_.emplace(*rest, i);
        if (!is_new) at->second = better(at->second, i, rest->size());
      }
    }
  }

  /// The weight that the text means, or the text.
  std::string name(std::string_view text) const {
    const auto found = by_rest_.find(text);
    return std::string(found == by_rest_.end() || found->second == kSeveral ? text : tensors_[found->second].name);
  }

 private:
  /// The exact name is the best, then "model." before other prefixes (an average of the weights, a second model).
  std::uint32_t better(std::uint32_t a, std::uint32_t b, std::size_t rest_bytes) const {
    const auto rank = [&](std::uint32_t i) {
      if (i == kSeveral) return 1;
      const std::string_view name = tensors_[i].name;
      const std::string_view prefix = name.substr(0, name.size() - rest_bytes);
      return prefix.empty() ? 3 : prefix == "model." || prefix.ends_with(".model.") ? 2 : 1;
    };
    return rank(a) == rank(b) ? kSeveral : rank(a) > rank(b) ? a : b;
  }

  const std::vector<Tensor>& tensors_;
  std::unordered_map<std::string_view, std::uint32_t> by_rest_;
};

}  // namespace

bool is_state_of(const Path& path, std::span<const OptimizerState> optimizers) {
  return std::ranges::any_of(optimizers, [&](const OptimizerState& optimizer) {
    const std::size_t depth = optimizer.path.size();
    return path.size() > depth && path[depth] == PathPart("state") &&
           std::equal(optimizer.path.begin(), optimizer.path.end(), path.begin());
  });
}

void assign_roles(std::vector<Tensor>& tensors, const std::vector<Path>& paths, std::span<const OptimizerState> known) {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    Tensor& tensor = tensors[i];
    if (tensor.role == Role::blob) continue;
    const OptimizerState* optimizer = holder(paths[i], known);
    const Split found =
        optimizer != nullptr ? split_below(tensor.name, paths[i], optimizer->path.size()) : split(tensor.name);
    if (!found.in_optimizer && !found.in_state) continue;
    const std::size_t length = found.in_state ? parameter_length(found.rest, tensor.name, paths[i]) : 0;
    const std::string_view slot = length == 0 ? found.rest : found.rest.substr(length + 1);
    if (!found.in_optimizer && (length == 0 || std::ranges::find(kKnownSlots, slot) == kKnownSlots.end())) continue;
    tensor.role = Role::slot;
    tensor.slot = slot;
    if (length == 0) continue;
    const PathPart* key = part_at(paths[i], tensor.name.size() - found.rest.size());
    const auto* index = key != nullptr ? std::get_if<std::int64_t>(key) : nullptr;
    if (index == nullptr) {
      tensor.parameter = found.rest.substr(0, length);
    } else if (optimizer != nullptr) {
      const auto name = optimizer->parameters.find(*index);
      if (name != optimizer->parameters.end()) tensor.parameter = name->second;
    }
    if (!tensor.parameter.empty()) slots.push_back(i);
  }
  const Weights weights(tensors);
  for (const std::uint32_t i : slots) tensors[i].parameter = weights.name(tensors[i].parameter);
}

}  // namespace ckpt
