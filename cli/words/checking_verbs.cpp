#include "cli/words/checking_verbs.hpp"

#include "cli/words/catalog_grammar.hpp"
#include "cli/words/conversion_flags.hpp"

namespace ckpt::cli {
namespace {

Flag rtol_flag() {
  return {.name = "rtol",
          .value = "R",
          .help = "tolerance: a and b are equal if |a-b| <= A + R |b| (default: 0)",
          .guesses = {"tolerance", "rel", "relative", "epsilon", "eps"}};
}

Flag atol_flag() {
  return {.name = "atol", .value = "A", .help = "A in the rule of --rtol (default: 0)", .guesses = {"abs", "absolute"}};
}

Verb diff_verb() {
  return {
      .name = "diff",
      .arguments = "A B",
      .least_arguments = 2,
      .most_arguments = 2,
      .summary = "Compare the tensors of two checkpoints",
      .about =
          {"A and B can have any format and layout. Tensors with the same name are compared bit for bit. For each difference, "
           "ckpt prints the number of differing values and their distance: max |a-b|; relative, the largest |a-b| / max(|a|, "
           "|b|); and relative norm, the Euclidean norm of a-b divided by that of b. If more than ten tensors differ, the same "
           "tensor of all layers shares one line; -v lists each. --map and --names apply to B. Exit code 1 means a difference, "
           "or damage in A.",
           kPathOrName},
      .aliases = {"compare"},
      .flags =
          {
              {.name = "only",
               .value = "WHAT",
               .help = "compare only weights, optim, or tensors whose names match a pattern, e.g. 'model.layers.*'",
               .repeatable = true,
               .guesses = {"include", "filter", "select"}},
              rtol_flag(),
              atol_flag(),
              named_in_flag(),
              from_flag(),
              map_flag(),
              names_flag(),
              vocab_size_flag(),
          },
      .examples = {{"ckpt diff out runs/exp7", "the same tensors, bit for bit?"},
                   {"ckpt diff model.safetensors runs/exp7 --only weights", "without the optimizer"},
                   {"ckpt diff half runs/exp7 --rtol 0.01", "equal but for the rounding to bf16?"},
                   {"ckpt diff llama8b@1000 llama8b@2000 --store runs", "how far did training move?"}},
      .exit_codes = {1, 10, 11, 12, 13, 15, 16, 17},
      .main_verb = true,
  };
}

Verb verify_verb() {
  return {
      .name = "verify",
      .arguments = "PATH | --all [RUN]...",
      .most_arguments = 1000,
      .summary = "Check completeness and checksums",
      .about =
          {"Reads every byte once and checks it against the stored hashes; copies of a tensor must be equal. For other "
           "tools' checkpoints, checks every checksum the format has, that copies are equal, and that the 16-bit weights "
           "match the fp32 masters, which catches a rank's file saved under another rank's name. In the ckpt format, an "
           "unlisted data file is damage. --quick checks only names, sizes and structure, in milliseconds. --against "
           "also compares two checkpoints of any format, as 'ckpt diff' does. "
           "Exit code 1 means damage, a difference or, with --finite, NaN or Inf.",
           "--all verifies every checkpoint in a store, or in the runs that match RUN: those never verified first, then the "
           "least recently verified. The result is recorded: 'ckpt list' shows verified or damaged, and prune keeps the "
           "newest verified one. With --all, --sample is a share of the checkpoints: 5% every night covers all of them in "
           "20 nights. Exit code 3 means that a checkpoint could not be checked or its result could not be recorded.",
           kDirectories, kPathOrName},
      .aliases = {"check", "fsck"},
      .flags =
          {{.name = "all", .help = "verify every checkpoint of the store, least recently verified first"},
           named_in_flag(),
           {.name = "since",
            .value = "TIME",
            .help = "with --all: only checkpoints saved within this time (7d) or since this day (2026-12-31)",
            .guesses = {"newer-than"}},
           {.name = "max-age",
            .value = "TIME",
            .help = "with --all: only checkpoints not verified within this time (30d)",
            .guesses = {"older-than", "stale"}},
           {.name = "quick", .help = "check structure and sizes only", .guesses = {"fast"}},
           {.name = "finite",
            .help = "also count NaN and Inf values of each tensor",
            .guesses = {"nan", "nans", "inf", "isfinite"}},
           {.name = "sample",
            .value = "SHARE",
            .help =
                "read only a share of the bytes, e.g. 5%, in pieces of 4 MiB chosen by --seed; with --all, every byte of "
                "a share of the checkpoints",
            .guesses = {"fraction", "partial"}},
           {.name = "seed", .value = "N", .help = "seed for --sample (default: 0)"},
           {.name = "against",
            .value = "OTHER",
            .help = "compare with another checkpoint, bit for bit",
            .guesses = {"compare", "other", "diff"}},
           rtol_flag(),
           atol_flag(),
           from_flag(),
           map_flag(),
           names_flag(),
           vocab_size_flag()},
      .examples = {{"ckpt verify out", "every checksum"},
                   {"ckpt verify out --quick", "complete? takes milliseconds"},
                   {"ckpt verify llama8b@latest --store runs", "the newest checkpoint of a run"},
                   {"ckpt verify runs/exp7 --finite", "also: did training diverge?"},
                   {"ckpt verify out --sample 5% --seed 7", "one byte in twenty"},
                   {"ckpt verify --all --store /lustre/runs --sample 5% --max-age 30d", "from cron, every night"},
                   {"ckpt verify out --against runs/exp7", "the same tensors, bit for bit?"}},
      .exit_codes = {1, 3, 10, 11, 12, 13, 15, 16, 17},
      .main_verb = true,
  };
}

Verb stats_verb() {
  return {
      .name = "stats",
      .arguments = "PATH",
      .least_arguments = 1,
      .most_arguments = 1,
      .summary = "Show minimum, maximum, mean and NaNs of each tensor",
      .about =
          {"Reads every value once. For each tensor: the smallest and largest value, the mean and standard deviation "
           "(of the population), the Euclidean norm, the share of zeros, and the numbers of NaN and Inf, which count "
           "nowhere else. Complex tensors have no order: only norm, zeros, NaN and Inf. The exit code does not depend "
           "on the values; 'ckpt verify --finite' fails (1) on NaN and Inf.",
           kDirectories, kPathOrName},
      .aliases = {"statistics"},
      .flags = {{.name = "only",
                 .value = "WHAT",
                 .help = "only weights, optim, or tensors whose names match a pattern, e.g. 'model.layers.*'",
                 .repeatable = true,
                 .guesses = {"include", "filter", "select", "glob", "name"}},
                from_flag(),
                map_flag(),
                named_in_flag(),
                tsv_flag()},
      .examples = {{"ckpt stats runs/exp7 --only weights", "the values of each weight"},
                   {"ckpt stats llama8b@latest --only '*.exp_avg_sq' --store runs", "is the optimizer healthy?"},
                   {"ckpt stats model.safetensors --json", "for scripts"}},
      .exit_codes = {10, 11, 12, 13, 15, 16, 17},
      .main_verb = true,
  };
}

}  // namespace

std::vector<Verb> checking_verbs() {
  return {verify_verb(), diff_verb(), stats_verb()};
}

}  // namespace ckpt::cli
