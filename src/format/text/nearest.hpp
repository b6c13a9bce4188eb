#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ckpt {

/// Edits between two words: insert, delete, replace, swap of neighbours (Damerau, optimal string alignment). Bytes.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate that the user probably meant by `word`: the nearest within a third of its letters (at least one edit),
/// or the only one that begins with it. Nothing if no candidate is near.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace ckpt
