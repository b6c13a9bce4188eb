#pragma once

#include <vector>

#include "cli/words/grammar.hpp"

namespace ckpt::cli {

/// Commands that write a checkpoint from another one: a part of verbs().
std::vector<Verb> conversion_verbs();

}  // namespace ckpt::cli
