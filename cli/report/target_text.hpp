#pragma once

#include <string>

#include "api/verbs.hpp"
#include "cli/text/units.hpp"

namespace ckpt::cli {

/// Text about the target of a command.
std::string already_done_text(const std::string& target, const std::string& id);
/// What a failure has left at the target; empty if that is obvious.
std::string effect_on(const std::string& target, const Error& error, bool dry_run, bool overwrite);

/// What --overwrite removes from the old target; each file if `listed`. Empty if it removes nothing.
std::string replaced_text(const ConvertReport& report, bool listed, SizeStyle sizes);

}  // namespace ckpt::cli
