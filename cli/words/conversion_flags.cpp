#include "cli/words/conversion_flags.hpp"

namespace ckpt::cli {

Flag seldom(Flag flag) {
  flag.seldom = true;
  return flag;
}

Flag from_flag() {
  return {.name = "from",
          .value = "FORMAT",
          .help = "source format (default: detect)",
          .guesses = {"input-format", "source-format"}};
}

Flag map_flag() {
  return {.name = "map",
          .value = "FILE",
          .help = "JSON rules with facts that the files lack: shapes of flat tensors, new names",
          .guesses = {"rules", "name-map", "mapping", "shapes"}};
}

Flag names_flag() {
  return {
      .name = "names",
      .value = "FRAMEWORK",
      .help =
          "use another framework's tensor names, shapes and config: hf (transformers) or megatron; hf:qwen2 picks a "
          "profile ('ckpt help profiles')",
      .guesses = {"naming", "profile", "rename"}};
}

Flag vocab_size_flag() {
  return {.name = "vocab-size",
          .value = "N",
          .help = "with --names: vocabulary size without padding (default: from the model's config)",
          .guesses = {"true-vocab-size", "vocab"}};
}

Flag dry_run_flag() {
  return {.name = "dry-run",
          .letter = 'n',
          .help = "show the plan with bytes and memory; write nothing",
          .guesses = {"plan", "preview"}};
}

Flag restart_flag() {
  return {
      .name = "restart", .help = "start over instead of resuming", .guesses = {"no-resume", "fresh", "from-scratch"}};
}

Flag verify_level_flag() {
  return {
      .name = "verify",
      .value = "LEVEL",
      .help =
          "none: check the structure only; read (default): also verify source checksums; full: also read the output "
          "back and compare replicas and master weights",
      .choices = {"none", "read", "full"},
      .guesses = {"check"}};
}

Flag tsv_flag() {
  return {.name = "tsv",
          .help = "print tables as tab-separated values: full names, sizes in bytes",
          .guesses = {"tab", "tabs", "plain", "porcelain"}};
}

}  // namespace ckpt::cli
