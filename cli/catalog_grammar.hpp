#pragma once

#include <vector>

#include "cli/grammar.hpp"

namespace ckpt::cli {

/// The verbs that work on a store, in the order in which they are shown; for `verbs()`.
std::vector<Verb> catalog_verbs();

/// --store.
Flag store_flag();

}  // namespace ckpt::cli
