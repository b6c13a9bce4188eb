#pragma once

#include <string_view>
#include <vector>

#include "cli/grammar.hpp"

namespace ckpt::cli {

/// The verbs that work on a store, in the order in which they are shown; for `verbs()`.
std::vector<Verb> catalog_verbs();

/// --store.
Flag store_flag();
/// The same, of verbs that take paths too.
Flag named_in_flag();

/// How they name a checkpoint of it.
constexpr std::string_view kPathOrName =
    "Instead of a path, name a checkpoint in a store as RUN@STEP, RUN@latest, RUN@latest~2, RUN@best, RUN@TAG, or by 6 "
    "or more digits of its id; an existing path takes precedence.";

}  // namespace ckpt::cli
