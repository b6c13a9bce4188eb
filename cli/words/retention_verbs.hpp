#pragma once

#include <vector>

#include "cli/words/grammar.hpp"

namespace ckpt::cli {

/// Commands that delete and restore checkpoints of a store, and explain deletions: a part of verbs().
std::vector<Verb> retention_verbs();

}  // namespace ckpt::cli
