#pragma once

#include "cli/words/grammar.hpp"

namespace ckpt::cli {

/// The flag, as one that -h only names.
Flag seldom(Flag flag);

// Flags that several commands have which read or write a checkpoint.

/// --from.
Flag from_flag();
/// --map.
Flag map_flag();
Flag names_flag();
Flag vocab_size_flag();
/// -n, of commands that show bytes and memory.
Flag dry_run_flag();
/// --restart.
Flag restart_flag();
/// --verify of a conversion.
Flag verify_level_flag();

/// --tsv: a table as tab-separated values.
Flag tsv_flag();

}  // namespace ckpt::cli
