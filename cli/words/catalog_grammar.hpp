#pragma once

#include <string_view>
#include <vector>

#include "cli/words/grammar.hpp"

namespace ckpt::cli {

/// The verbs that work on a store, in the order in which they are shown; for `verbs()`.
std::vector<Verb> catalog_verbs();

/// --store.
Flag store_flag();
/// The same, of verbs that take paths too.
Flag named_in_flag();

/// How they name a checkpoint of it.
constexpr std::string_view kPathOrName =
    "In place of a path, use RUN@STEP, RUN@latest, RUN@latest~2, RUN@best, RUN@TAG, or the first 6 or more digits of "
    "an id, for a checkpoint in a store. An existing path takes precedence.";

}  // namespace ckpt::cli
