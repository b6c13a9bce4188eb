#pragma once

#include <vector>

#include "catalog/scan/marks.hpp"
#include "cli/words/words.hpp"

namespace ckpt::cli {

/// The marks that --metric, --tag, --note, --pin and --pin-reason describe, with author and time. Of several of one name
/// the last counts.
/// errors  usage
Result<std::vector<catalog::Mark>> marks_of(const Words& words);

}  // namespace ckpt::cli
