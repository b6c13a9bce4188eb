#include "cli/words/retention_verbs.hpp"

#include "cli/words/catalog_grammar.hpp"

namespace ckpt::cli {
namespace {

Flag lock_timeout_flag() {
  return {.name = "lock-timeout",
          .value = "TIME",
          .help = "time to wait for another process that is deleting in this store; by default do not wait",
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
      .summary = "Show what the retention policy would delete and why, and with --apply delete it",
      .about =
          {"Without --apply nothing is changed. The policy comes from STORE/ckpt.toml, from --policy or from flags. "
           "RUN is a pattern of run names; the default is all runs. Checkpoints that no rule keeps are moved to the "
           "trash. ckpt undelete restores them during the grace period; the next prune after it deletes them "
           "permanently.",
           "Prune never deletes the newest verified checkpoint of a run (or the newest, if none is verified), pinned "
           "checkpoints, checkpoints in use, checkpoints that others depend on, targets of 'latest' and other "
           "links, symbolic links, unfinished saves, or checkpoints that cannot be read or that ckpt repair can fix. "
           "It also keeps other tools' checkpoints that have no step in their name or a file modified in the last 10 "
           "minutes. Before deleting anything it checks the checkpoints it keeps. The first run of a new or changed "
           "policy deletes at most half of the checkpoints unless -y is given. On network file systems, readers on "
           "other hosts register in .ckpt/claims; for 10 minutes after its first prune, nothing in such a store is "
           "deleted."},
      .aliases = {"forget", "gc"},
      .flags =
          {
              store_flag(),
              {.name = "apply", .help = "carry out the plan", .guesses = {"do", "force", "f"}},
              {.name = "yes",
               .letter = 'y',
               .help = "approve the first run of a new or changed policy, no matter how much it deletes"},
              {.name = "dry-run", .letter = 'n', .help = "show the plan only (default)", .guesses = {"preview"}},
              {.name = "check", .help = "show the plan only; exit with 1 if something would be deleted"},
              {.name = "check-policy", .help = "show what each rule means for the current checkpoints"},
              {.name = "simulate",
               .help = "try the policy on a simulated run that saves every --interval steps until --until, and show "
                       "the space it takes"},
              {.name = "interval", .value = "STEPS", .help = "with --simulate: steps between saves"},
              {.name = "until", .value = "STEPS", .help = "with --simulate: last step"},
              {.name = "step-time", .value = "TIME", .help = "with --simulate: duration of a step; default 1s"},
              {.name = "checkpoint-size",
               .value = "SIZE",
               .help = "with --simulate: size of one checkpoint; by default that of the last one saved"},
              {.name = "policy", .value = "FILE", .help = "policy file to use instead of STORE/ckpt.toml"},
              {.name = "import-policy",
               .value = "SYSTEM:OPTION=VALUE,...",
               .help = "use another system's policy, given by its own options, such as hf:save_total_limit=3"},
              keep("keep", "RULES", "keep by several rules, such as last=3,6h*8,1d*14"),
              keep("keep-last", "N", "keep the newest N"),
              keep("keep-first", "N", "keep the oldest N"),
              keep("keep-every", "STEPS", "keep steps that are multiples of STEPS"),
              keep("keep-within", "TIME", "keep checkpoints at most this much older than the newest"),
              keep("keep-hourly", "N", "keep the newest of each of N hours"),
              keep("keep-daily", "N", "keep the newest of each of N days"),
              keep("keep-weekly", "N", "keep the newest of each of N weeks"),
              keep("keep-monthly", "N", "keep the newest of each of N months"),
              keep("keep-yearly", "N", "keep the newest of each of N years"),
              keep("keep-best", "METRIC:N", "keep the N with the lowest METRIC; METRIC:N:max for the highest"),
              keep("keep-tag", "TAG", "keep checkpoints with this tag"),
              {.name = "max-size",
               .value = "SIZE",
               .help = "relax rules until the kept checkpoints take less than this"},
              {.name = "min-free",
               .value = "SHARE",
               .help = "relax rules until this share of the volume is free, such as 10%"},
              {.name = "max-delete",
               .value = "SHARE",
               .help = "largest share that the first run of a new or changed policy may delete; default 50%"},
              {.name = "grace",
               .value = "TIME",
               .help = "time that deleted checkpoints stay in the trash; default 24h, 0 removes at once"},
              {.name = "purge-early-below",
               .value = "SHARE",
               .help = "empty the trash early when less space than this is free; default 5%, 0 never does"},
              {.name = "foreign-min-age",
               .value = "TIME",
               .help = "treat another tool's checkpoint that was written within this time as unfinished; default 10m"},
              {.name = "include-corrupt", .help = "allow deleting corrupt checkpoints, except the last one of a run"},
              {.name = "drop-series",
               .value = "N",
               .help = "allow deleting the last verified checkpoint of superseded series N",
               .repeatable = true},
              lock_timeout_flag(),
          },
      .examples = {{"ckpt prune --keep-last 2 --keep-every 5000", "what these rules would delete, and why"},
                   {"ckpt prune --store /lustre/runs --apply", "carry out the policy of /lustre/runs/ckpt.toml"},
                   {"ckpt prune --check-policy", "what each rule means today"},
                   {"ckpt prune --simulate --interval 500 --until 100000", "what the policy will take, and risk"},
                   {"ckpt prune 'exp*' --keep-best loss:3 --grace 7d --apply",
                    "matching runs, with a week to undelete"}},
      .exit_codes = {1, 3, 10, 11, 12, 14, 16},
  };
}

Verb undelete_verb() {
  return {
      .name = "undelete",
      .arguments = "NAME...",
      .least_arguments = 1,
      .most_arguments = 1000,
      .summary = "Bring back what prune deleted, within its grace time",
      .about = {"NAME is RUN@STEP, RUN/DIRECTORY or six or more digits of an id; of several saves of one step the "
                "newest is restored. An existing checkpoint of the same name is never replaced. The next prune may "
                "delete it again unless it is pinned."},
      .aliases = {"restore-deleted", "untrash"},
      .flags = {store_flag(), lock_timeout_flag()},
      .examples = {{"ckpt undelete llama8b@11000 --store /lustre/runs", "back in its run"}},
      .exit_codes = {3, 10, 11, 12, 14, 16},
  };
}

Verb why_verb() {
  return {
      .name = "why",
      .arguments = "NAME",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "Show why a checkpoint is kept or was deleted: by which rule, when and by whom",
      .about = {"NAME is RUN@STEP, RUN/DIRECTORY or six or more digits of an id; for an existing checkpoint also "
                "RUN@latest, RUN@best or RUN@TAG. Records of deletions are kept for a year."},
      .flags = {store_flag(),
                {.name = "policy", .value = "FILE", .help = "policy file to use instead of STORE/ckpt.toml"}},
      .examples = {{"ckpt why llama8b@11000", "the rules that keep it, or who deleted it"}},
      .exit_codes = {10, 16},
  };
}

Verb repair_verb() {
  return {
      .name = "repair",
      .arguments = "PATH",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary =
          "Show what crashed saves left and what is broken; repair it with --apply, or salvage intact data with --out",
      .about = {"PATH is a store, a run, a checkpoint in the ckpt format, or the remains of a killed save. Without "
                "--apply nothing is changed. With --apply, repair removes killed saves and conversions that no process "
                "holds; restores a lost or torn manifest.json from its copy, or the copy from it, after checking every "
                "checksum of the checkpoint; and finishes deletions that a crash interrupted. A conversion that can be "
                "resumed is removed only if PATH names it.",
                "Damaged data cannot be restored. --out writes the tensors whose checksums are all correct to NEW, a "
                "separate checkpoint that lists the lost tensors; the damaged one is not changed. Exit code 1: a "
                "checkpoint is still broken; 3: something could not be checked or done, or tensors were lost.",
                kPathOrName},
      .aliases = {"recover", "salvage"},
      .flags = {{.name = "apply", .help = "carry out the plan", .guesses = {"do", "force", "f", "y", "yes"}},
                {.name = "dry-run", .letter = 'n', .help = "show the plan only (default)", .guesses = {"preview"}},
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
  return {prune_verb(), undelete_verb(), repair_verb(), why_verb()};
}

}  // namespace ckpt::cli
