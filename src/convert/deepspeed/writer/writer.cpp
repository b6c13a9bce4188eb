#include "convert/deepspeed/writer/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "convert/deepspeed/files/files.hpp"
#include "convert/deepspeed/files/model_parallel_files.hpp"
#include "convert/deepspeed/files/version.hpp"
#include "convert/deepspeed/writer/expert_layout.hpp"
#include "convert/deepspeed/writer/rank_request.hpp"
#include "convert/deepspeed/writer/state_files.hpp"
#include "convert/deepspeed/writer/training_target.hpp"
#include "convert/place.hpp"
#include "format/text/name_list.hpp"

namespace ckpt::deepspeed {
namespace {

Result<> not_stopped(const WriteRequest& request) {
  if (request.stop == nullptr || !request.stop->load()) return {};
  return fail(Errc::interrupted, "stopped");
}

/// Instructions for the user besides loading the files, and decisions.
void add_notes(const TrainingTarget& target, const WriteRequest& request, std::vector<Finding>& out) {
  out.insert(out.end(), target.notes.begin(), target.notes.end());
  const auto note = [&](std::string text) { out.push_back({.text = std::move(text)}); };
  if (target.fresh)
    note(target.stage == 1 || target.stage == 2
             ? "a new optimizer: the run's own options stay as they are"
             : "a new optimizer: load it with load_checkpoint(..., load_optimizer_states=False)");
  if (!target.state.scheduler)
    note("no state of a learning-rate scheduler: a run that has one loads with load_lr_scheduler_states=False");
  std::vector<std::string> guessed;
  for (const ModelTensor& entry : target.state.model) {
    if (entry.kind_is_known || entry.kind == ModelTensor::Kind::trained) continue;
    guessed.push_back(entry.name + (entry.kind == ModelTensor::Kind::frozen ? " (frozen)" : " (buffer)"));
  }
  if (!guessed.empty()) note("frozen parameters and buffers were distinguished by name only: " + name_list(guessed));
  if (target.state.loss_scale && target.state.loss_scale->dynamic && !has_dynamic_scale(target))
    note("the dynamic loss scale is left out: weights are not fp16");
  if (target.stage == 0 && (target.model_dtype == Dtype::bf16 || target.model_dtype == Dtype::f16) && !target.fresh)
    note("stage 0 with 16-bit weights is written for optimizers of torch (\"torch_adam\": true), not for FusedAdam");
  if (target.stage == 0 && target.model_dtype == Dtype::bf16 && is_before(target.version, 18))
    out.push_back(
        {.severity = Severity::warning,
         .text = "DeepSpeed before 0.18 cannot load bf16 checkpoints written for stage 0; use --zero-stage 1 for those "
                 "versions"});
  if (request.source_format == "deepspeed") note("zero_to_fp32.py is not copied: ckpt convert replaces it");
}

std::vector<SmallFile> small_files(const TrainingTarget& target, const WriteRequest& request, std::string_view latest) {
  return {{.path = std::string(kIdFile), .bytes = request.id + "\n"},
          {.path = std::string(latest), .bytes = target.tag}};
}

void finish_with(Skeleton& out, std::vector<SmallFile> small) {
  for (const SmallFile& file : small) out.small_names.push_back(file.path);
  out.finish = [small = std::move(small)](const std::vector<Hash128>&) -> Result<std::vector<SmallFile>> {
    return small;
  };
}

/// Ranks say much the same.
void drop_repeated(std::vector<Finding>& notes) {
  std::set<std::string> seen;
  std::erase_if(notes, [&](const Finding& note) { return !seen.insert(note.text).second; });
}

Result<> add_experts(const TrainingTarget& target, const WriteRequest& request, Skeleton& out) {
  const std::string below = target.tag + "/";
  for (const ExpertLayer& layer : target.experts) {
    for (std::uint64_t expert = 0; expert < layer.experts; ++expert) {
      CKPT_CHECK(not_stopped(request));
      CKPT_TRY(TargetFile file,
               expert_file(target, layer, expert, below + expert_file_name(layer.number, expert, target.model_rank),
                           request.id));
      out.files.push_back(std::move(file));
    }
  }
  const bool whole = target.stage == 0 && !target.experts.empty() && !target.fresh;
  for (std::uint64_t rank = 0; whole && rank < most_expert_ranks(target); ++rank) {
    CKPT_CHECK(not_stopped(request));
    CKPT_TRY(TargetFile file,
             expert_optimizer_file(target, rank, below + expert_optim_name(rank, target.model_rank), request.id));
    out.files.push_back(std::move(file));
  }
  return {};
}

/// The files of one model-parallel rank.
Result<> add_rank(const TrainingTarget& target, const WriteRequest& request, Skeleton& out) {
  const ModelParallelFiles names{.optim_prefix = target.model_dtype == Dtype::bf16 ? "bf16_" : ""};
  const std::string below = target.tag + "/";
  const std::uint64_t m = target.model_rank;
  for (std::uint64_t rank = 0; rank < (target.stage == 3 ? target.dp : 1); ++rank) {
    CKPT_CHECK(not_stopped(request));
    const std::string name = target.stage == 3 ? names.rank_model_name(m, rank) : names.model_name(m);
    CKPT_TRY(TargetFile file, model_file(target, rank, below + name, request.id));
    out.files.push_back(std::move(file));
  }
  for (std::uint64_t rank = 0; target.stage > 0 && rank < target.dp; ++rank) {
    CKPT_CHECK(not_stopped(request));
    CKPT_TRY(TargetFile file, optimizer_file(target, rank, below + names.optim_name(m, rank), request.id));
    out.files.push_back(std::move(file));
  }
  CKPT_CHECK(add_experts(target, request, out));
  add_notes(target, request, out.dropped);
  return {};
}

/// The files of all model-parallel ranks, which stay what they are.
Result<Skeleton> lay_out_ranks(const WriteRequest& request) {
  const RankLayout& layout = *request.ranks;
  const RankRequests requests(request);
  Skeleton out;
  std::vector<SmallFile> small;
  for (std::uint64_t rank = 0; rank < layout.ranks.size(); ++rank) {
    const auto mine = requests.of(rank);
    CKPT_TRY(const TrainingTarget target, training_target(mine->request, rank));
    CKPT_CHECK(add_rank(target, mine->request, out));
    if (rank != 0) continue;
    small = small_files(target, request, "latest");
    for (const HeldLayer& layer : layout.layers) {
      CKPT_TRY(TargetFile file, layer_file(request, layer, target.tag + "/" + layer.file));
      out.files.push_back(std::move(file));
    }
  }
  drop_repeated(out.dropped);
  finish_with(out, std::move(small));
  return out;
}

}  // namespace

Result<Skeleton> lay_out(const WriteRequest& request) {
  if (request.ranks == nullptr) {
    CKPT_TRY(const TrainingTarget target, training_target(request, 0));
    Skeleton out;
    CKPT_CHECK(add_rank(target, request, out));
    finish_with(out, small_files(target, request, "latest"));
    return out;
  }
  return lay_out_ranks(request);
}

Result<Skeleton> lay_out_universal(const WriteRequest& request) {
  CKPT_TRY(TrainingTarget target, universal_target(request));
  if (request.options.tag.empty() && !target.tag.ends_with("_universal")) target.tag += "_universal";
  Skeleton out;
  CKPT_TRY(out.files, universal_files(target, request));
  add_notes(target, request, out.dropped);
  bool others = false;
  for (const ModelTensor& entry : target.state.model) others = others || entry.kind != ModelTensor::Kind::trained;
  if (others)
    out.dropped.push_back({.text = "DeepSpeed itself does not load frozen parameters and buffers from a universal "
                                   "directory: --to deepspeed keeps them"});
  if (target.model_ranks == 1 && !target.has_bare_tensors)
    out.dropped.push_back(
        {.text = "DeepSpeed older than 0.19 cannot load this directory at ZeRO stage 3; if it has to, convert with "
                 "--zero-stage 3"});
  finish_with(out, small_files(target, request, "latest_universal"));
  return out;
}

Result<std::string> stored_id(Io& io, const std::string& root) {
  const Place place{.io = io, .root = root, .directory = true};
  CKPT_TRY(std::string id, place.head(kIdFile, 64));
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

}  // namespace ckpt::deepspeed
