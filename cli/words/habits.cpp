#include "cli/words/habits.hpp"

#include <array>
#include <utility>

namespace ckpt::cli {

std::string_view habit_hint(std::string_view word) {
  constexpr std::string_view kExport =
      "'ckpt export SRC OUT' writes tensors to files, 'ckpt ls SRC --objects' shows other values";
  constexpr std::string_view kSave = "'ckpt save SRC --run RUN' imports a checkpoint into a store";
  constexpr std::string_view kConvert = "'ckpt convert SRC DST' writes a checkpoint in another format or layout";
  constexpr std::string_view kMerge =
      "ckpt does not merge models; 'ckpt convert SRC DST' joins the files of one sharded checkpoint";
  constexpr std::string_view kInspect = "'ckpt inspect PATH' shows what a file or directory contains";
  constexpr std::string_view kStats = "'ckpt stats PATH' counts NaN and Inf values of each tensor";
  constexpr std::string_view kLs = "'ckpt ls PATH' lists the tensors, with --tree the size of each branch";
  constexpr std::string_view kVerify = "'ckpt verify PATH' checks completeness and checksums";
  constexpr std::string_view kRestore =
      "'ckpt undelete' restores deleted checkpoints, 'ckpt export SRC OUT' writes tensors to files";
  constexpr std::string_view kStatus = "'ckpt status' shows a summary of a store, --watch redraws it";
  constexpr std::string_view kMark = "'ckpt mark NAME' adds a metric, tag or note to a checkpoint";
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 41> hints{
      {{"cat", kExport},        {"dump", kExport},     {"print", kExport},  {"download", kExport},
       {"upload", kSave},       {"push", kSave},       {"add", kSave},      {"put", kSave},
       {"commit", kSave},       {"init", kSave},       {"cp", kConvert},    {"copy", kConvert},
       {"transform", kConvert}, {"cast", kConvert},    {"split", kConvert}, {"shard", kConvert},
       {"merge", kMerge},       {"average", kMerge},   {"avg", kMerge},     {"soup", kMerge},
       {"describe", kInspect},  {"stat", kInspect},    {"file", kInspect},  {"open", kInspect},
       {"nan", kStats},         {"keys", kLs},         {"tensors", kLs},    {"du", kLs},
       {"validate", kVerify},   {"checksum", kVerify}, {"hash", kVerify},   {"restore", kRestore},
       {"checkout", kRestore},  {"watch", kStatus},    {"top", kStatus},    {"summary", kStatus},
       {"tag", kMark},          {"label", kMark},      {"note", kMark},     {"size", kLs},
       {"metric", kMark}}};
  for (const auto& [habit, hint] : hints)
    if (habit == word) return hint;
  return {};
}

}  // namespace ckpt::cli
