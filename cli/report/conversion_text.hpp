#pragma once

#include <string>

#include "api/verbs.hpp"
#include "cli/text/units.hpp"

/// Text about a conversion, for convert and save.
namespace ckpt::cli {

/// Two lines: source and target, bytes and memory.
std::string plan_text(const ConvertReport& report, SizeStyle sizes);
/// Results: duration, checks, and casts that changed values.
std::string done_text(const ConvertReport& report, bool cast, SizeStyle sizes);

}  // namespace ckpt::cli
