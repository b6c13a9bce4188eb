#include "cli/retention_verbs.hpp"

#include "cli/catalog_grammar.hpp"

namespace ckpt::cli {
namespace {

Flag lock_timeout_flag() {
  return {.name = "lock-timeout",
          .value = "TIME",
          .help = "how long to wait for another process that deletes in this store; by default not at all",
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
          {"Without --apply nothing is changed. The policy stands in STORE/ckpt.toml or a file of --policy, or is "
           "given "
           "by flags; RUN is a pattern over names of runs, by default all. What no rule keeps goes into the trash, a "
           "rename, from where ckpt undelete brings it back until its grace is over; the first prune after that "
           "removes it for good.",
           "Whatever the policy, these stay: of each run the newest verified checkpoint, and the newest where none is "
           "verified; what is read, loaded or converted now; what is pinned, or holds bytes of others; what a file "
           "or a link such as 'latest' names; what cannot be read just now, and what ckpt repair mends; symbolic "
           "links; "
           "saves that never ended; checkpoints of other tools without a step in their names, or with a file younger "
           "than 10 minutes. What stays is checked first, names and sizes, "
           "before anything goes. The first run of a policy that is new or was changed deletes at most half unless -y "
           "approves it. On network file systems readers on other hosts are known by their claims (.ckpt/claims): the "
           "first run in a store there deletes nothing for 10 minutes."},
      .aliases = {"forget", "gc"},
      .flags =
          {
              store_flag(),
              {.name = "apply", .help = "carry out what is shown", .guesses = {"do", "force", "f"}},
              {.name = "yes",
               .letter = 'y',
               .help = "approve the first run of a new or changed policy, however much it deletes"},
              {.name = "dry-run", .letter = 'n', .help = "show only, which is the default", .guesses = {"preview"}},
              {.name = "check", .help = "show only, and exit with 1 where something would be deleted"},
              {.name = "check-policy", .help = "say what each rule means for today's checkpoints"},
              {.name = "simulate",
               .help =
                   "try the policy on a run that saves every --interval steps until --until, and say what it takes"},
              {.name = "interval", .value = "STEPS", .help = "of --simulate: steps between saves"},
              {.name = "until", .value = "STEPS", .help = "of --simulate: the last step"},
              {.name = "step-time", .value = "TIME", .help = "of --simulate: how long a step takes; 1s by default"},
              {.name = "checkpoint-size",
               .value = "SIZE",
               .help = "of --simulate: of one checkpoint; by default that of the last one saved"},
              {.name = "policy", .value = "FILE", .help = "the policy, in place of STORE/ckpt.toml"},
              {.name = "import-policy",
               .value = "SYSTEM:OPTION=VALUE,...",
               .help = "the policy of another system by its own options, such as hf:save_total_limit=3"},
              keep("keep", "RULES", "several rules at once, such as last=3,6h*8,1d*14"),
              keep("keep-last", "N", "the newest N"),
              keep("keep-first", "N", "the oldest N"),
              keep("keep-every", "STEPS", "steps that are multiples of this"),
              keep("keep-within", "TIME", "those younger than this, from the newest"),
              keep("keep-hourly", "N", "the newest of each of N hours"),
              keep("keep-daily", "N", "the newest of each of N days"),
              keep("keep-weekly", "N", "the newest of each of N weeks"),
              keep("keep-monthly", "N", "the newest of each of N months"),
              keep("keep-yearly", "N", "the newest of each of N years"),
              keep("keep-best", "METRIC:N", "the N with the lowest METRIC; METRIC:N:max for the highest"),
              keep("keep-tag", "TAG", "those with this tag"),
              {.name = "max-size", .value = "SIZE", .help = "rules give way until all that is kept takes less"},
              {.name = "min-free", .value = "SHARE", .help = "rules give way until so much is free, such as 10%"},
              {.name = "max-delete",
               .value = "SHARE",
               .help = "how much the first run of a new or changed policy may delete; 50% by default"},
              {.name = "grace",
               .value = "TIME",
               .help = "how long the trash keeps it; 24h by default, 0 removes at once"},
              {.name = "purge-early-below",
               .value = "SHARE",
               .help = "with less free space the trash does not wait; 5% by default, 0 always waits"},
              {.name = "foreign-min-age",
               .value = "TIME",
               .help = "another tool's checkpoint that was written within this time is unfinished; 10m by default"},
              {.name = "include-corrupt", .help = "corrupt ones may go, but for the last one of a run"},
              {.name = "drop-series",
               .value = "N",
               .help = "the last verified checkpoint of superseded series N may go",
               .repeatable = true},
              lock_timeout_flag(),
          },
      .examples = {{"ckpt prune --keep-last 2 --keep-every 5000", "what these rules would delete, and why"},
                   {"ckpt prune --store /lustre/runs --apply", "carry out the policy of /lustre/runs/ckpt.toml"},
                   {"ckpt prune --check-policy", "what each rule means today"},
                   {"ckpt prune --simulate --interval 500 --until 100000", "what the policy will take, and risk"},
                   {"ckpt prune 'exp*' --keep-best loss:3 --grace 7d --apply", "some runs, with a week to undelete"}},
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
                "newest comes back. What has its name now is never replaced. The next prune decides again: a pin keeps "
                "it."},
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
      .summary = "Say why a checkpoint is kept, or was deleted: by which rule, when and by whom",
      .about =
          {"NAME is RUN@STEP, RUN/DIRECTORY or six or more digits of an id; of what was not deleted also RUN@latest, "
           "RUN@best or RUN@TAG. Records of deletions are kept for a year."},
      .flags = {store_flag(), {.name = "policy", .value = "FILE", .help = "the policy, in place of STORE/ckpt.toml"}},
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
      .summary = "Show what crashed saves left and what is broken, and with --apply mend it; or salvage what is intact",
      .about =
          {"PATH is a store, a run, a checkpoint of the ckpt format, or what a killed save left. Without --apply "
           "nothing is changed. With --apply saves and conversions that were killed are removed, where no "
           "process "
           "holds them; a manifest.json that is lost or torn is restored from its copy, or the copy from it, once "
           "every "
           "checksum of the checkpoint was compared; deletions that a crash stopped are finished. A conversion that "
           "the "
           "same command would go on from is removed only where PATH names it.",
           "Data that is damaged cannot be restored. With --out the tensors of which every checksum is right are "
           "written "
           "to NEW, a checkpoint of its own that says what is lost; the damaged one is left as it is. Exit code 1: a "
           "checkpoint is broken, and stays so; 3: something could not be looked at or done, or tensors were lost.",
           kPathOrName},
      .aliases = {"recover", "salvage"},
      .flags = {{.name = "apply", .help = "carry out what is shown", .guesses = {"do", "force", "f", "y", "yes"}},
                {.name = "dry-run", .letter = 'n', .help = "show only, which is the default", .guesses = {"preview"}},
                {.name = "out",
                 .value = "NEW",
                 .help = "write the intact tensors of a damaged checkpoint there, as a new one",
                 .guesses = {"output", "o", "salvage"}},
                named_in_flag(),
                lock_timeout_flag()},
      .examples = {{"ckpt repair /lustre/runs", "what is left over, what is broken"},
                   {"ckpt repair /lustre/runs --apply", "mend it"},
                   {"ckpt repair runs/llama8b/step-000011000.g12 --out saved", "what of a damaged one is intact"}},
      .exit_codes = {1, 3, 10, 11, 12, 13, 14, 15, 16, 17},
  };
}

}  // namespace

std::vector<Verb> retention_verbs() {
  return {prune_verb(), undelete_verb(), repair_verb(), why_verb()};
}

}  // namespace ckpt::cli
