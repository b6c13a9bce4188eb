#pragma once

/// Parsed the same way on the command line and in the files of a store: sizes and times, suggestions,
/// globs.
#include "format/text/glob.hpp"      // IWYU pragma: export
#include "format/text/nearest.hpp"   // IWYU pragma: export
#include "format/text/quantity.hpp"  // IWYU pragma: export
