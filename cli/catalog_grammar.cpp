#include "cli/catalog_grammar.hpp"

namespace ckpt::cli {

Flag store_flag() {
  return {.name = "store",
          .value = "DIR",
          .help = "the directory of runs; by default the current one",
          .guesses = {"root", "dir", "directory"}};
}

Flag named_in_flag() {
  Flag out = store_flag();
  out.help = "the directory of runs in which a checkpoint is named; by default the current one";
  return out;
}

namespace {

constexpr std::string_view kNames =
    "A checkpoint is named RUN@STEP, RUN@latest, RUN@latest~2, RUN@best, RUN@best:METRIC:max, RUN@TAG, or by 6 or more "
    "digits of its id. RUN may be left out where the store has one run.";

Verb save_verb() {
  return {
      .name = "save",
      .arguments = "SRC",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "Put a checkpoint of any known format into a store, committed and listed",
      .about =
          {"SRC is read as by convert, and becomes STORE/RUN/step-NNNNNNNNN.gG in the universal format, with a hash of "
           "every byte. It appears there whole or not at all, with all that is said of it: whoever sees the checkpoint "
           "sees its pins. SRC stays as it is. Run again after it was killed, it goes on from what it had finished; "
           "run "
           "again after it was done, it does nothing.",
           "What is saved last is the newest checkpoint of its run, whatever its step; a note says where the run had "
           "that step, or a later one, before. A step saved twice is there twice, until a policy removes the older "
           "one. Rules of time count from when the newest file of SRC was written: the answer tells its age. Under "
           "mpirun "
           "the work is divided among the ranks.",
           "Retention counts by step, so where training went back, and saves lower steps again, the first save after "
           "that says --back-to STEP: a series begins, in which what was saved of later steps before is superseded. No "
           "rule counts it, and it goes when its grace is over. Saves after that go on in the series, with --back-to "
           "or "
           "without; but with --back-to a step that the series has reached begins another one, as training then went "
           "back again. Trainers with libckpt say so themselves.",
           "With --link a SRC of the ckpt format on the store's file system, as convert and save write it, is not "
           "copied: "
           "the checkpoint's files are second names of SRC's (hard links), and it keeps SRC's id, once in a run. The "
           "two "
           "share their bytes: whoever writes into a file of the one changes the other, deleting the one leaves the "
           "other, and the space is free when both are gone. Such files are never used again for other saves.",
           kPathOrName},
      .aliases = {"import"},
      .flags =
          {store_flag(),
           {.name = "run", .value = "NAME", .help = "the run that it belongs to, such as llama8b or prod/llama8b"},
           {.name = "step", .value = "N", .help = "the step of the training", .guesses = {"iteration", "global-step"}},
           {.name = "back-to",
            .value = "STEP",
            .help = "the training went back to this step: what was saved after it counts no more",
            .guesses = {"resumed-from", "rollback", "series-from"}},
           {.name = "metric",
            .value = "NAME=X",
            .help = "a measure of the model, such as loss=1.7, for policies and @best",
            .repeatable = true,
            .guesses = {"metrics", "loss"}},
           {.name = "tag", .value = "TAG", .help = "call it so", .repeatable = true, .guesses = {"label", "name"}},
           {.name = "pin", .help = "never delete it, whatever the policy says"},
           {.name = "pin-reason", .value = "TEXT", .help = "the same, and why", .guesses = {"reason"}},
           {.name = "note",
            .value = "TEXT",
            .help = "what people should know of it",
            .guesses = {"message", "comment"}},
           {.name = "from",
            .value = "FORMAT",
            .help = "what SRC is, when detection is not wanted or finds two answers",
            .guesses = {"input-format", "source-format"}},
           {.name = "map",
            .value = "FILE",
            .help = "rules in JSON for what the files do not tell: shapes in flat tensors, other names",
            .guesses = {"rules", "name-map", "mapping", "shapes"}},
           {.name = "only",
            .value = "WHAT",
            .help = "what to take: weights, optim, or a pattern over tensor names such as 'model.layers.*'",
            .repeatable = true,
            .guesses = {"include", "filter", "select"}},
           {.name = "link",
            .help = "do not copy SRC, a checkpoint of the ckpt format on the same file system: share its files",
            .guesses = {"hardlink", "hard-link", "reflink", "no-copy"}},
           {.name = "dry-run",
            .letter = 'n',
            .help = "say what would be done, in bytes and memory, and do nothing",
            .guesses = {"plan", "preview"}},
           {.name = "allow-skipped",
            .help = "exit 0, not 3, although files beside the checkpoint (an optimizer, random states) are not saved",
            .guesses = {"allow-partial", "ignore-skipped", "partial"}},
           {.name = "restart",
            .help = "begin anew where this was killed, rather than go on from what it had finished",
            .guesses = {"no-resume", "fresh", "from-scratch"}},
           {.name = "verify",
            .value = "LEVEL",
            .help = "none: structure only; read, the default: also every checksum of what is read whole; full: also "
                    "read the output again and compare replicas and master weights",
            .choices = {"none", "read", "full"},
            .guesses = {"check"}}},
      .examples = {{"ckpt save out/step_1000 --store runs --run llama8b --step 1000 --metric loss=1.7",
                    "into runs/llama8b"},
                   {"ckpt save model.pt --run base --step 0 --pin-reason 'all runs begin here'", "kept for good"},
                   {"ckpt save converted --run base --step 0 --link", "of the ckpt format already: no byte is copied"},
                   {"ckpt save out/step_1000 --run llama8b --step 1000 -n", "what would happen"}},
      .exit_codes = {3, 10, 11, 12, 13, 14, 15, 16, 17},
      .main_verb = true,
  };
}

Verb list_verb() {
  return {
      .name = "list",
      .summary = "List the checkpoints of a store: step, state, size, metrics, pins",
      .about =
          {"A store is a directory of runs, each a directory of checkpoints: ours, and those of DeepSpeed, PyTorch, "
           "Megatron, Hugging Face and Orbax, which are recognised as by inspect. Nothing of them is changed; an index "
           "is kept in STORE/.ckpt/catalog.sqlite. Where that cannot be used the disk is scanned, with a warning, and "
           "the answer is the same.",
           "Steps compare as numbers. By default the newest of each run comes first. -q prints names that other verbs "
           "take."},
      .aliases = {"catalog", "snapshots"},
      .flags = {store_flag(),
                {.name = "run", .value = "GLOB", .help = "only of these runs, such as 'prod/*'", .guesses = {"runs"}},
                {.name = "tag", .value = "TAG", .help = "only those with this tag"},
                {.name = "state",
                 .value = "STATE",
                 .help = "only those in this state",
                 .choices = {"durable", "verified", "repairable", "corrupt", "unreadable"},
                 .guesses = {"status"}},
                {.name = "where",
                 .value = "RULE",
                 .help = "only those that it is true of, such as 'step > 1000 and metric.loss < 2'",
                 .guesses = {"filter"}},
                {.name = "since",
                 .value = "TIME",
                 .help = "only those saved in the last 7d, or since 2026-01-31",
                 .guesses = {"after", "newer"}},
                {.name = "sort",
                 .value = "KEY",
                 .help = "newest or oldest by step, in each run; time (youngest first) or size (largest first), over "
                         "all",
                 .choices = {"newest", "oldest", "time", "size"}},
                {.name = "limit", .letter = 'n', .value = "N", .help = "the first so many only", .guesses = {"head"}},
                {.name = "csv",
                 .help = "print comma-separated values; a value that a spreadsheet would calculate gets a ' before it"},
                {.name = "rebuild", .help = "read everything from the disk again", .guesses = {"rescan", "refresh"}}},
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
                "A pin is a small file in the checkpoint's own directory, so it goes where the checkpoint goes. A "
                "checkpoint may have several, told apart by --label."},
      .aliases = {"hold"},
      .flags = {store_flag(),
                {.name = "reason", .value = "TEXT", .help = "why", .guesses = {"message", "note"}},
                {.name = "owner", .value = "WHO", .help = "who asks for it; by default the user"},
                {.name = "until",
                 .value = "TIME",
                 .help = "for so long (30d), or until that day (2026-12-31, UTC); by default for good",
                 .guesses = {"expires", "for"}},
                {.name = "label",
                 .value = "NAME",
                 .help = "which pin; by default the one without a label",
                 .guesses = {"name"}}},
      .examples = {{"ckpt pin llama8b@1000 --reason 'cited in the paper'", "for good"},
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
      .summary = "Take a pin away again",
      .about = {kNames},
      .flags = {store_flag(),
                {.name = "label",
                 .value = "NAME",
                 .help = "which pin; by default the one without a label",
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
          {"For people, for scripts (--json) and for Prometheus (--prom writes the file that its text file "
           "collector reads, whole or not at all).",
           "Also which checkpoints a rule reduced to their weights, when and why, and what waits in the trash and "
           "until when. Free space, retired files and readers are the whole store's, also with --run.",
           "Where locks do not reach every host, also how many readers have claims there, on this host and on which "
           "other ones."},
      .aliases = {"watch"},
      .flags =
          {store_flag(),
           {.name = "run", .value = "NAME", .help = "of this run only; exit code 10 where it has no checkpoint"},
           {.name = "prom", .value = "FILE", .help = "write the metrics into this file", .guesses = {"prometheus"}}},
      .examples = {{"ckpt status", "the current directory's runs"},
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
      .summary = "Say whether a run should save now, for scripts: exit code 0 is yes, 1 not yet",
      .about =
          {"By STORE/ckpt.toml, where [interval] says when to save, or interval in the [[rule]] of a run; or by the "
           "rules on the command line, which stand alone. Measured from "
           "the newest checkpoint of the run, with what its saves have cost; where --step is below that, from the "
           "newest save up to it, as after a roll-back. Without --step only rules of time can say yes.",
           "--optimal aims at the interval that loses least time: by --mtbf, else by how often the run was resumed "
           "as far as its checkpoints tell; where nothing is known of failures, at 20 times the stall of a save."},
      .flags = {store_flag(),
                {.name = "step", .value = "N", .help = "the step that has just ended", .guesses = {"iteration"}},
                {.name = "every-steps", .value = "N", .help = "save when a multiple of N is reached or was passed"},
                {.name = "every", .value = "TIME", .help = "save so long after the last save began"},
                {.name = "optimal", .help = "save as often as loses least time, by what saves have cost"},
                {.name = "max-overhead",
                 .value = "PERCENT",
                 .help = "hold the rules back so that saves cost at most this part of the time, such as 3%"},
                {.name = "before-end",
                 .value = "TIME",
                 .help = "save so that it is durable so long before the job's time limit; needs --time-left"},
                {.name = "time-left", .value = "TIME", .help = "until the job's time limit"},
                {.name = "mtbf", .value = "TIME", .help = "mean time between failures of the job, for --optimal"},
                {.name = "restart", .value = "TIME", .help = "what a failure costs before training goes on"},
                {.name = "step-time", .value = "TIME", .help = "of one step; by default as the run's saves tell"}},
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
