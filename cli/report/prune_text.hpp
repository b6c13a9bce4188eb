#pragma once

#include <string>

#include "api/catalog/prune.hpp"
#include "cli/report/say.hpp"

/// What `ckpt prune` shows to people.
namespace ckpt::cli {

/// The policies, one line for each run, the decisions with their reasons, and notes. `applied`: it is carried out next.
void print_plan(Context& context, const PrunePlan& plan, bool applied);

/// After a dry run: what would be deleted, and the command that does it.
void print_plan_end(Context& context, const PrunePlan& plan);

/// After the plan was carried out: what was deleted, and the command that brings it back.
void print_report(Context& context, const PrunePlan& plan, const PruneReport& report, catalog::Time deleted);

/// What --check-policy shows.
void print_check_policy(Context& context, const PrunePlan& plan);

/// Why a guard stopped the plan, and what to do: Errc::guarded. Of the first part that was stopped.
Error guard_error(const PrunePlan& plan);

}  // namespace ckpt::cli
