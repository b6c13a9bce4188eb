#include "cli/grammar.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "api/verbs.hpp"
#include "cli/catalog_grammar.hpp"
#include "cli/retention_verbs.hpp"

namespace ckpt::cli {
namespace {

Flag from_flag() {
  return {.name = "from",
          .value = "FORMAT",
          .help = "what PATH is, when detection is not wanted or finds two answers",
          .guesses = {"input-format", "source-format"}};
}

Flag map_flag() {
  return {.name = "map",
          .value = "FILE",
          .help = "rules in JSON for what the files do not tell: shapes in flat tensors, other names",
          .guesses = {"rules", "name-map", "mapping", "shapes"}};
}

Verb convert_verb() {
  return {
      .name = "convert",
      .arguments = "SRC DST",
      .least_arguments = 2,
      .most_arguments = 2,
      .summary = "Turn any known checkpoint into safetensors, HDF5 or the ckpt format",
      .about =
          {"SRC is a file or a directory of any known format; it is recognised by its names and first bytes. DST is "
           "made whole or not at all: it is written beside its final name, checked, synced and renamed in the last "
           "step. Nothing that exists is replaced without --overwrite. A source "
           "that is replaced or written to meanwhile ends it with exit code 11, and nothing is made. Run again after "
           "it was killed, it reads what it "
           "had finished, keeps what is right and goes on from there.",
           "Without --to the name of DST decides: X.safetensors is one safetensors file, X.h5 is an HDF5 file, "
           "anything else is a directory in the universal format, ckpt; only a suffix that promises a form that is not "
           "written, such as X.pt, is refused. Memory stays below --memory whatever the size of the "
           "checkpoint. Under mpirun the work is divided among the ranks and the result is the same, bit for bit.",
           kPathOrName},
      .aliases = {"export", "consolidate", "merge", "reshard"},
      .flags =
          {
              {.name = "to",
               .value = "FORMAT",
               .help = "the form to write",
               .guesses = {"format", "output-format", "target-format", "t", "f"}},
              {.name = "from",
               .value = "FORMAT",
               .help = "what SRC is, when detection is not wanted or finds two answers",
               .guesses = {"input-format", "source-format"}},
              map_flag(),
              named_in_flag(),
              {.name = "only",
               .value = "WHAT",
               .help = "what to take: weights, optim, or a pattern over tensor names such as 'model.layers.*'",
               .repeatable = true,
               .guesses = {"include", "filter", "select"}},
              {.name = "weights",
               .value = "WHICH",
               .help = "where both exist: the fp32 master weights, or the parameters as trained; auto takes the "
                       "master under --only weights",
               .choices = {"auto", "master", "param"}},
              {.name = "dtype",
               .value = "DTYPE",
               .help = "cast floating weights and buffers, never optimizer state; keep is the default",
               .choices = {"bf16", "fp16", "fp32", "keep"}},
              {.name = "shard-size",
               .value = "SIZE",
               .help = "start a new file before this size is passed, for targets of several files; by default 5GB in "
                       "Hugging Face's form",
               .guesses = {"max-shard-size", "shard", "split"}},
              {.name = "strip-prefix", .value = "TEXT", .help = "remove this from the front of the names that have it"},
              {.name = "add-prefix", .value = "TEXT", .help = "put this in front of every name"},
              {.name = "dry-run",
               .letter = 'n',
               .help = "say what would be done, in bytes and memory, and do nothing",
               .guesses = {"plan", "preview"}},
              {.name = "overwrite",
               .help = "replace DST, if it is a file, or a checkpoint beside which nothing else stands in its "
                       "directory; with -n the "
                       "files that would go are listed",
               .guesses = {"force", "f", "y", "yes"}},
              {.name = "allow-skipped",
               .help = "exit 0, not 3, although files beside the checkpoint (another format's weights, an optimizer, "
                       "random states) are not carried over",
               .guesses = {"allow-partial", "ignore-skipped", "partial"}},
              {.name = "restart",
               .help = "begin anew where this conversion was killed, rather than go on from what it had finished",
               .guesses = {"no-resume", "fresh", "from-scratch"}},
              {.name = "verify",
               .value = "LEVEL",
               .help = "none: structure only; read, the default: also every checksum of what is read whole; full: "
                       "also read the output again and compare replicas and master weights",
               .choices = {"none", "read", "full"},
               .guesses = {"check"}},
          },
      .examples = {{"ckpt convert runs/exp7 model.safetensors --only weights", "weights of a training run in one file"},
                   {"ckpt convert runs/exp7 hf --to safetensors --shard-size 5GB", "a directory in shards"},
                   {"ckpt convert runs/exp7 out -n", "what would happen"},
                   {"ckpt convert llama8b@best hf --to safetensors --store runs", "the best of a run in a store"},
                   {"mpirun -n 8 ckpt convert runs/exp7 out --memory 2G", "on eight processes of 2 GiB"}},
      .exit_codes = {3, 10, 11, 12, 13, 14, 15, 16, 17},
      .main_verb = true,
  };
}

Verb load_verb() {
  return {
      .name = "load",
      .arguments = "CKPT OUT",
      .least_arguments = 2,
      .most_arguments = 2,
      .summary = "Take tensors, or slices of them, out into NumPy or safetensors files",
      .about =
          {"CKPT is a checkpoint of any format that is read. Only the bytes that are asked for are moved, whatever the "
           "layout, and OUT appears whole or not at all.",
           "OUT.npy is one NumPy file with one tensor; another name with --to npy is a directory with one file a "
           "tensor, named by the tensor: bytes other than letters, digits, '.', '_' and '-' are %XX. NumPy has no "
           "BF16, "
           "F8, F6 and F4: BF16 is written as the bits in uint16, the others in uint8, and a note says so. With --to "
           "safetensors OUT is one file.",
           "A slice is written as in NumPy: ranges, negative numbers from the end, '...', and single numbers, which "
           "take their dimension away; no steps. Without --only the tensors that are sliced are taken, else all.",
           kPathOrName},
      .flags =
          {
              {.name = "only",
               .value = "WHAT",
               .help = "what to take: weights, optim, or a pattern over tensor names such as 'model.layers.*'",
               .repeatable = true,
               .guesses = {"include", "filter", "select", "glob", "name"}},
              {.name = "slice",
               .value = "SLICE",
               .help = "what of a tensor to take, such as 'emb.weight[0:128, :]'",
               .repeatable = true,
               .guesses = {"range", "index", "part"}},
              {.name = "to",
               .value = "FORM",
               .help = "the form to write; by default what the suffix of OUT says",
               .guesses = {"format", "output-format", "t", "f"}},
              {.name = "from",
               .value = "FORMAT",
               .help = "what CKPT is, when detection is not wanted or finds two answers",
               .guesses = {"input-format", "source-format"}},
              map_flag(),
              named_in_flag(),
              {.name = "dry-run",
               .letter = 'n',
               .help = "say what would be written, and do nothing",
               .guesses = {"plan", "preview"}},
              {.name = "overwrite",
               .help = "replace OUT if it is a file, or a directory that holds only such output",
               .guesses = {"force", "f", "y", "yes"}},
              {.name = "verify",
               .value = "LEVEL",
               .help =
                   "none: structure only; read, the default: also the stored hashes of the files that are read from, "
                   "and every checksum of what is read whole; full: also read the output again",
               .choices = {"none", "read", "full"},
               .guesses = {"check"}},
          },
      .examples = {{"ckpt load runs/exp7 emb.npy --slice 'wte.weight[0:128, :]'", "128 rows for NumPy"},
                   {"ckpt load runs/exp7 layers --to npy --only 'h.0.*'", "a directory of .npy files"},
                   {"ckpt load runs/exp7 part.safetensors --only '*.weight' --slice 'wte.weight[:1000]'",
                    "all weights in one file, one of them cut"}},
      .exit_codes = {3, 10, 11, 12, 13, 14, 15, 16, 17},
      .main_verb = true,
  };
}

Verb verify_verb() {
  return {
      .name = "verify",
      .arguments = "PATH | --all [RUN]...",
      .most_arguments = 1000,
      .summary = "Prove that a checkpoint is complete and intact",
      .about =
          {"Reads the whole checkpoint once and compares every hash that it carries, and the copies that several files "
           "hold of the same values; of other tools' checkpoints, every checksum of their format, those copies, and "
           "the "
           "fp32 masters with the weights that were rounded from them, so that a rank's file in another's place is "
           "found. In a checkpoint of ckpt's own, a data file that its table does not list is damage too. With "
           "--quick only names, sizes and structure are looked at, in milliseconds. With --against the tensors of "
           "two checkpoints, of any formats, are compared bit for bit. Exit code 1 means that damage or a "
           "difference was found, or with --finite a value that is no number.",
           "With --all the checkpoints of a store are verified, of all runs or of those that the patterns RUN name, "
           "one after another: first what never was, then what was longest ago. What was found is recorded in each "
           "one: ckpt list shows it as verified or corrupt, and retention keeps the newest verified one. --sample "
           "then is a share of the checkpoints, so a job that looks at 5% every night comes by each in 20. Exit "
           "code 3 means that some could not be looked at.",
           kPathOrName},
      .aliases = {"check", "fsck"},
      .flags = {{.name = "all", .help = "verify the checkpoints of a store, those first that it is longest ago for"},
                named_in_flag(),
                {.name = "since",
                 .value = "TIME",
                 .help =
                     "with --all: only those saved within this time, such as 7d, or since a day, such as 2026-12-31",
                 .guesses = {"newer-than"}},
                {.name = "max-age",
                 .value = "TIME",
                 .help = "with --all: only those not verified within this time, such as 30d",
                 .guesses = {"older-than", "stale"}},
                {.name = "quick", .help = "structure and sizes only", .guesses = {"fast"}},
                {.name = "finite",
                 .help = "also count NaNs and infinite values, tensor by tensor",
                 .guesses = {"nan", "nans", "inf", "isfinite"}},
                {.name = "sample",
                 .value = "SHARE",
                 .help = "look at a share of the bytes only, such as 5%, in pieces of 4 MiB that --seed chooses; with "
                         "--all at a share of the checkpoints, every byte of them",
                 .guesses = {"fraction", "partial"}},
                {.name = "seed", .value = "N", .help = "which pieces --sample looks at; 0 by default"},
                {.name = "against",
                 .value = "OTHER",
                 .help = "compare with another checkpoint, tensor by tensor, bit for bit",
                 .guesses = {"compare", "other", "diff"}},
                from_flag(),
                map_flag()},
      .examples = {{"ckpt verify out", "every checksum"},
                   {"ckpt verify out --quick", "complete? in milliseconds"},
                   {"ckpt verify llama8b@latest --store runs", "the newest of a run"},
                   {"ckpt verify runs/exp7 --finite", "also: did training diverge?"},
                   {"ckpt verify out --sample 5% --seed 7", "a look at one byte in twenty"},
                   {"ckpt verify --all --store /lustre/runs --sample 5% --max-age 30d", "from cron, every night"},
                   {"ckpt verify out --against runs/exp7", "the same tensors, bit for bit?"}},
      .exit_codes = {1, 3, 10, 11, 12, 13, 15, 16, 17},
      .main_verb = true,
  };
}

Verb inspect_verb() {
  return {
      .name = "inspect",
      .arguments = "PATH",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "Say what a file or directory is, on one screen",
      .about =
          {"Reads headers and indexes only, never the tensors, and changes nothing. Needs no GPU, no Python and no "
           "code of the trainer.",
           kPathOrName},
      .aliases = {"show", "info"},
      .flags = {from_flag(),
                map_flag(),
                named_in_flag(),
                {.name = "files", .help = "also list the files with their sizes"}},
      .examples = {{"ckpt inspect runs/exp7", "what is this, and is it complete?"},
                   {"ckpt inspect runs/exp7 --json", "the same for a program"}},
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
      .summary = "List the tensors: name, dtype, shape, size",
      .about =
          {"On a terminal the columns fit its width. Into a pipe the same columns are separated by tabs, sizes are "
           "plain bytes, and nothing is shortened. -q prints names only.",
           kPathOrName},
      .aliases = {"tree"},
      .flags = {{.name = "long", .letter = 'l', .help = "also the role, the parameter and the slot of each tensor"},
                {.name = "tree", .help = "as a tree of the names, with the size below each branch"},
                {.name = "sort",
                 .value = "KEY",
                 .help = "name (numbers by value, the default), size (largest first), or file (as stored)",
                 .choices = {"name", "size", "file"}},
                {.name = "glob",
                 .value = "PATTERN",
                 .help = "only names that match, for example 'model.layers.*.mlp.*'",
                 .repeatable = true,
                 .guesses = {"filter", "only", "name", "include"}},
                {.name = "dtype", .value = "DTYPE", .help = "only tensors of this dtype: bf16, fp32, i64, ..."},
                {.name = "depth", .value = "N", .help = "with --tree: no deeper than N levels"},
                from_flag(),
                map_flag(),
                named_in_flag()},
      .examples = {{"ckpt ls model.safetensors", "all tensors"},
                   {"ckpt ls runs/exp7 --tree --depth 3", "where the bytes are"},
                   {"ckpt ls runs/exp7 --sort size --glob '*.weight'", "the largest weights first"},
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
      .summary = "Say how often to save, and what that costs, from sizes, bandwidth and failures",
      .about =
          {"What a save costs follows from the number of parameters and the bandwidth, and how often to save from that "
           "and from the time between failures. CKPT, a checkpoint of any format, stands in for --params; named "
           "RUN@STEP in a store also for --bw, --stall, --step-time and --mtbf, by what that run's saves cost and how "
           "often it was resumed. Shown side by side are the exact optimum, "
           "Young's and Daly's formulas, and the base rule: the greatest of the work that may be lost, 20 times the "
           "stall and 1.1 times the time until a save is durable.",
           "Times are of work between two saves. With --stall asynchronous saves, which stall training that long only, "
           "stand beside blocking ones, with --local-bw saves to the nodes' own disks, of which every so many are "
           "drained "
           "to the storage. What is chosen loses least."},
      .aliases = {"advise"},
      .flags =
          {
              {.name = "params",
               .value = "N",
               .help = "parameters of the model: 7B, 1.3B, 350M",
               .guesses = {"parameters"}},
              {.name = "precision",
               .value = "KIND",
               .help = "what is saved of a parameter: mixed, the default, 14 bytes with Adam; weights 2; fp32 12; with "
                       "8-bit "
                       "moments 8; with bf16 moments 10",
               .choices = {"mixed", "weights", "fp32", "mixed-8bit", "mixed-bf16-moments"}},
              {.name = "state-bytes",
               .value = "N",
               .help = "saved bytes of a parameter, instead of what --precision says"},
              {.name = "bw",
               .value = "RATE",
               .help = "bytes a second that the storage takes from all ranks together, such as 40G",
               .guesses = {"bandwidth"}},
              {.name = "bench",
               .value = "DIR",
               .help = "in place of --bw: write and read a file of 1 GiB there, direct, and plan with what it wrote a "
                       "second"},
              {.name = "size", .value = "SIZE", .help = "--bench with a file of this size"},
              {.name = "stall", .value = "TIME", .help = "how long an asynchronous save stalls training"},
              {.name = "local-bw",
               .value = "RATE",
               .help = "bytes a second of the nodes' own disks together: also plan two tiers"},
              {.name = "node-loss",
               .value = "PERCENT",
               .help = "part of the failures that take a node's disk along, for two tiers; by default 50%"},
              named_in_flag(),
              {.name = "trash",
               .value = "TIME",
               .help = "how long deleted checkpoints stay in the trash, for the peak of storage; by default 24h"},
              {.name = "mtbf",
               .value = "TIME",
               .help = "mean time between failures: of the job (234h), or of a node (30000h/node)"},
              {.name = "nodes", .value = "N", .help = "nodes of the job, for --mtbf TIME/node"},
              {.name = "restart",
               .value = "TIME",
               .help = "what a failure costs before training goes on",
               .guesses = {"recovery"}},
              {.name = "rework", .value = "TIME", .help = "work that may be lost at a failure", .guesses = {"rpo"}},
              {.name = "step-time", .value = "TIME", .help = "of one training step: intervals become whole steps"},
              {.name = "keep",
               .value = "RULES",
               .help = "what retention keeps, such as last=3,6h*8,1d*14: says how much storage that takes",
               .repeatable = true},
              {.name = "tp", .value = "N", .help = "tensor-parallel ranks"},
              {.name = "pp", .value = "N", .help = "pipeline stages"},
              {.name = "dp", .value = "N", .help = "data-parallel ranks"},
              {.name = "zero-stage", .value = "N", .help = "0 to 3", .choices = {"0", "1", "2", "3"}},
              {.name = "replica-parallel", .help = "ranks that hold the same divide writing it"},
              {.name = "gpu-memory",
               .value = "SIZE",
               .help = "of a rank: shows what training takes, and the first ZeRO stage and offload that fit"},
              {.name = "host-memory", .value = "SIZE", .help = "of a rank, for offload"},
              {.name = "nvme", .value = "SIZE", .help = "of a rank, for offload"},
              {.name = "memory-table", .help = "show what training takes in each ZeRO stage, whatever fits"},
              {.name = "models",
               .help = "also show the bytes of models of 7B, 13B, 70B and 175B, under the same flags"},
              {.name = "curve", .help = "also draw lost time over the interval"},
              {.name = "svg", .help = "print only that curve, as an SVG picture"},
          },
      .examples =
          {{"ckpt plan --params 70B --bw 40G --stall 1.9s --nodes 128 --mtbf 30000h/node --keep last=3,6h*8,1d*14",
            "blocking and asynchronous saves, and what retention keeps"},
           {"ckpt plan --params 13B --bw 5G --dp 8 --gpu-memory 80GB --host-memory 200GB", "does it fit, and how?"},
           {"ckpt plan llama8b@latest --store runs --keep last=3", "for a run as it is"},
           {"ckpt plan --params 13B --bench /scratch/ckpts --mtbf 200h", "with the disk as it is"},
           {"ckpt plan --params 7B --bw 2G --mtbf 50h --svg > curve.svg", "the curve as a picture"}},
      .exit_codes = {10, 12, 13, 15, 16},
      .main_verb = true,
  };
}

Verb doctor_verb() {
  return {
      .name = "doctor",
      .arguments = "[DIR]",
      .most_arguments = 1,
      .summary = "Say whether checkpoints can be kept in a directory, fast and safely",
      .about =
          {"Looks at the kernel, its limits and the clock, and at the file system of DIR (the current directory where "
           "none "
           "is given): its kind, how it is mounted, its disk, its space. What saves rely on (direct I/O, locks, "
           "renames) is "
           "tried there, in small files that are removed again. Of a store (a directory with .ckpt) also what killed "
           "saves "
           "left, the catalog, the trash, and checkpoints that are damaged or whose marks cannot be read. Each finding "
           "comes with the command that mends it.",
           "Exit code 1 says that something was found that makes saves fail, or can lose them; warnings alone are 0."},
      .aliases = {"check-host"},
      .flags = {{.name = "need",
                 .value = "SIZE",
                 .help = "of the next save: is there room for it, and how long does it take at least?"},
                {.name = "bench",
                 .help = "also write and read a file of 1 GiB there, direct, and say how fast that was"},
                {.name = "size", .value = "SIZE", .help = "--bench with a file of this size"}},
      .examples = {{"ckpt doctor /lustre/ckpts --need 980GB", "before a long run"},
                   {"ckpt doctor /scratch --bench", "how fast is this disk, honestly?"},
                   {"ckpt doctor --json | jq '.data.findings[] | select(.health != \"ok\")'", "for scripts"}},
      .exit_codes = {1, 10, 14, 16},
      .main_verb = true,
  };
}

std::vector<Verb> make_verbs() {
  std::vector<Verb> out{convert_verb(), load_verb(), verify_verb(), inspect_verb(),
                        ls_verb(),      plan_verb(), doctor_verb()};
  for (Verb& verb : catalog_verbs()) out.push_back(std::move(verb));
  for (Verb& verb : retention_verbs()) out.push_back(std::move(verb));
  out.push_back({.name = "help",
                 .arguments = "[VERB or TOPIC]",
                 .most_arguments = 1,
                 .summary = "Explain a verb, or one of the topics exit-codes, formats, units, environment",
                 .examples = {{"ckpt help convert", "flags and examples"}, {"ckpt help exit-codes", "the table"}}});
  out.push_back({.name = "explain",
                 .arguments = "ID",
                 .least_arguments = 1,
                 .most_arguments = 1,
                 .summary = "Explain an error by its id, without a network",
                 .examples = {{"ckpt explain E1503", "what a checksum mismatch means and what to do"}},
                 .exit_codes = {10}});
  out.push_back(
      {.name = "version", .summary = "Print the version; with --json also formats, features and the build id"});
  out.push_back(
      {.name = "completion",
       .arguments = "SHELL",
       .least_arguments = 1,
       .most_arguments = 1,
       .summary = "Print the completion script for bash, zsh or fish",
       .examples = {{"ckpt completion bash > ~/.local/share/bash-completion/completions/ckpt", "install it"}}});
  return out;
}

std::vector<Flag> make_global_flags() {
  return {
      {.name = "quiet", .letter = 'q', .help = "errors only; names only where a verb lists"},
      {.name = "verbose", .letter = 'v', .help = "say what was decided; -vv says more", .repeatable = true},
      {.name = "json", .help = "print one JSON document on standard output, also on failure"},
      {.name = "progress",
       .value = "MODE",
       .help = "auto: a moving line on a terminal, else whole lines; json: one object a line on standard error",
       .choices = {"auto", "bar", "plain", "json", "none"}},
      {.name = "color",
       .value = "WHEN",
       .help = "when to colour; auto heeds NO_COLOR, CLICOLOR_FORCE and TERM",
       .choices = {"auto", "never", "always"},
       .guesses = {"colour"}},
      {.name = "log-file",
       .value = "FILE",
       .help = "append everything said, with times, whatever -q and -v say; a regular file, no link"},
      {.name = "memory",
       .value = "SIZE",
       .help = "the most resident memory a process may use, such as 4G or 50%; by default a quarter of the limit, at "
               "most 8 GiB",
       .guesses = {"mem", "max-memory"}},
      {.name = "threads",
       .value = "N",
       .help = "worker threads; by default the CPUs this process may use",
       .guesses = {"jobs", "j", "workers", "num-workers"}},
      {.name = "io",
       .value = "ENGINE",
       .help = "how files are read and written",
       .choices = {"auto", "uring", "threads"}},
      {.name = "no-mpi", .help = "work alone, even under mpirun or srun"},
      {.name = "si", .help = "write sizes in powers of ten (GB)"},
      {.name = "bytes", .help = "write sizes in bytes"},
      {.name = "help", .letter = 'h', .help = "explain the verb"},
      {.name = "version", .help = "print the version"},
  };
}

constexpr std::array<ExitCode, 15> kExitCodes{{
    {0, "done, nothing to report", ""},
    {1, "finished, and the answer is no: verify found damage or a difference, prune was stopped by a guard", ""},
    {2, "usage: an unknown flag or name, a wrong MPI launch, or the target exists", ""},
    {3, "finished, but something that was asked for was not done; the warnings say what", ""},
    {10, "checkpoint, file or tensor not found", ""},
    {11, "another process holds it", "yes"},
    {12, "format not recognised, not supported, newer than this build, or ambiguous", ""},
    {13, "checkpoint incomplete: files are missing, or the save never finished", ""},
    {14, "no space, inodes or quota left", "worth a retry after freeing some"},
    {15,
     "corrupt data met while doing something else, hostile content, or a symbolic link where something was to change",
     ""},
    {16, "the system failed to read or write, or another rank was lost", "yes"},
    {17, "does not fit in the memory bound; the message names the smallest that fits", ""},
    {70, "an error of ckpt itself: please report it", ""},
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

const Verb* find_verb(std::string_view name) {
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
  if (flag.value == "FORM") {
    for (const FormatInfo& format : known_formats())
      if (!format.load_name.empty()) out.push_back(format.load_name);
  }
  if (flag.value != "FORMAT") return out;
  for (const FormatInfo& format : known_formats())
    if (flag.name == "to" ? format.writable : format.readable) out.push_back(format.name);
  return out;
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
