#include "cli/words/conversion_verbs.hpp"

#include "cli/words/catalog_grammar.hpp"
#include "cli/words/conversion_flags.hpp"

namespace ckpt::cli {
namespace {

Verb convert_verb() {
  return {
      .name = "convert",
      .arguments = "SRC DST",
      .least_arguments = 2,
      .most_arguments = 2,
      .summary = "Convert a checkpoint to another format or layout",
      .about = {"SRC is a file or directory in any known format; ckpt detects it from file names and first bytes. DST "
                "appears complete or not at all: ckpt writes a temporary directory next to it, checks and syncs it, "
                "and renames it last. Existing files are kept unless --overwrite is given. If SRC changes during the "
                "conversion, ckpt exits with 11 and creates nothing. If the conversion is killed, run the same command "
                "again: it verifies the finished parts and continues.",
                "Without --to, the name of DST selects the format: X.safetensors is one safetensors file, X.h5 one "
                "HDF5 file, anything else a directory in the ckpt format. Memory stays below --memory for checkpoints "
                "of any size. Under mpirun the ranks share the work; the result is identical.",
                kDirectories, kPathOrName},
      .aliases = {"consolidate", "reshard"},
      .flags =
          {
              {.name = "to",
               .value = "FORMAT",
               .help = "output format",
               .guesses = {"format", "output-format", "target-format", "t", "f"}},
              from_flag(),
              seldom(map_flag()),
              seldom(named_in_flag()),
              {.name = "only",
               .value = "WHAT",
               .help = "convert only weights, optim, or tensors whose names match a pattern, e.g. 'model.layers.*'",
               .repeatable = true,
               .guesses = {"include", "filter", "select"}},
              {.name = "weights",
               .value = "WHICH",
               .help = "if both exist: the fp32 master weights or the stored parameters; auto takes the masters with "
                       "--only weights, and for what --dtype casts",
               .choices = {"auto", "master", "param"}},
              {.name = "dtype",
               .value = "DTYPE",
               .help = "cast floating-point weights and buffers, never optimizer state (default: keep)",
               .choices = {"bf16", "fp16", "fp32", "keep"},
               .synonyms = {{"bfloat16", "bf16"},
                            {"float16", "fp16"},
                            {"half", "fp16"},
                            {"f16", "fp16"},
                            {"float32", "fp32"},
                            {"float", "fp32"},
                            {"f32", "fp32"}}},
              {.name = "shard-size",
               .value = "SIZE",
               .help = "maximum size of one output file (default for safetensors directories: 5GB)",
               .guesses = {"max-shard-size", "shard", "split"}},
              {.name = "zero-stage",
               .value = "N",
               .help =
                   "for --to deepspeed: ZeRO stage of the run that will load the result; for --to deepspeed-universal: 3 "
                   "if DeepSpeed older than 0.19 will load it at stage 3",
               .choices = {"0", "1", "2", "3"},
               .guesses = {"stage", "zero"}},
              {.name = "dp",
               .value = "N",
               .help = "for --to deepspeed and megatron-legacy: data-parallel ranks that will load the result",
               .guesses = {"data-parallel", "world-size", "dp-size"}},
              {.name = "ep",
               .value = "N",
               .help = "for --to deepspeed and megatron-legacy: expert-parallel size (default: the source's)",
               .guesses = {"expert-parallel", "ep-size", "expert-model-parallel-size"},
               .seldom = true},
              {.name = "etp",
               .value = "N",
               .help =
                   "for --to megatron-legacy: tensor-parallel size of experts (default: the source's, or that of --tp)",
               .guesses = {"expert-tensor-parallel-size", "etp-size"},
               .seldom = true},
              {.name = "tp",
               .value = "N",
               .help = "for --to megatron-legacy: tensor-parallel size (default: the source's)",
               .guesses = {"tensor-parallel", "tp-size", "tensor-model-parallel-size"}},
              {.name = "pp",
               .value = "N",
               .help = "for --to megatron-legacy: pipeline stages (default: the source's)",
               .guesses = {"pipeline-parallel", "pp-size", "pipeline-model-parallel-size"}},
              {.name = "vpp",
               .value = "N",
               .help = "for --to megatron-legacy: model chunks per pipeline stage (interleaved schedule)",
               .guesses = {"virtual-pipeline", "vpp-size", "virtual-pipeline-model-parallel-size"},
               .seldom = true},
              {.name = "decoder-first",
               .value = "N",
               .help = "for --to megatron-legacy: layers in the first pipeline stage, if not the same as the others",
               .guesses = {"decoder-first-pipeline-num-layers"},
               .seldom = true},
              {.name = "decoder-last",
               .value = "N",
               .help = "for --to megatron-legacy: layers in the last pipeline stage, if not the same as the others",
               .guesses = {"decoder-last-pipeline-num-layers"},
               .seldom = true},
              {.name = "tag",
               .value = "NAME",
               .help = "for --to deepspeed: the checkpoint's directory in DST; by default the source's, or "
                       "global_step and the step",
               .seldom = true},
              {.name = "fresh-optimizer",
               .help = "for --to deepspeed: start with a new optimizer if the source holds weights only",
               .guesses = {"new-optimizer", "no-optimizer"}},
              {.name = "ranks",
               .value = "N",
               .help = "for --to dcp: number of ranks to write files for; by default that of the source"},
              {.name = "placement",
               .value = "NAME=CUTS",
               .help = "for --to dcp: split the tensors whose names match over the ranks, e.g. "
                       "'layers.*.weight=S1' (S1: along dimension 1, R: replicated, R:2,S0:4: on a 2 x 4 mesh); "
                       "default: S0, as FSDP does",
               .repeatable = true,
               .guesses = {"placements", "shard-dim"},
               .seldom = true},
              names_flag(),
              seldom(vocab_size_flag()),
              {.name = "vocab-multiple",
               .value = "N",
               .help =
                   "with --names megatron: pad the vocabulary to a multiple of N (make-vocab-size-divisible-by times "
                   "the tensor-parallel size)",
               .guesses = {"make-vocab-size-divisible-by", "pad-vocab"},
               .seldom = true},
              {.name = "strip-prefix",
               .value = "TEXT",
               .help = "remove this prefix from tensor names that have it",
               .seldom = true},
              {.name = "add-prefix", .value = "TEXT", .help = "add this prefix to every tensor name", .seldom = true},
              {.name = "assets",
               .value = "DIR",
               .help = "take config.json, tokenizer and other model files that SRC lacks from DIR, so that "
                       "transformers can load the output",
               .guesses = {"config", "tokenizer", "model-dir", "base-model"}},
              {.name = "no-extras",
               .help = "do not copy the model's extra files: config.json, tokenizer, chat template, remote code, "
                       "licence",
               .guesses = {"weights-only", "no-config", "no-tokenizer"},
               .seldom = true},
              {.name = "virtual",
               .help = "copy no tensors: DST refers to the files of SRC, which must stay unchanged; needs --to "
                       "ckpt",
               .guesses = {"reference", "no-copy", "lazy"}},
              dry_run_flag(),
              {.name = "overwrite",
               .help = "replace DST if it is a file or a directory with nothing but a checkpoint; with -n, list the "
                       "files that would be deleted",
               .guesses = {"force", "f", "y", "yes"}},
              {.name = "allow-skipped",
               .help = "exit with 0 instead of 3 if data files next to the checkpoint (weights in another format, an "
                       "optimizer, RNG states) are skipped",
               .guesses = {"allow-partial", "ignore-skipped", "partial"},
               .seldom = true},
              seldom(restart_flag()),
              seldom(verify_level_flag()),
          },
      .examples = {{"ckpt convert runs/exp7 model.safetensors --only weights", "weights of a training run in one file"},
                   {"ckpt convert runs/exp7 hf --to safetensors --shard-size 5GB", "a directory of shards"},
                   {"ckpt convert runs/exp7 out -n", "dry run"},
                   {"ckpt convert llama8b@best hf --to safetensors --store runs", "the best checkpoint of a run"},
                   {"ckpt convert runs/megatron llama-hf --to safetensors --only weights --names hf",
                    "load a Megatron-LM checkpoint in transformers"},
                   {"mpirun -n 8 ckpt convert runs/exp7 out --memory 2G", "8 processes, 2 GiB each"}},
      .exit_codes = {3, 10, 11, 12, 13, 14, 15, 16, 17},
      .main_verb = true,
  };
}

Verb materialize_verb() {
  return {
      .name = "materialize",
      .arguments = "CKPT [OUT]",
      .least_arguments = 1,
      .most_arguments = 2,
      .summary = "Make a checkpoint created with --virtual self-contained",
      .about =
          {"CKPT is a virtual checkpoint, written by 'convert --virtual'. The copy contains all tensors and needs no "
           "other files. It is written to OUT. Without OUT it replaces CKPT atomically. Source files are never modified. "
           "To resume after an interruption, run the same command again.",
           kPathOrName},
      .flags =
          {
              named_in_flag(),
              dry_run_flag(),
              restart_flag(),
              {.name = "verify",
               .value = "LEVEL",
               .help = "as for convert; full: also read the output back",
               .choices = {"none", "read", "full"},
               .guesses = {"check"}},
          },
      .examples = {{"ckpt materialize exp7-virtual", "replace it with a copy of everything it refers to"},
                   {"ckpt materialize exp7-virtual exp7", "keep it, and write the copy to exp7"}},
      .exit_codes = {3, 10, 11, 12, 13, 14, 15, 16, 17},
  };
}

}  // namespace

std::vector<Verb> conversion_verbs() {
  return {convert_verb(), materialize_verb()};
}

}  // namespace ckpt::cli
