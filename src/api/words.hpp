#pragma once

/// What the command line and the files of a store read in the same way: sizes and times, the word probably meant,
/// globs.
#include "format/glob.hpp"      // IWYU pragma: export
#include "format/nearest.hpp"   // IWYU pragma: export
#include "format/quantity.hpp"  // IWYU pragma: export
