#pragma once

/// What the command line and the files of a store read in the same way: sizes and times, the word probably meant,
/// globs.
#include "format/text/glob.hpp"      // IWYU pragma: export
#include "format/text/nearest.hpp"   // IWYU pragma: export
#include "format/text/quantity.hpp"  // IWYU pragma: export
