#include "engine/store/foreign_names.hpp"

#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

constexpr char kStep = '#';
constexpr char kAnyText = '*';

std::optional<std::uint64_t> step_by(std::string_view pattern, std::string_view name) {
  const std::size_t at = pattern.find(kStep);
  std::string_view before = pattern.substr(0, at);
  const bool ends_with_step = !pattern.ends_with(kAnyText);
  if (before.starts_with(kAnyText)) {
    before.remove_prefix(1);
    const std::size_t found = name.rfind(before);
    if (found == std::string_view::npos) return std::nullopt;
    name.remove_prefix(found);
  }
  if (!name.starts_with(before)) return std::nullopt;
  name.remove_prefix(before.size());
  return ends_with_step ? parse_number<std::uint64_t>(name) : take_number<std::uint64_t>(name);
}

}  // namespace

std::optional<std::uint64_t> ForeignNames::step_in(std::string_view name) const {
  for (const std::string_view pattern : steps) {
    if (const auto step = step_by(pattern, name)) return step;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> ForeignNames::step_in(const DirEntry& entry) const {
  if (entry.kind == FileInfo::Kind::directory) return step_in(entry.name);
  if (entry.kind != FileInfo::Kind::file || entry.is_link) return std::nullopt;
  const std::string_view name = entry.name;
  for (const std::string_view suffix : file_suffixes) {
    if (name.ends_with(suffix)) return step_in(name.substr(0, name.size() - suffix.size()));
  }
  return std::nullopt;
}

std::vector<std::pair<std::string, double>> ForeignNames::metrics_in_file(std::string_view name) const {
  for (const auto& metrics_in : name_metrics) {
    if (auto found = metrics_in(name); !found.empty()) return found;
  }
  return {};
}

}  // namespace ckpt
