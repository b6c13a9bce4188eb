#include "cli/words/retention_verbs.hpp"

#include "catalog/policy_presets.hpp"
#include "cli/words/catalog_grammar.hpp"
#include "cli/words/conversion_flags.hpp"

namespace ckpt::cli {
namespace {

Flag lock_timeout_flag() {
  return {.name = "lock-timeout",
          .value = "TIME",
          .help = "time to wait for another process that deletes in this store (default: do not wait)",
          .guesses = {"wait", "retry-lock", "lock-wait"}};
}

Verb prune_verb() {
  const auto keep = [](std::string_view name, std::string_view value, std::string_view help) {
    return Flag{.name = name, .value = value, .help = help, .repeatable = true};
  };
  return {
      .name = "prune",
      .arguments = "[RUN]...",
      .most_arguments = 1000,
      .summary = "Delete checkpoints by policy; dry run without --apply",
      .about =
          {"Without --apply, prune shows the plan and changes nothing. The policy comes from STORE/ckpt.toml, --policy or "
           "options. RUN is a pattern of run names (default: all runs). Checkpoints that no rule keeps move to the "
           "trash, where ckpt undelete can restore them during the grace period. After it, the next prune deletes them "
           "permanently.",
           "Prune never deletes the newest verified checkpoint of a run, or the newest one if none is verified. It also "
           "keeps checkpoints that are pinned, in use, referenced by others, unreadable, or repairable by ckpt repair; "
           "the targets of 'latest' and other links, and the links; virtual checkpoints, which count for no rule; and "
           "unfinished saves. Checkpoints of other tools stay if their name has no step, or for 10 minutes after their "
           "last change. Before deleting anything, prune checks the checkpoints that it keeps. The first run of a new or changed policy deletes at most "
           "half of the checkpoints unless -y is given. On network file systems, readers register in .ckpt/claims; "
           "prune deletes nothing there for 10 minutes after its first run."},
      .aliases = {"forget", "gc"},
      .flags =
          {
              store_flag(),
              {.name = "apply", .help = "carry out the plan", .guesses = {"do", "force", "f"}},
              {.name = "yes",
               .letter = 'y',
               .help = "approve the first run of a new or changed policy, however much it deletes"},
              {.name = "dry-run", .letter = 'n', .help = "show the plan (default)", .guesses = {"preview"}},
              tsv_flag(),
              {.name = "check", .help = "show the plan; exit with 1 if something would be deleted", .seldom = true},
              {.name = "check-policy", .help = "show what each rule keeps today", .seldom = true},
              {.name = "simulate",
               .help =
                   "simulate the policy for a run that saves every --interval steps up to --until, and show disk usage",
               .seldom = true},
              {.name = "interval", .value = "STEPS", .help = "with --simulate: steps between saves", .seldom = true},
              {.name = "until", .value = "STEPS", .help = "with --simulate: last step", .seldom = true},
              {.name = "step-time",
               .value = "TIME",
               .help = "with --simulate: duration of a step (default: 1s)",
               .seldom = true},
              {.name = "checkpoint-size",
               .value = "SIZE",
               .help = "with --simulate: size of one checkpoint (default: the last one saved)",
               .seldom = true},
              {.name = "policy", .value = "FILE", .help = "policy file (default: STORE/ckpt.toml)"},
              {.name = "import-policy",
               .value = "SYSTEM:OPTION=VALUE,...",
               .help = "policy of another system by its own options, e.g. hf:save_total_limit=3",
               .seldom = true},
              seldom(keep("keep", "RULES", "keep by several rules, e.g. last=3,6h*8,1d*14")),
              keep("keep-last", "N", "keep the newest N"),
              keep("keep-first", "N", "keep the oldest N"),
              keep("keep-every", "STEPS", "keep steps that are multiples of STEPS"),
              keep("keep-within", "TIME", "keep checkpoints saved within this time before the newest one"),
              seldom(keep("keep-hourly", "N", "keep the newest of each of N hours")),
              keep("keep-daily", "N", "keep the newest of each of N days"),
              seldom(keep("keep-weekly", "N", "keep the newest of each of N weeks")),
              seldom(keep("keep-monthly", "N", "keep the newest of each of N months")),
              seldom(keep("keep-yearly", "N", "keep the newest of each of N years")),
              keep(
                  "keep-best", "METRIC:N",
                  "keep the N best by METRIC: lowest first, or highest first for metrics such as acc or score; METRIC:N:min "
                  "or :max sets the direction"),
              keep("keep-tag", "TAG", "keep checkpoints with this tag"),
              {.name = "max-size",
               .value = "SIZE",
               .help = "limit the total size, even by deleting checkpoints that the rules keep"},
              {.name = "min-free",
               .value = "SHARE",
               .help = "keep this much of the volume free, e.g. 10%, even by deleting checkpoints that the rules keep",
               .seldom = true},
              {.name = "max-delete",
               .value = "SHARE",
               .help = "limit for the first run of a new or changed policy (default: 50%)",
               .seldom = true},
              {.name = "grace",
               .value = "TIME",
               .help = "time that deleted checkpoints stay in the trash (default: 24h; 0: delete at once)"},
              {.name = "purge-early-below",
               .value = "SHARE",
               .help = "purge the trash early if free space drops below this (default: 5%; 0: never)",
               .seldom = true},
              {.name = "foreign-min-age",
               .value = "TIME",
               .help = "treat other tools' checkpoints modified within this time as unfinished (default: 10m)",
               .seldom = true},
              {.name = "include-damaged",
               .help = "allow deleting damaged checkpoints, except the last one of a run",
               .seldom = true},
              {.name = "drop-series",
               .value = "N",
               .help = "allow deleting the last verified checkpoint of series N, superseded by a rollback",
               .repeatable = true,
               .seldom = true},
              seldom(lock_timeout_flag()),
          },
      .examples = {{"ckpt prune --keep-last 2 --keep-every 5000", "dry run of these rules"},
                   {"ckpt prune --store /lustre/runs --apply", "apply the policy of /lustre/runs/ckpt.toml"},
                   {"ckpt prune --check-policy", "what each rule keeps today"},
                   {"ckpt prune --simulate --interval 500 --until 100000", "space and risk of the policy"},
                   {"ckpt prune 'exp*' --keep-best loss:3 --grace 7d --apply",
                    "matching runs, with a week to undelete"}},
      .exit_codes = {1, 3, 4, 10, 11, 12, 14, 16},
  };
}

Verb policy_verb() {
  return {
      .name = "policy",
      .arguments = "init|show|check|simulate [STORE | FILE] [RUN]",
      .least_arguments = 1,
      .most_arguments = 3,
      .summary = "Create, show, check or simulate the retention policy of a store",
      .about =
          {"Manage STORE/ckpt.toml, the policy that 'ckpt prune' applies. STORE defaults to --store, "
           "CKPT_STORE, the enclosing store, or the current directory. Nothing is deleted.",
           "init [STORE] writes a commented policy file. It never overwrites one; -n prints it instead. Presets: research "
           "(last 3, every 5000 steps, best 2 if there are metrics), production (last 5, hourly for a day, daily for two "
           "weeks, tagged ones), space (last 2; older ones lose their optimizer; 10% of the volume stays free).",
           "show [STORE] [RUN] lists the rules of each run, what they keep now, and runs without a rule. With --store, "
           "the argument is RUN.",
           "check [STORE | FILE] reports errors with line numbers, and what changed since the last prune. A changed "
           "policy needs -y to delete more than half.",
           "simulate [STORE] saves every --interval steps until --until, prunes after each save, and shows the peak "
           "disk usage, the risks, and what is kept over time."},
      .aliases = {"policies"},
      .flags = {store_flag(),
                {.name = "preset",
                 .value = "NAME",
                 .help = "with init: preset to start from (default: research)",
                 .choices = {catalog::kPresetNames.begin(), catalog::kPresetNames.end()},
                 .guesses = {"template", "profile"}},
                {.name = "dry-run",
                 .letter = 'n',
                 .help = "with init: print the file; write nothing",
                 .guesses = {"preview"}},
                {.name = "policy",
                 .value = "FILE",
                 .help = "with show and simulate: policy file (default: STORE/ckpt.toml)"},
                {.name = "interval", .value = "STEPS", .help = "with simulate: steps between saves"},
                {.name = "until", .value = "STEPS", .help = "with simulate: last step"},
                {.name = "step-time", .value = "TIME", .help = "with simulate: duration of a step (default: 1s)"},
                {.name = "checkpoint-size",
                 .value = "SIZE",
                 .help = "with simulate: size of one checkpoint (default: the last one saved)"}},
      .examples = {{"ckpt policy init --preset production /lustre/runs", "write /lustre/runs/ckpt.toml"},
                   {"ckpt policy show /lustre/runs llama8b", "what applies to one run"},
                   {"ckpt policy check /lustre/runs", "is it valid, and what changed?"},
                   {"ckpt policy simulate /lustre/runs --interval 500 --until 100000", "space and risk over time"}},
      .exit_codes = {10, 12, 14, 16},
  };
}

Verb rm_verb() {
  return {
      .name = "rm",
      .arguments = "NAME...",
      .least_arguments = 1,
      .most_arguments = 1000,
      .summary = "Delete checkpoints by name: move them to the trash",
      .about =
          {"NAME is RUN@STEP, RUN@TAG, RUN/DIRECTORY, an id prefix of 6 or more digits, or a path in the store. If a step was "
           "saved more than once, RUN@STEP is the newest save. ckpt undelete restores it during the grace period of the store's "
           "policy (default: 24h); after it, the next prune deletes it permanently.",
           "Refuses to delete the newest checkpoint of a run, the newest verified one, and checkpoints that are pinned, in "
           "use, referenced by others or named by 'latest'. It deletes the others and exits with 3."},
      .aliases = {"delete", "remove"},
      .flags = {store_flag(),
                {.name = "dry-run", .letter = 'n', .help = "show what would be deleted", .guesses = {"preview"}},
                lock_timeout_flag()},
      .examples = {{"ckpt rm llama8b@11000 llama8b@12000", "two checkpoints"},
                   {"ckpt rm llama8b@broken -n --store /lustre/runs", "dry run, by tag"}},
      .exit_codes = {3, 10, 11, 12, 14, 16},
  };
}

Verb undelete_verb() {
  return {
      .name = "undelete",
      .arguments = "[NAME | RUN]...",
      .most_arguments = 1000,
      .summary = "Restore deleted checkpoints from the trash",
      .about =
          {"NAME is RUN@STEP, RUN/DIRECTORY or an id prefix of 6 or more digits. If a step was saved more than once, "
           "RUN@STEP is the newest save. A run name or pattern restores all of its checkpoints. Existing checkpoints are "
           "never replaced. Prune does not delete a restored checkpoint during a new grace period; --pin keeps it until it "
           "is unpinned. 'ckpt list --trash' lists the trash."},
      .aliases = {"restore-deleted", "untrash"},
      .flags = {store_flag(),
                {.name = "all", .help = "restore everything in the trash"},
                {.name = "since",
                 .value = "TIME",
                 .help = "only what was deleted within this time (1h) or since this day (2026-01-31)",
                 .guesses = {"after", "newer"}},
                {.name = "pin", .help = "pin what is restored: no policy deletes it", .guesses = {"keep", "hold"}},
                lock_timeout_flag()},
      .examples = {{"ckpt undelete llama8b@11000 --store /lustre/runs", "restore one checkpoint"},
                   {"ckpt undelete --since 1h", "undo the last prune"},
                   {"ckpt undelete llama8b --pin", "everything of a run, until unpinned"}},
      .exit_codes = {3, 10, 11, 12, 14, 16},
  };
}

Verb why_verb() {
  return {
      .name = "why",
      .arguments = "NAME",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "Show why a checkpoint is kept or was deleted",
      .about =
          {"Names the rule, and for a deleted checkpoint also the time and the user. NAME is RUN@STEP, RUN/DIRECTORY "
           "or an id prefix of 6 or more digits; for an existing checkpoint also RUN@latest, RUN@best or RUN@TAG. "
           "Records of deletions are kept for a year."},
      .flags = {store_flag(), {.name = "policy", .value = "FILE", .help = "policy file (default: STORE/ckpt.toml)"}},
      .examples = {{"ckpt why llama8b@11000", "the rules that keep it, or who deleted it"}},
      .exit_codes = {10, 16},
  };
}

Verb repair_verb() {
  return {
      .name = "repair",
      .arguments = "[PATH]",
      .most_arguments = 1,
      .summary = "Find damage and leftovers of crashed saves; repair them with --apply",
      .about =
          {"PATH is a store, a run, a checkpoint in the ckpt format, or the leftover of a killed save (default: --store or "
           "CKPT_STORE). Without --apply, repair changes nothing. With --apply, it removes killed saves and conversions that no "
           "process holds; restores a lost or truncated manifest.json from its copy, or the copy from it, after "
           "checking every checksum of the checkpoint; and finishes interrupted deletions. A conversion that can "
           "be resumed is removed only if PATH names it.",
           "Damaged data cannot be restored. --out writes the intact tensors to NEW, a separate checkpoint that lists "
           "the lost tensors; the damaged one is not changed. Exit code 1: a checkpoint is still damaged; 3: "
           "something could not be checked or repaired, or tensors were lost.",
           kPathOrName},
      .aliases = {"recover", "salvage"},
      .flags = {{.name = "apply", .help = "carry out the plan", .guesses = {"do", "force", "f", "y", "yes"}},
                {.name = "dry-run", .letter = 'n', .help = "show the plan (default)", .guesses = {"preview"}},
                {.name = "out",
                 .value = "NEW",
                 .help = "write the intact tensors of a damaged checkpoint to a new checkpoint",
                 .guesses = {"output", "o", "salvage"}},
                named_in_flag(),
                lock_timeout_flag()},
      .examples = {{"ckpt repair /lustre/runs", "show leftovers and damage"},
                   {"ckpt repair /lustre/runs --apply", "repair it"},
                   {"ckpt repair runs/llama8b/step-000011000.g12 --out saved", "salvage the intact tensors"}},
      .exit_codes = {1, 3, 10, 11, 12, 13, 14, 15, 16, 17},
  };
}

}  // namespace

std::vector<Verb> retention_verbs() {
  return {prune_verb(), policy_verb(), rm_verb(), undelete_verb(), repair_verb(), why_verb()};
}

}  // namespace ckpt::cli
