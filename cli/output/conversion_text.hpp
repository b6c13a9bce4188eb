#pragma once

#include <string>

#include "api/verbs.hpp"
#include "cli/output/units.hpp"

/// What convert says of a conversion, and save of the one that it is.
namespace ckpt::cli {

/// Two lines: what is read and written where, bytes and memory.
std::string plan_text(const ConvertReport& report, SizeStyle sizes);
/// What was done, in what time, what was checked, and what became of values that were cast.
std::string done_text(const ConvertReport& report, bool cast, SizeStyle sizes);

}  // namespace ckpt::cli
