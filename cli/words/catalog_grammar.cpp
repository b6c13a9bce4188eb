#include "cli/words/catalog_grammar.hpp"

#include "cli/words/conversion_flags.hpp"

namespace ckpt::cli {

Flag store_flag() {
  return {.name = "store",
          .value = "DIR",
          .help = "the store (default: the enclosing store, or the current directory)",
          .guesses = {"root", "dir", "directory"}};
}

Flag named_in_flag() {
  Flag out = store_flag();
  out.help = "store to look up names in (default: the enclosing store, or the current directory)";
  return out;
}

namespace {

Flag watch_flag() {
  return {.name = "watch",
          .value = "[SECONDS]",
          .help = "redraw on the terminal every 5 s, or every SECONDS, until Ctrl-C",
          .guesses = {"follow", "refresh", "live"},
          .bare = "5"};
}

constexpr std::string_view kNames =
    "NAME is RUN@STEP, RUN@latest, RUN@latest~2, RUN@best, RUN@best:METRIC:max, RUN@TAG, or an id prefix of 6 or more "
    "digits. RUN may be omitted if the store has only one run. Outside a store, RUN can be a path: runs/llama@5000. "
    "RUN@best uses the 'best' rule in ckpt.toml; without one, the lowest value of the metric, or the highest of metrics "
    "such as acc, score or f1.";

Flag metric_flag() {
  return {.name = "metric",
          .value = "NAME=X",
          .help = "metric for policies and @best, e.g. loss=1.7",
          .repeatable = true,
          .guesses = {"metrics", "loss"}};
}

Flag tag_flag() {
  return {
      .name = "tag", .value = "TAG", .help = "tag the checkpoint", .repeatable = true, .guesses = {"label", "name"}};
}

Flag note_flag() {
  return {.name = "note", .value = "TEXT", .help = "free-text note", .guesses = {"message", "comment"}};
}

Verb save_verb() {
  return {
      .name = "save",
      .arguments = "SRC",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "Import a checkpoint into a store",
      .about =
          {"Reads SRC like convert and writes STORE/RUN/step-NNNNNNNNN.gG in the ckpt format, with a hash for every 4 "
           "MiB. The checkpoint appears atomically with its tags, metrics and pins. SRC is not changed. If save is "
           "killed, run it again to continue. After success, running it again does nothing unless SRC was modified.",
           "The most recently saved checkpoint is the newest of its run, whatever its step. ckpt prints a note if the run "
           "already has this step or a later one. If a step is saved twice, both checkpoints are kept until a policy "
           "deletes the older one. Time-based rules use the modification time of the newest file in SRC. Under mpirun "
           "the ranks share the work.",
           "Retention counts by step. After a rollback of the training, pass --back-to STEP to the first save: it starts a "
           "new series and supersedes checkpoints of later steps. Retention rules ignore superseded checkpoints, and "
           "prune deletes them after the grace period. Later saves join the new series. To roll back again, pass "
           "--back-to with a step that this series has reached. Trainers that use libckpt do all this automatically.",
           "--link creates hard links instead of copies. SRC must be in the ckpt format and on the store's file system. "
           "The new checkpoint has the id of SRC, and a run can contain an id only once. The files share their data: "
           "modifying one modifies the other, and space is freed only once both are deleted. Linked files are never "
           "recycled.",
           kPathOrName},
      .aliases = {"import"},
      .flags =
          {store_flag(),
           {.name = "run", .value = "NAME", .help = "run of the checkpoint, e.g. llama8b or prod/llama8b"},
           {.name = "step", .value = "N", .help = "training step", .guesses = {"iteration", "global-step"}},
           {.name = "back-to",
            .value = "STEP",
            .help = "training was rolled back to STEP: supersede checkpoints of later steps",
            .guesses = {"resumed-from", "rollback", "series-from"}},
           metric_flag(),
           tag_flag(),
           {.name = "pin", .help = "pin the checkpoint: no policy deletes it"},
           {.name = "pin-reason",
            .value = "TEXT",
            .help = "pin the checkpoint, with this reason",
            .guesses = {"reason"}},
           note_flag(),
           from_flag(),
           map_flag(),
           {.name = "only",
            .value = "WHAT",
            .help = "save only weights, optim, or tensors whose names match a pattern, e.g. 'model.layers.*'",
            .repeatable = true,
            .guesses = {"include", "filter", "select"}},
           {.name = "link",
            .help = "hard-link the files of SRC instead of copying them",
            .guesses = {"hardlink", "hard-link", "reflink", "no-copy"}},
           dry_run_flag(),
           {.name = "allow-skipped",
            .help =
                "exit with 0 instead of 3 if data files next to the checkpoint (an optimizer, RNG states) are skipped",
            .guesses = {"allow-partial", "ignore-skipped", "partial"}},
           restart_flag(),
           verify_level_flag()},
      .examples = {{"ckpt save out/step_100 --store runs --run llama8b --step 100 --metric loss=1.7",
                    "into runs/llama8b"},
                   {"ckpt save model.pt --run base --step 0 --pin-reason 'all runs begin here'", "kept until unpinned"},
                   {"ckpt save converted --run base --step 0 --link", "hard links, no copy"},
                   {"ckpt save out/step_1000 --run llama8b --step 1000 -n", "dry run"}},
      .exit_codes = {3, 10, 11, 12, 13, 14, 15, 16, 17},
      .main_verb = true,
  };
}

Verb list_verb() {
  return {
      .name = "list",
      .arguments = "[STORE]",
      .most_arguments = 1,
      .summary = "List the checkpoints of a store",
      .about =
          {"A store is a directory of runs. A run is a directory of checkpoints, written by ckpt, DeepSpeed, "
           "PyTorch, Megatron, Hugging Face or Orbax. List never changes a checkpoint. It keeps an index in "
           "STORE/.ckpt/catalog.sqlite; if the index is unusable, list warns and scans the directories.",
           "Checkpoints are sorted by run, newest first. If a step was saved more than once, older saves show their "
           "generation, e.g. 15.g3. 'superseded' marks checkpoints that a rollback left behind. -q prints only names, which "
           "other commands accept."},
      .aliases = {"catalog", "snapshots"},
      .flags =
          {store_flag(),
           {.name = "trash",
            .help = "list the trash: what was deleted, when, by whom, and until when it can be restored",
            .guesses = {"deleted"}},
           {.name = "run", .value = "GLOB", .help = "only runs that match, e.g. 'prod/*'", .guesses = {"runs"}},
           {.name = "tag", .value = "TAG", .help = "only checkpoints with this tag"},
           {.name = "state",
            .value = "STATE",
            .help =
                "only checkpoints in this state; complete includes verified, damaged includes incomplete and repairable",
            .choices = {"complete", "verified", "unverified", "superseded", "repairable", "damaged", "incomplete",
                        "unreadable"},
            .guesses = {"status"}},
           {.name = "where",
            .value = "RULE",
            .help = "only checkpoints that match an expression, e.g. 'step > 1000 and metric.loss < 2'",
            .guesses = {"filter"}},
           {.name = "since",
            .value = "TIME",
            .help = "only checkpoints saved within this time (7d) or since this day (2026-01-31)",
            .guesses = {"after", "newer"}},
           {.name = "sort",
            .value = "KEY",
            .help =
                "newest or oldest: by step within each run; time (newest first) or size (largest first): over all runs",
            .choices = {"newest", "oldest", "time", "size"}},
           {.name = "limit", .letter = 'n', .value = "N", .help = "show at most N", .guesses = {"head"}},
           tsv_flag(),
           {.name = "csv", .help = "print CSV; text that a spreadsheet would run as a formula is prefixed with '"},
           watch_flag(),
           {.name = "rebuild", .help = "rebuild the index", .guesses = {"rescan", "refresh"}}},
      .examples = {{"ckpt list runs", "everything"},
                   {"ckpt list --run llama8b --where 'metric.loss < 2.1'", "filter by metric"},
                   {"ckpt list -q --state verified -n 1", "a name for a script"},
                   {"ckpt list --trash --since 1h", "deleted lately"}},
      .exit_codes = {3, 10, 11, 16},
      .main_verb = true,
  };
}

Verb mark_verb() {
  return {
      .name = "mark",
      .arguments = "NAME",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "Add a metric, tag or note to a checkpoint, or remove one",
      .about =
          {kNames,
           "Use it for evaluation results that arrive after the save, and for checkpoints of other tools. @best and 'best' "
           "rules use metrics; 'tag' rules use tags. A metric of the same name is replaced, and so is the note. Marks are small files in the checkpoint's directory and move with it; no data is changed."},
      .aliases = {"annotate"},
      .flags = {store_flag(),
                metric_flag(),
                tag_flag(),
                note_flag(),
                {.name = "metrics-from",
                 .value = "PATH",
                 .help = "read metrics from a training log: TensorBoard event files, Lightning's metrics.csv, "
                         "wandb-summary.json, or a directory that contains them; NAME can be a run, to mark all its "
                         "checkpoints",
                 .guesses = {"log", "tensorboard", "wandb"}},
                {.name = "matching",
                 .value = "PATTERN",
                 .help = "with --metrics-from: only metrics that match, e.g. 'eval/*'",
                 .repeatable = true},
                {.name = "remove-metric",
                 .value = "NAME",
                 .help = "remove a metric that 'ckpt mark' or 'ckpt save' added",
                 .repeatable = true,
                 .guesses = {"unset-metric", "delete-metric"}},
                {.name = "remove-tag",
                 .value = "TAG",
                 .help = "remove a tag",
                 .repeatable = true,
                 .guesses = {"untag", "delete-tag"}},
                {.name = "remove-note", .help = "remove the note", .guesses = {"delete-note"}}},
      .examples = {{"ckpt mark llama8b@1000 --metric eval_loss=1.2", "then llama8b@best uses it"},
                   {"ckpt mark llama8b --metrics-from runs/exp7 --matching 'eval/*'",
                    "add logged metrics to every checkpoint of a run"},
                   {"ckpt mark llama8b@latest --tag release --note 'sent to the partners'", "tag and note"},
                   {"ckpt mark llama8b@release --remove-tag release", "remove the tag"}},
      .exit_codes = {10, 11, 12, 14, 15, 16},
  };
}

Verb pin_verb() {
  return {
      .name = "pin",
      .arguments = "NAME",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "Pin a checkpoint: no policy deletes it",
      .about =
          {kNames,
           "A pin is a small file in the checkpoint's directory and moves with it. A checkpoint can have several pins "
           "with different labels."},
      .aliases = {"hold"},
      .flags = {store_flag(),
                {.name = "reason", .value = "TEXT", .help = "why", .guesses = {"message", "note"}},
                {.name = "owner", .value = "WHO", .help = "owner of the pin (default: the user)"},
                {.name = "until",
                 .value = "TIME",
                 .help = "expiry: a time (30d) or a day (2026-12-31, UTC); default: never",
                 .guesses = {"expires", "for"}},
                {.name = "label", .value = "NAME", .help = "label of the pin (default: none)", .guesses = {"name"}}},
      .examples = {{"ckpt pin llama8b@1000 --reason 'cited in the paper'", "until unpinned"},
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
                {.name = "label", .value = "NAME", .help = "label of the pin (default: none)", .guesses = {"name"}}},
      .examples = {{"ckpt unpin llama8b@1000", "the policy applies again"}},
      .exit_codes = {10, 16},
  };
}

Verb status_verb() {
  return {
      .name = "status",
      .arguments = "[STORE]",
      .most_arguments = 1,
      .summary = "Show a summary of a store",
      .about =
          {"Shows one line per run: count, size, newest and best checkpoint, last save and last verification (with its "
           "step, if another one is the newest). --prom writes "
           "metrics for the textfile collector of Prometheus.",
           "Below the runs: the results of the last prune and verify, checkpoints without their optimizer, the trash and when "
           "it expires, and the command to run next. "
           "Free space, recycled files and readers are those of the whole store, even with --run.",
           "On file systems without cluster-wide locks, it also shows the readers that each host has registered."},
      .flags = {store_flag(),
                {.name = "run", .value = "NAME", .help = "only this run; exit with 10 if it has no checkpoint"},
                {.name = "prom",
                 .value = "FILE",
                 .help = "write Prometheus metrics to this file (-: standard output)",
                 .guesses = {"prometheus"}},
                watch_flag()},
      .examples = {{"ckpt status", "the runs in the current directory"},
                   {"ckpt status --watch 10", "redrawn every 10 s"},
                   {"ckpt status --run llama8b --json", "is there something to resume from?"},
                   {"ckpt status --prom /var/lib/node_exporter/textfile/ckpt.prom", "from cron"}},
      .exit_codes = {3, 10, 14, 16},
  };
}

}  // namespace

Verb next_save_verb() {
  return {
      .name = "next-save",
      .arguments = "RUN",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "Check whether a run should save now (exit code 0: yes, 1: not yet)",
      .about =
          {"Rules come from [interval] or a run's [[rule]] in STORE/ckpt.toml; rules on the command line override them. "
           "Intervals count from the run's newest checkpoint or, if --step is lower than its step, from the last save "
           "at or before --step. Without --step only time-based rules apply.",
           "--optimal chooses the interval with the least expected lost time, from --mtbf or from the restarts that the "
           "run's checkpoints show. Without data on failures it takes 20 times the stall of a save."},
      .flags = {store_flag(),
                {.name = "step", .value = "N", .help = "the step that just finished", .guesses = {"iteration"}},
                {.name = "every-steps",
                 .value = "N",
                 .help = "save at every multiple of N, or at the next step after it"},
                {.name = "every", .value = "TIME", .help = "minimum time since the last save began"},
                {.name = "optimal", .help = "choose the interval that minimises expected lost time"},
                {.name = "max-overhead",
                 .value = "PERCENT",
                 .help = "delay saves so that they cost at most this share of the time, e.g. 3%"},
                {.name = "before-end",
                 .value = "TIME",
                 .help = "make the last save durable this long before the job's time limit; needs --time-left"},
                {.name = "time-left", .value = "TIME", .help = "time until the job's time limit"},
                {.name = "mtbf", .value = "TIME", .help = "mean time between failures of the job, for --optimal"},
                {.name = "restart", .value = "TIME", .help = "time lost at a failure before training continues"},
                {.name = "step-time", .value = "TIME", .help = "duration of one step (default: from the run's saves)"}},
      .examples = {{"ckpt next-save llama8b --step 1500 && touch save-now", "use the store's rules"},
                   {"ckpt next-save llama8b --every 30m --max-overhead 3%", "use these rules"},
                   {"ckpt next-save llama8b --before-end 5m --time-left $((SLURM_JOB_END_TIME - $(date +%s)))s",
                    "in a Slurm job"}},
      .exit_codes = {1, 10, 16},
  };
}

std::vector<Verb> catalog_verbs() {
  return {save_verb(), list_verb(), status_verb(), mark_verb(), pin_verb(), unpin_verb()};
}

}  // namespace ckpt::cli
