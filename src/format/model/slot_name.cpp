#include "format/model/slot_name.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kPrefix = "optimizer.state.";

}  // namespace

std::string slot_name(std::string_view parameter, std::string_view slot) {
  std::string out(kPrefix);
  return out.append(parameter).append(".").append(slot);
}

std::optional<std::string_view> parameter_in(std::string_view name, std::string_view slot) {
  const std::size_t around = kPrefix.size() + 1 + slot.size();
  if (name.size() <= around || !name.starts_with(kPrefix) || !name.ends_with(slot)) return std::nullopt;
  if (name[name.size() - slot.size() - 1] != '.') return std::nullopt;
  return name.substr(kPrefix.size(), name.size() - around);
}

}  // namespace ckpt
