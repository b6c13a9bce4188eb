#pragma once

#include <vector>

#include "cli/words/grammar.hpp"

namespace ckpt::cli {

/// Commands that read the values of checkpoints and write nothing: a part of verbs().
std::vector<Verb> checking_verbs();

}  // namespace ckpt::cli
