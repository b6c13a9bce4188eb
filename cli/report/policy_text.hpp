#pragma once

#include <string>

#include "api/catalog/policy_file.hpp"
#include "api/catalog/prune.hpp"
#include "cli/report/say.hpp"

/// What `ckpt policy show` and `ckpt policy check` print.
namespace ckpt::cli {

/// The policies, the runs of each, and what each rule keeps today. `run`: only what concerns it, "" for all; it need
/// not exist yet.
void print_shown_policy(Context& context, const PrunePlan& plan, const std::string& run);
/// The same for --json.
std::string shown_policy_data(const PrunePlan& plan, const std::string& run);

void print_checked_policy(Context& context, const CheckedPolicy& checked);
std::string checked_policy_data(const CheckedPolicy& checked);

}  // namespace ckpt::cli
