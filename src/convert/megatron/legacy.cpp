#include <fmt/format.h>

#include <array>
#include <utility>

#include "convert/formats.hpp"
#include "convert/gated_halves.hpp"
#include "convert/megatron/iteration.hpp"
#include "convert/megatron/rank_files.hpp"
#include "convert/megatron/rank_merge.hpp"
#include "convert/megatron/rank_writer.hpp"
#include "convert/megatron/source_state.hpp"
#include "engine/io/stat_if_present.hpp"

namespace ckpt {
namespace {

using megatron::Layout;

constexpr std::array kOwnRankNames{megatron::kTracker};

/// NeMo 1 has one state dict a rank, without what tells how the ranks are cut: each looks like a model of its own.
/// source  NeMo 1: nemo/utils/model_utils.py inject_model_parallel_rank
Result<> refuse_nemo_ranks(const Place& place) {
  constexpr std::string_view kWeights = "model_weights.ckpt";
  std::size_t ranks = 0;
  for (const DirEntry& entry : place.entries) {
    const bool is_rank = entry.name.starts_with("mp_rank_") || entry.name.starts_with("tp_rank_");
    if (!is_rank || entry.kind != FileInfo::Kind::directory) continue;
    CKPT_TRY(const auto file, stat_if_present(place.io, join_path(join_path(place.root, entry.name), kWeights)));
    if (file) ++ranks;
  }
  if (ranks < 2) return {};
  return fail(about_path(
      place.root, Errc::unsupported,
      fmt::format("a NeMo 1 model split across {} ranks ({}): merging them is not supported", ranks, kWeights),
      "save it again in NeMo with tensor and pipeline parallelism 1, or as a distributed checkpoint"));
}

Result<std::optional<Match>> detect_legacy(const Place& place) {
  CKPT_TRY(auto found, megatron::find_iteration(place));
  if (!found) CKPT_CHECK(refuse_nemo_ranks(place));
  if (!found || found->layout != Layout::rank_files) return std::nullopt;
  return Match{.where = std::move(found->directory), .why = std::move(found->why)};
}

Result<Map> open_legacy(Io& io, const std::string& root, const ReadOptions& options) {
  CKPT_TRY(const megatron::Ranks ranks, megatron::open_ranks(io, root, options));
  CKPT_TRY(Map map, megatron::merge_ranks(ranks, root));
  map.format = "megatron-legacy";
  megatron::note_renamed(root, map);
  return map;
}

}  // namespace

Format megatron_legacy_format() {
  return {.name = "megatron-legacy",
          .summary = "Megatron-LM's files of ranks: mp_rank_*/model_optim_rng.pt",
          .detect = detect_legacy,
          .own_names = kOwnRankNames,
          .has_folders = true,
          .reader = FormatReader{.open = open_legacy},
          .writer = FormatWriter{.lay_out = megatron::lay_out_ranks,
                                 .prepare = join_gated_halves,
                                 .fits = megatron::fits,
                                 .options = megatron::kRankOptions,
                                 .for_trainers = true,
                                 .reads_steps = true,
                                 .holds_blobs = true,
                                 .tensor_memory = 1600}};
}

}  // namespace ckpt
