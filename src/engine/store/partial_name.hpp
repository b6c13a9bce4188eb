#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

/// Names of unfinished targets.
namespace ckpt {

/// Part of the name of every partial and its record.
constexpr std::string_view kPartialMark = ".partial-";
constexpr std::size_t kPartialIdDigits = 32;

/// The path of the partial of a publication: for ranks that did not create it but know its target and id.
std::string partial_path(std::string_view target, std::string_view id);

/// The parts of a partial's name. Nothing for any other form: such a name is not ours, and is never
/// swept.
struct PartialName {
  std::string_view target;
  std::string_view id;  ///< 32 hex digits
};
std::optional<PartialName> parse_partial_name(std::string_view name);
/// Whether a path is a partial or below one: it is uncommitted, and will be swept.
bool is_in_partial(std::string_view path);

}  // namespace ckpt
