#pragma once

#include "cli/report/say.hpp"

namespace ckpt::cli {

/// Each command calls the api, prints text for people (unless --json), and returns the data for the exit code and the
/// JSON document. The caller prints errors.
Answer run_convert(Context& context);
Answer run_save(Context& context);
Answer run_export(Context& context);
Answer run_complete(Context& context);
Answer run_verify(Context& context);
Answer run_diff(Context& context);
Answer run_stats(Context& context);
Answer run_inspect(Context& context);
Answer run_ls(Context& context);
Answer run_plan(Context& context);
Answer run_doctor(Context& context);
Answer run_policy(Context& context);
Answer run_prune(Context& context);
Answer run_repair(Context& context);
Answer run_rm(Context& context);
Answer run_undelete(Context& context);
Answer run_why(Context& context);
Answer run_list(Context& context);
Answer run_status(Context& context);
Answer run_mark(Context& context);
Answer run_pin(Context& context);
Answer run_unpin(Context& context);
Answer run_next_save(Context& context);
Answer run_help(Context& context);
Answer run_explain(Context& context);
Answer run_version(Context& context);
Answer run_completion(Context& context);

}  // namespace ckpt::cli
