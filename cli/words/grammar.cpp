#include "cli/words/grammar.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "api/verbs.hpp"
#include "cli/words/catalog_grammar.hpp"
#include "cli/words/checking_verbs.hpp"
#include "cli/words/conversion_flags.hpp"
#include "cli/words/conversion_verbs.hpp"
#include "cli/words/retention_verbs.hpp"

namespace ckpt::cli {
namespace {

Verb export_verb() {
  return {
      .name = "export",
      .arguments = "CKPT OUT",
      .least_arguments = 2,
      .most_arguments = 2,
      .summary = "Export tensors or slices to NumPy or safetensors files",
      .about =
          {"CKPT is a checkpoint in any format that ckpt reads. Only the requested bytes are read. OUT appears complete "
           "or not at all.",
           "OUT.npy is a NumPy file with one tensor. With --to npy, any other name is a directory with one file per "
           "tensor; characters other than letters, digits, '.', '_' and '-' in tensor names become %XX. NumPy has no "
           "BF16, F8, F6 or F4: ckpt stores BF16 as uint16 and the others as uint8, and prints a note. With --to "
           "safetensors, OUT is one file.",
           "Slices use NumPy syntax without steps: ranges, negative indices, '...', and single indices, which drop their "
           "dimension. Without --only, export writes the sliced tensors, or all tensors if there is no --slice.",
           kDirectories, kPathOrName},
      .aliases = {"load", "extract", "get"},
      .flags =
          {
              {.name = "only",
               .value = "WHAT",
               .help = "export only weights, optim, or tensors whose names match a pattern, e.g. 'model.layers.*'",
               .repeatable = true,
               .guesses = {"include", "filter", "select", "glob", "name"}},
              {.name = "slice",
               .value = "SLICE",
               .help = "part of a tensor, e.g. 'emb.weight[0:128, :]'",
               .repeatable = true,
               .guesses = {"range", "index", "part"}},
              {.name = "to",
               .value = "FORMAT",
               .help = "output format (default: from the suffix of OUT)",
               .guesses = {"format", "output-format", "t", "f"},
               .loads = true},
              {.name = "from",
               .value = "FORMAT",
               .help = "source format (default: detect)",
               .guesses = {"input-format", "source-format"}},
              map_flag(),
              named_in_flag(),
              {.name = "dry-run",
               .letter = 'n',
               .help = "show what would be written; write nothing",
               .guesses = {"plan", "preview"}},
              {.name = "overwrite",
               .help = "replace OUT if it is a file or a directory with nothing but earlier output",
               .guesses = {"force", "f", "y", "yes"}},
              {.name = "verify",
               .value = "LEVEL",
               .help =
                   "none: check the structure only; read (default): also verify source hashes and checksums; full: also "
                   "read the output back",
               .choices = {"none", "read", "full"},
               .guesses = {"check"}},
          },
      .examples = {{"ckpt export runs/exp7 emb.npy --slice 'wte.weight[0:128, :]'", "128 rows for NumPy"},
                   {"ckpt export runs/exp7 layers --to npy --only 'h.0.*'", "a directory of .npy files"},
                   {"ckpt export runs/exp7 part.safetensors --only '*.weight' --slice 'wte.weight[:1000]'",
                    "all weights in one file, one of them sliced"}},
      .exit_codes = {3, 10, 11, 12, 13, 14, 15, 16, 17},
      .main_verb = true,
  };
}

Verb inspect_verb() {
  return {
      .name = "inspect",
      .arguments = "PATH",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "Show what a file or directory contains",
      .about = {"Reads headers and indexes only, never tensors, and changes nothing. Needs no GPU, no Python and no "
                "training code. Also describes formats that ckpt cannot read, such as Orbax, GGUF and ONNX.",
                kDirectories, kPathOrName},
      .aliases = {"show", "info"},
      .flags = {from_flag(),
                map_flag(),
                named_in_flag(),
                {.name = "files", .help = "also list the files and their sizes"},
                tsv_flag()},
      .examples = {{"ckpt inspect runs/exp7", "what is this, and is it complete?"},
                   {"ckpt inspect runs/exp7 --json", "the same as JSON"}},
      .exit_codes = {10, 11, 12, 13, 15, 16, 17},
      .main_verb = true,
  };
}

Verb ls_verb() {
  return {
      .name = "ls",
      .arguments = "PATH",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "List tensors: name, dtype, shape, size",
      .about =
          {"Columns are shortened to the width of a terminal, never in a pipe. For scripts: --tsv and --json print sizes in "
           "bytes, -q prints names only.",
           "--objects lists everything that is not a tensor: hyperparameters, counters, scheduler state, settings.",
           kDirectories, kPathOrName},
      .aliases = {"tree"},
      .flags = {{.name = "long", .letter = 'l', .help = "also show role, parameter and slot"},
                {.name = "tree",
                 .help = "show a tree with the size of each branch; equal layers are shown once (-v: all)"},
                {.name = "sort",
                 .value = "KEY",
                 .help = "name (default; numbers by value), size (largest first), or file (order in the files)",
                 .choices = {"name", "size", "file"}},
                {.name = "only",
                 .value = "WHAT",
                 .help = "list only weights, optim, or names that match a pattern, e.g. 'model.layers.*'",
                 .repeatable = true,
                 .guesses = {"include", "filter", "select", "glob", "name"}},
                {.name = "dtype", .value = "DTYPE", .help = "only tensors of this dtype: bf16, fp32, i64, ..."},
                {.name = "depth", .value = "N", .help = "with --tree: at most N levels"},
                {.name = "objects",
                 .help = "list the values that are not tensors, e.g. learning rate, betas, epoch",
                 .guesses = {"values", "scalars", "metadata"}},
                tsv_flag(),
                from_flag(),
                map_flag(),
                names_flag(),
                vocab_size_flag(),
                named_in_flag()},
      .examples = {{"ckpt ls model.safetensors", "all tensors"},
                   {"ckpt ls runs/exp7 --tree --depth 3", "where the bytes are"},
                   {"ckpt ls runs/exp7 --sort size --only '*.weight'", "the largest weights first"},
                   {"ckpt ls runs/exp7 --objects --only '*.lr'", "the learning rates"},
                   {"ckpt ls runs/exp7 -q | wc -l", "how many"}},
      .exit_codes = {10, 11, 12, 13, 15, 16, 17},
      .main_verb = true,
  };
}

Verb plan_verb() {
  return {
      .name = "plan",
      .arguments = "[CKPT]",
      .most_arguments = 1,
      .summary = "Plan the checkpoint interval and its cost",
      .about =
          {"Recommends how often to save. Estimates the cost of a save from the model size and bandwidth, then picks the "
           "interval that loses the least time to saves and failures. CKPT, a checkpoint in any format, replaces "
           "--params. A checkpoint in a store (RUN@STEP) also replaces --bw, --stall, --step-time and --mtbf with "
           "values measured in the run.",
           "Compares the optimum with Young's and Daly's formulas and a rule of thumb: the longest of --rework, 20 "
           "stalls, and 1.1 times the time until a save is durable. --stall adds asynchronous saves; --local-bw adds "
           "saves to local disks, with every Nth copied to shared storage. Intervals count training time between saves. "
           "--gpus shows the loss in GPU hours, --gpu-hour in money."},
      .aliases = {"advise"},
      .flags =
          {
              {.name = "params",
               .value = "N",
               .help = "number of model parameters: 7B, 1.3B, 350M",
               .guesses = {"parameters"}},
              {.name = "precision",
               .value = "KIND",
               .help = "bytes saved per parameter: mixed (default) 14, with Adam; weights 2; fp32 12; with 8-bit "
                       "moments 8; with bf16 moments 10",
               .choices = {"mixed", "weights", "fp32", "mixed-8bit", "mixed-bf16-moments"},
               .seldom = true},
              {.name = "state-bytes",
               .value = "N",
               .help = "bytes saved per parameter, instead of --precision",
               .seldom = true},
              {.name = "bw",
               .value = "RATE",
               .help = "write bandwidth of the storage, all ranks together, in bytes per second (40G)",
               .guesses = {"bandwidth"}},
              {.name = "bench",
               .value = "DIR",
               .help = "measure the bandwidth instead of --bw: write and read a 1 GiB file in DIR with direct I/O"},
              {.name = "size", .value = "SIZE", .help = "file size for --bench", .seldom = true},
              {.name = "stall", .value = "TIME", .help = "time that an asynchronous save blocks training"},
              {.name = "local-bw",
               .value = "RATE",
               .help = "write bandwidth of all local disks together, in bytes per second; plans two tiers"},
              {.name = "node-loss",
               .value = "PERCENT",
               .help = "share of failures that also lose a node's disk, for two tiers (default: 50%)",
               .seldom = true},
              named_in_flag(),
              {.name = "trash",
               .value = "TIME",
               .help = "time that deleted checkpoints stay in the trash, for peak storage (default: 24h)",
               .seldom = true},
              {.name = "mtbf",
               .value = "TIME",
               .help = "mean time between failures of the job (234h) or of a node (30000h/node)"},
              {.name = "nodes", .value = "N", .help = "number of nodes, for --mtbf TIME/node", .seldom = true},
              {.name = "gpus",
               .value = "N",
               .help = "GPUs of the job: shows lost time in GPU hours (default: --tp x --pp x --dp)",
               .guesses = {"num-gpus", "world-size"}},
              {.name = "gpu-hour",
               .value = "PRICE",
               .help = "price of a GPU hour, e.g. 2.50, '$2.50' or 2.50EUR: shows lost time in money",
               .guesses = {"price", "cost", "gpu-price"}},
              {.name = "restart",
               .value = "TIME",
               .help = "time lost at a failure before training continues",
               .guesses = {"recovery"}},
              {.name = "rework",
               .value = "TIME",
               .help = "acceptable loss of training time per failure",
               .guesses = {"rpo"},
               .seldom = true},
              {.name = "step-time",
               .value = "TIME",
               .help = "duration of a training step; intervals are rounded to whole steps"},
              {.name = "keep",
               .value = "RULES",
               .help = "retention rules, e.g. last=3,6h*8,1d*14; shows the storage they need",
               .repeatable = true},
              {.name = "tp", .value = "N", .help = "tensor-parallel ranks", .seldom = true},
              {.name = "pp", .value = "N", .help = "pipeline stages", .seldom = true},
              {.name = "dp", .value = "N", .help = "data-parallel ranks", .seldom = true},
              {.name = "zero-stage", .value = "N", .help = "0 to 3", .choices = {"0", "1", "2", "3"}, .seldom = true},
              {.name = "replica-parallel", .help = "data-parallel replicas share the writing", .seldom = true},
              {.name = "gpu-memory",
               .value = "SIZE",
               .help = "GPU memory per rank; shows what training needs and the first ZeRO stage and offload that fit",
               .seldom = true},
              {.name = "host-memory", .value = "SIZE", .help = "capacity per rank for offload", .seldom = true},
              {.name = "nvme", .value = "SIZE", .help = "capacity per rank for offload", .seldom = true},
              {.name = "memory-table",
               .help = "show the memory that training needs in every ZeRO stage",
               .seldom = true},
              {.name = "models",
               .help = "also show models of 7B, 13B, 70B and 175B with the same options",
               .seldom = true},
              {.name = "curve", .help = "also plot lost time against the interval"},
              {.name = "svg", .help = "print only the plot, as SVG"},
          },
      .examples = {{"ckpt plan --params 70B --bw 40G --mtbf 234h --keep last=3,6h*8,1d*14",
                    "blocking and asynchronous saves, and what retention keeps"},
                   {"ckpt plan --params 70B --bw 40G --mtbf 234h --gpus 1024 --gpu-hour '$2.50'",
                    "what failures and saves cost"},
                   {"ckpt plan --params 13B --bw 5G --dp 8 --gpu-memory 80GB", "does it fit?"},
                   {"ckpt plan llama8b@latest --store runs --keep last=3", "for an existing run"},
                   {"ckpt plan --params 13B --bench /scratch/ckpts --mtbf 200h", "with the measured disk bandwidth"},
                   {"ckpt plan --params 7B --bw 2G --mtbf 50h --svg > curve.svg", "the curve as SVG"}},
      .exit_codes = {10, 12, 13, 15, 16},
      .main_verb = true,
  };
}

Verb doctor_verb() {
  return {
      .name = "doctor",
      .arguments = "[DIR]",
      .most_arguments = 1,
      .summary = "Check a directory's file system, limits and store for problems",
      .about =
          {"Checks the kernel, limits, clock, and the file system of DIR: type, mount options, disk and space. DIR defaults "
           "to the store, then to the current directory. Tests direct I/O, locks and renames with small files, which it "
           "removes. In a store (a directory with .ckpt) it also checks the catalog and the trash, and looks for "
           "leftovers of killed saves, damaged checkpoints and unreadable marks. Each finding names the command "
           "that fixes it.",
           "Exit code 1 means a problem that makes saves fail or can lose them; warnings alone exit with 0."},
      .aliases = {"check-host"},
      .flags = {{.name = "need",
                 .value = "SIZE",
                 .help = "size of the next save: check that it fits, and estimate its duration"},
                {.name = "bench",
                 .help = "also measure disk speed: write and read a 1 GiB file in DIR with direct I/O"},
                {.name = "size", .value = "SIZE", .help = "file size for --bench"},
                {.name = "system", .help = "also show advice that changes the root file system of the machine"},
                store_flag()},
      .examples = {{"ckpt doctor /lustre/ckpts --need 980GB", "before a long run"},
                   {"ckpt doctor /scratch --bench", "how fast is this disk?"},
                   {"ckpt doctor --json | jq '.data.findings[] | select(.health != \"ok\")'", "for scripts"}},
      .exit_codes = {1, 10, 14, 16},
      .main_verb = true,
  };
}

std::vector<Verb> make_verbs() {
  std::vector<Verb> out;
  const auto add = [&](Group group, std::vector<Verb> verbs) {
    for (Verb& verb : verbs) {
      verb.group = group;
      out.push_back(std::move(verb));
    }
  };
  add(Group::files, {inspect_verb(), ls_verb()});
  add(Group::files, conversion_verbs());
  add(Group::files, {export_verb()});
  add(Group::files, checking_verbs());
  add(Group::store, catalog_verbs());
  add(Group::store, retention_verbs());
  add(Group::planning, {plan_verb(), next_save_verb(), doctor_verb()});
  const std::size_t first_of_help = out.size();
  out.push_back(
      {.name = "help",
       .arguments = "[COMMAND or TOPIC]",
       .most_arguments = 1,
       .summary = "Show help for a command or topic: exit-codes, formats, profiles, units, environment",
       .examples = {{"ckpt help convert", "options and examples"}, {"ckpt help exit-codes", "all exit codes"}}});
  out.push_back(
      {.name = "explain",
       .arguments = "ID",
       .least_arguments = 1,
       .most_arguments = 1,
       .summary = "Explain an error id or an exit code",
       .examples = {{"ckpt explain E1503", "what a checksum mismatch means"}, {"ckpt explain 14", "an exit code"}},
       .exit_codes = {10}});
  out.push_back({.name = "version", .summary = "Print the version; with --json also formats and features"});
  out.push_back(
      {.name = "completion",
       .arguments = "SHELL",
       .least_arguments = 1,
       .most_arguments = 1,
       .summary = "Print a completion script for bash, zsh or fish",
       .examples = {{"ckpt completion bash > ~/.local/share/bash-completion/completions/ckpt", "install it"}}});
  for (std::size_t i = first_of_help; i < out.size(); ++i) out[i].group = Group::help;
  return out;
}

std::vector<Flag> make_global_flags() {
  return {
      {.name = "quiet", .letter = 'q', .help = "print warnings and errors only; listings print names only"},
      {.name = "verbose", .letter = 'v', .help = "print more; -vv for details", .repeatable = true},
      {.name = "json", .help = "print one JSON document to stdout, also on failure"},
      {.name = "progress",
       .value = "MODE",
       .help = "auto: progress bar on a terminal, plain lines otherwise; json: JSON lines on stderr",
       .choices = {"auto", "bar", "plain", "json", "none"}},
      {.name = "color",
       .value = "WHEN",
       .help = "colours; auto follows NO_COLOR, CLICOLOR_FORCE and TERM",
       .choices = {"auto", "never", "always"},
       .guesses = {"colour"}},
      {.name = "log-file", .value = "FILE", .help = "append all messages with timestamps, regardless of -q and -v"},
      {.name = "memory",
       .value = "SIZE",
       .help = "memory limit per process, e.g. 4G or 50% (default: 25% of the machine or container, at most 8 GiB)",
       .guesses = {"mem", "max-memory"}},
      {.name = "threads",
       .value = "N",
       .help = "worker threads (default: the CPUs this process may use)",
       .guesses = {"jobs", "j", "workers", "num-workers"}},
      {.name = "io", .value = "ENGINE", .help = "I/O engine", .choices = {"auto", "uring", "threads"}},
      {.name = "no-mpi", .help = "run without MPI, even under mpirun or srun"},
      {.name = "si", .help = "print sizes in decimal units (GB)"},
      {.name = "bytes", .help = "print sizes in bytes"},
      {.name = "help", .letter = 'h', .help = "show help: -h short, --help long"},
      {.name = "version", .help = "print the version"},
  };
}

constexpr std::array<ExitCode, 16> kExitCodes{{
    {0, "success", ""},
    {1, "negative answer: damage or a difference found, something to prune (--check), or no save due (next-save)", ""},
    {2, "usage error, wrong MPI launch, or the target exists", ""},
    {3, "finished, but not everything requested was done; see the warnings", ""},
    {4, "a guard stopped prune: nothing was deleted; review the plan, then approve it with -y", ""},
    {10, "checkpoint, file or tensor not found", ""},
    {11, "in use by another process, or changed while it was read", "yes"},
    {12, "format not recognised, not supported, too new, or ambiguous", ""},
    {13, "incomplete: files are missing, or the save never finished", ""},
    {14, "no space, inodes or quota left", "retry after freeing space"},
    {15, "corrupt data, malicious content, or an unexpected symbolic link", ""},
    {16, "read or write error, or another rank was lost", "yes"},
    {17, "does not fit in --memory; the message names the minimum", ""},
    {70, "internal error; please report it", ""},
    {130, "stopped by SIGINT (Ctrl-C)", "yes"},
    {143, "stopped by SIGTERM", "yes"},
}};

}  // namespace

std::span<const Verb> verbs() {
  static const std::vector<Verb> all = make_verbs();
  return all;
}

std::span<const Flag> global_flags() {
  static const std::vector<Flag> all = make_global_flags();
  return all;
}

const Verb& complete_verb() {
  static const Verb verb{.name = "complete",
                         .arguments = "KIND [WORD]...",
                         .least_arguments = 1,
                         .most_arguments = 100'000,
                         .summary = "Print names for completion scripts",
                         .flags = {store_flag()},
                         .hidden = true};
  return verb;
}

Completes completes(const Verb& verb, const Flag& flag) {
  if (flag.value.empty() || !allowed_values(flag).empty()) return Completes::nothing;
  if (flag.name == "run") return Completes::runs;
  if ((flag.name == "tag" && verb.name == "list") || flag.name == "remove-tag")
    return Completes::tags;  // not a new one
  if (flag.name == "only" || flag.name == "slice") return Completes::tensors;
  if (flag.name == "against") return Completes::checkpoints;
  if (flag.value == "DIR") return Completes::directories;
  if (flag.value == "FILE" || flag.value == "PATH" || flag.name == "out") return Completes::files;
  return Completes::nothing;
}

Completes argument_completes(const Verb& verb) {
  const bool in_store = find_flag(&verb, "store") != nullptr;
  if (verb.name == "policy") return Completes::files;  // after the action
  if (verb.arguments.find("NAME") != std::string_view::npos) return Completes::checkpoints;
  if (verb.arguments.starts_with("RUN") || verb.arguments.starts_with("[RUN")) return Completes::runs;
  if (verb.arguments.empty() || verb.group == Group::help) return Completes::nothing;
  if (verb.arguments == "[DIR]") return Completes::directories;
  return in_store ? Completes::checkpoints : Completes::files;
}

std::string_view completion_word(Completes kind) {
  switch (kind) {
    case Completes::runs:
      return "runs";
    case Completes::checkpoints:
      return "checkpoints";
    case Completes::tags:
      return "tags";
    case Completes::tensors:
      return "tensors";
    default:
      return {};
  }
}

const Verb* find_verb(std::string_view name) {
  if (name == complete_verb().name) return &complete_verb();
  for (const Verb& verb : verbs())
    if (verb.name == name || std::ranges::find(verb.aliases, name) != verb.aliases.end()) return &verb;
  return nullptr;
}

const Flag* find_flag(const Verb* verb, std::string_view name) {
  if (verb != nullptr)
    for (const Flag& flag : verb->flags)
      if (flag.name == name) return &flag;
  for (const Flag& flag : global_flags())
    if (flag.name == name) return &flag;
  return nullptr;
}

std::vector<std::string> allowed_values(const Flag& flag) {
  std::vector<std::string> out(flag.choices.begin(), flag.choices.end());
  if (flag.value != "FORMAT") return out;
  for (const FormatInfo& format : known_formats()) {
    if (flag.loads) {
      if (!format.load_name.empty()) out.push_back(format.load_name);
      continue;
    }
    if (flag.name == "to" ? format.writable : format.readable) out.push_back(format.name);
  }
  return out;
}

std::string canonical_value(const Flag& flag, const std::string& value) {
  for (const auto& [synonym, meaning] : flag.synonyms)
    if (value == synonym) return std::string(meaning);
  if (flag.value == "FORMAT")
    for (const FormatInfo& format : known_formats())
      if (std::ranges::find(format.synonyms, value) != format.synonyms.end()) return format.name;
  return value;
}

std::string environment_name(std::string_view flag) {
  std::string out = "CKPT_";
  for (const char c : flag)
    out.push_back(c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  return out;
}

std::span<const ExitCode> exit_codes() {
  return kExitCodes;
}

}  // namespace ckpt::cli
