#include "convert/torch/name_metrics.hpp"

#include <charconv>
#include <cmath>
#include <system_error>

namespace ckpt::torch {

std::vector<std::pair<std::string, double>> metrics_in_name(std::string_view name) {
  std::vector<std::pair<std::string, double>> out;
  while (!name.empty()) {
    const std::size_t equals = name.find('=');
    if (equals == name.npos) return out;
    const std::string_view key = name.substr(0, equals);
    name.remove_prefix(equals + 1);
    double value = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
    if (error != std::errc()) return out;
    name.remove_prefix(static_cast<std::size_t>(end - name.data()));
    if (!name.empty() && name.front() != '-' && name.front() != '.') return out;  // not the whole value
    if (!key.empty() && key != "epoch" && key != "step" && std::isfinite(value)) out.emplace_back(key, value);
    if (!name.starts_with('-')) return out;
    name.remove_prefix(1);
  }
  return out;
}

}  // namespace ckpt::torch
