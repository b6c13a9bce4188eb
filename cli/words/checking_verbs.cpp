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
          {"Compares tensors of the same name bit for bit. A and B can be in different formats and layouts. For tensors that "
           "differ, prints how many values differ, max |a-b|, the largest relative difference |a-b| / max(|a|, |b|), and "
           "the relative norm |a-b| / |b|. With more than ten differences, layers are grouped; -v lists each tensor.",
           "--map and --names apply to B. Exits with 1 if the checkpoints differ or A is damaged.", kPathOrName},
      .aliases = {"compare"},
      .flags =
          {
              {.name = "only",
               .value = "WHAT",
               .help = "compare only weights, optim, or tensors whose names match a pattern, e.g. 'model.layers.*'",
               .repeatable = true,
               .guesses = {"include", "filter", "select"}},
              {.name = "strip-prefix",
               .value = "TEXT",
               .help = "remove this prefix from tensor names before comparing"},
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
          {"Reads every byte once and compares it with the stored hashes. Copies of a tensor must match. In other formats, "
           "also verifies all stored checksums, and 16-bit weights against their fp32 masters. In the ckpt format, unlisted "
           "data files count as damage. --quick checks only names, sizes and structure. --against also compares with another "
           "checkpoint, like 'ckpt diff'. Exits with 1 on damage, on a difference or, with --finite, on NaN or Inf.",
           "--all verifies all checkpoints in the store, or in runs matching RUN, least recently verified first. It prints "
           "only those with problems (-v prints all) and records the results: 'ckpt list' shows them, and prune keeps the "
           "newest verified checkpoint of each run. --sample verifies a share: 5% per night covers the store in 20 nights. "
           "Exits with 3 if a run or checkpoint could not be checked, or a result could not be recorded.",
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
          {"Reads every value once and prints minimum, maximum, mean, standard deviation, Euclidean norm, zeros, NaN and Inf "
           "for each tensor. Statistics exclude NaN and Inf. Complex tensors have only norm, zeros, NaN and Inf. To fail on "
           "NaN or Inf, use 'ckpt verify --finite'.",
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
