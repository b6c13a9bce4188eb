#pragma once

#include <vector>

#include "cli/words/grammar.hpp"

namespace ckpt::cli {

/// What deletes checkpoints of a store, brings them back, and says why: a part of verbs().
std::vector<Verb> retention_verbs();

}  // namespace ckpt::cli
