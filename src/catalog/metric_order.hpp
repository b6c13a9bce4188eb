#pragma once

#include <string_view>

namespace ckpt::catalog {

/// Whether a greater value of the metric is better, by its name: "accuracy", "eval/bleu"; false for any other. It
/// decides where the user does not: `@best`, `best` rules without a direction, presets.
bool is_higher_better(std::string_view metric);

}  // namespace ckpt::catalog
