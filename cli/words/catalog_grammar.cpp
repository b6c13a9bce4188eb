#include "cli/words/catalog_grammar.hpp"

namespace ckpt::cli {

Flag store_flag() {
  return {.name = "store",
          .value = "DIR",
          .help = "directory of runs; by default the current one",
          .guesses = {"root", "dir", "directory"}};
}

Flag named_in_flag() {
  Flag out = store_flag();
  out.help = "directory of runs that checkpoint names refer to; by default the current one";
  return out;
}

namespace {

constexpr std::string_view kNames =
    "A checkpoint is named by RUN@STEP, RUN@latest, RUN@latest~2, RUN@best, RUN@best:METRIC:max, RUN@TAG, or the "
    "first 6 or more digits of its id. RUN may be omitted if the store has one run.";

Verb save_verb() {
  return {
      .name = "save",
      .arguments = "SRC",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "Add a checkpoint in any known format to a store, committed and listed",
      .about =
          {"Reads SRC like convert and writes STORE/RUN/step-NNNNNNNNN.gG in the universal format, with a hash for "
           "every 4 MiB. The checkpoint, its tags, metrics and pins appear atomically. SRC is not changed. If save is "
           "killed, rerun it to continue; rerunning it after success does nothing unless a file of SRC was touched.",
           "The most recently saved checkpoint is the newest of its run, regardless of its step. A note is printed if "
           "the run already has this step or a later one. If a step is saved twice, both checkpoints are kept until a "
           "policy deletes the older one. Time-based rules use the modification time of the newest file in SRC. Under "
           "mpirun the ranks share the work.",
           "Retention counts by step. After rolling training back, pass --back-to STEP to the first save: it starts a "
           "new series and supersedes earlier checkpoints with later steps. Retention rules ignore superseded "
           "checkpoints, and prune deletes them after the grace period. Later saves join this series. To roll back "
           "again, pass --back-to with a step that the series has already reached. Trainers that use libckpt do this "
           "automatically.",
           "--link creates hard links instead of copying. SRC must be in the ckpt format and on the store's file "
           "system. The new checkpoint has the same id as SRC, and a run can contain an id only once. The files share "
           "their data: modifying one modifies the other; deleting one does not delete the other, and space is freed "
           "once both are deleted. Linked files are never recycled for other saves.",
           kPathOrName},
      .aliases = {"import"},
      .flags =
          {store_flag(),
           {.name = "run",
            .value = "NAME",
            .help = "run that the checkpoint belongs to, such as llama8b or prod/llama8b"},
           {.name = "step", .value = "N", .help = "training step", .guesses = {"iteration", "global-step"}},
           {.name = "back-to",
            .value = "STEP",
            .help = "training went back to this step: supersede checkpoints of later steps",
            .guesses = {"resumed-from", "rollback", "series-from"}},
           {.name = "metric",
            .value = "NAME=X",
            .help = "metric of the model, such as loss=1.7, for policies and @best",
            .repeatable = true,
            .guesses = {"metrics", "loss"}},
           {.name = "tag", .value = "TAG", .help = "add this tag", .repeatable = true, .guesses = {"label", "name"}},
           {.name = "pin", .help = "keep it, whatever the policy says"},
           {.name = "pin-reason", .value = "TEXT", .help = "pin, with this reason", .guesses = {"reason"}},
           {.name = "note",
            .value = "TEXT",
            .help = "free text about the checkpoint",
            .guesses = {"message", "comment"}},
           {.name = "from",
            .value = "FORMAT",
            .help = "format of SRC, to override detection or to settle an ambiguous one",
            .guesses = {"input-format", "source-format"}},
           {.name = "map",
            .value = "FILE",
            .help = "JSON rules for what the files do not record: shapes in flat tensors, new names",
            .guesses = {"rules", "name-map", "mapping", "shapes"}},
           {.name = "only",
            .value = "WHAT",
            .help = "select weights, optim, or tensors whose names match a pattern such as 'model.layers.*'",
            .repeatable = true,
            .guesses = {"include", "filter", "select"}},
           {.name = "link",
            .help = "hard-link the files of SRC, a checkpoint in the ckpt format on the same file system, instead of "
                    "copying",
            .guesses = {"hardlink", "hard-link", "reflink", "no-copy"}},
           {.name = "dry-run",
            .letter = 'n',
            .help = "show the plan, in bytes and memory, and change nothing",
            .guesses = {"plan", "preview"}},
           {.name = "allow-skipped",
            .help =
                "exit with 0, not 3, when data files beside the checkpoint (an optimizer, random states) are skipped",
            .guesses = {"allow-partial", "ignore-skipped", "partial"}},
           {.name = "restart",
            .help = "start over after a kill instead of continuing from what was finished",
            .guesses = {"no-resume", "fresh", "from-scratch"}},
           {.name = "verify",
            .value = "LEVEL",
            .help = "none: structure only; read (default): also the checksums of all data that is read whole; full: "
                    "also read the output back and compare replicas and master weights",
            .choices = {"none", "read", "full"},
            .guesses = {"check"}}},
      .examples = {{"ckpt save out/step_1000 --store runs --run llama8b --step 1000 --metric loss=1.7",
                    "into runs/llama8b"},
                   {"ckpt save model.pt --run base --step 0 --pin-reason 'all runs begin here'", "kept until unpinned"},
                   {"ckpt save converted --run base --step 0 --link", "already in the ckpt format: no bytes copied"},
                   {"ckpt save out/step_1000 --run llama8b --step 1000 -n", "what would happen"}},
      .exit_codes = {3, 10, 11, 12, 13, 14, 15, 16, 17},
      .main_verb = true,
  };
}

Verb list_verb() {
  return {
      .name = "list",
      .summary = "List the checkpoints of a store: step, state, size, metrics, pins",
      .about = {"A store is a directory of runs, each a directory of checkpoints: those of ckpt, DeepSpeed, PyTorch, "
                "Megatron, Hugging Face and Orbax, recognised as inspect does. List changes none of them; it keeps an "
                "index in STORE/.ckpt/catalog.sqlite. If the index cannot be used, list scans the disk and warns; the "
                "output is the same.",
                "Steps sort as numbers. By default the newest checkpoint of each run comes first. -q prints names that "
                "other verbs accept."},
      .aliases = {"catalog", "snapshots"},
      .flags =
          {store_flag(),
           {.name = "run", .value = "GLOB", .help = "only runs that match, such as 'prod/*'", .guesses = {"runs"}},
           {.name = "tag", .value = "TAG", .help = "only checkpoints with this tag"},
           {.name = "state",
            .value = "STATE",
            .help = "only checkpoints in this state",
            .choices = {"durable", "verified", "repairable", "corrupt", "unreadable"},
            .guesses = {"status"}},
           {.name = "where",
            .value = "RULE",
            .help = "only checkpoints that satisfy a condition, such as 'step > 1000 and metric.loss < 2'",
            .guesses = {"filter"}},
           {.name = "since",
            .value = "TIME",
            .help = "only checkpoints saved within a time, such as 7d, or since a day, such as 2026-01-31",
            .guesses = {"after", "newer"}},
           {.name = "sort",
            .value = "KEY",
            .help =
                "newest or oldest: by step within each run; time (latest first) or size (largest first): over all runs",
            .choices = {"newest", "oldest", "time", "size"}},
           {.name = "limit", .letter = 'n', .value = "N", .help = "print the first N only", .guesses = {"head"}},
           {.name = "csv",
            .help = "print comma-separated values; values that a spreadsheet would run as a formula start with '"},
           {.name = "rebuild", .help = "rebuild the index from disk", .guesses = {"rescan", "refresh"}}},
      .examples = {{"ckpt list --store runs", "everything"},
                   {"ckpt list --run llama8b --where 'metric.loss < 2.1'", "good ones of one run"},
                   {"ckpt list -q --state verified -n 1", "a name for a script"}},
      .exit_codes = {10, 11, 16},
      .main_verb = true,
  };
}

Verb pin_verb() {
  return {
      .name = "pin",
      .arguments = "NAME",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "Keep a checkpoint whatever the policy says",
      .about = {kNames,
                "A pin is a small file in the checkpoint's directory and moves with it. A checkpoint can have several "
                "pins, distinguished by --label."},
      .aliases = {"hold"},
      .flags = {store_flag(),
                {.name = "reason", .value = "TEXT", .help = "why", .guesses = {"message", "note"}},
                {.name = "owner", .value = "WHO", .help = "owner of the pin; by default the user"},
                {.name = "until",
                 .value = "TIME",
                 .help = "expiry, after a time (30d) or on a day (2026-12-31, UTC); by default never",
                 .guesses = {"expires", "for"}},
                {.name = "label",
                 .value = "NAME",
                 .help = "label of the pin; by default the pin without a label",
                 .guesses = {"name"}}},
      .examples = {{"ckpt pin llama8b@1000 --reason 'cited in the paper'", "until it is unpinned"},
                   {"ckpt pin @latest --until 30d", "for a month"}},
      .exit_codes = {10, 14, 16},
  };
}

Verb unpin_verb() {
  return {
      .name = "unpin",
      .arguments = "NAME",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "Remove a pin",
      .about = {kNames},
      .flags = {store_flag(),
                {.name = "label",
                 .value = "NAME",
                 .help = "label of the pin; by default the pin without a label",
                 .guesses = {"name"}}},
      .examples = {{"ckpt unpin llama8b@1000", "the policy decides again"}},
      .exit_codes = {10, 16},
  };
}

Verb status_verb() {
  return {
      .name = "status",
      .summary = "Sum up a store: checkpoints, bytes, and the newest of each run",
      .about =
          {"Output for people, for scripts (--json) and for Prometheus (--prom writes a file for its textfile "
           "collector, atomically).",
           "Also shows which checkpoints a rule reduced to their weights, when and why, and the contents of the trash "
           "with their expiry. Free space, retired files and readers are those of the whole store, also with --run.",
           "On file systems without cluster-wide locks, it also shows how many readers each host has registered."},
      .aliases = {"watch"},
      .flags = {store_flag(),
                {.name = "run", .value = "NAME", .help = "this run only; exits with 10 if it has no checkpoint"},
                {.name = "prom", .value = "FILE", .help = "write the metrics to this file", .guesses = {"prometheus"}}},
      .examples = {{"ckpt status", "the runs in the current directory"},
                   {"ckpt status --run llama8b --json", "is there something to resume from?"},
                   {"ckpt status --prom /var/lib/node_exporter/textfile/ckpt.prom", "from cron"}},
      .exit_codes = {10, 14, 16},
  };
}

Verb next_save_verb() {
  return {
      .name = "next-save",
      .arguments = "RUN",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "Tell scripts whether a run should save now: exit code 0 is yes, 1 is not yet",
      .about =
          {"Rules are read from [interval] or from a run's [[rule]] in STORE/ckpt.toml; rules on the command line "
           "override them. Intervals are measured from the run's newest checkpoint or, if --step is lower than its "
           "step, from the last save at or before --step. Without --step only time-based rules apply.",
           "--optimal aims at the interval that loses least time, from --mtbf or from how often the run was resumed "
           "according to its checkpoints; without data on failures it aims at 20 times the stall of a save."},
      .flags = {store_flag(),
                {.name = "step", .value = "N", .help = "the step that just finished", .guesses = {"iteration"}},
                {.name = "every-steps", .value = "N", .help = "save when a multiple of N is reached or passed"},
                {.name = "every", .value = "TIME", .help = "save this long after the start of the last save"},
                {.name = "optimal", .help = "save at the interval that loses least time, from the cost of past saves"},
                {.name = "max-overhead",
                 .value = "PERCENT",
                 .help = "delay saves to cost at most this share of the time, such as 3%"},
                {.name = "before-end",
                 .value = "TIME",
                 .help = "save early enough to be durable this long before the job's time limit; needs --time-left"},
                {.name = "time-left", .value = "TIME", .help = "time until the job's time limit"},
                {.name = "mtbf", .value = "TIME", .help = "mean time between failures of the job, for --optimal"},
                {.name = "restart", .value = "TIME", .help = "time lost at a failure before training continues"},
                {.name = "step-time",
                 .value = "TIME",
                 .help = "duration of one step; by default from the run's saves"}},
      .examples = {{"ckpt next-save llama8b --step 1500 && touch save-now", "by the store's own rules"},
                   {"ckpt next-save llama8b --every 30m --max-overhead 3%", "by these"},
                   {"ckpt next-save llama8b --before-end 5m --time-left $((SLURM_JOB_END_TIME - $(date +%s)))s",
                    "in a Slurm job"}},
      .exit_codes = {1, 10, 16},
  };
}

}  // namespace

std::vector<Verb> catalog_verbs() {
  return {save_verb(), list_verb(), status_verb(), pin_verb(), unpin_verb(), next_save_verb()};
}

}  // namespace ckpt::cli
