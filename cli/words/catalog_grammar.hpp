#pragma once

#include <string_view>
#include <vector>

#include "cli/words/grammar.hpp"

namespace ckpt::cli {

/// The commands that work on a store, in the order of the help; for `verbs()`.
std::vector<Verb> catalog_verbs();
/// Listed under planning.
Verb next_save_verb();

/// --store.
Flag store_flag();
/// --store of commands that also take paths.
Flag named_in_flag();

/// How commands that read one checkpoint take a directory of several.
constexpr std::string_view kDirectories =
    "For a directory of checkpoints (a run, a store with one run, a trainer's output directory), uses the newest and "
    "prints its name.";

/// How these commands name a checkpoint.
constexpr std::string_view kPathOrName =
    "A checkpoint of a store may be named instead of a path: RUN@STEP, RUN@latest, RUN@latest~2, RUN@best, RUN@TAG, or "
    "an id prefix of 6 or more digits. Existing paths take precedence.";

}  // namespace ckpt::cli
