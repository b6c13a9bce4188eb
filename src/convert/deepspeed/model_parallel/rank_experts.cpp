#include "convert/deepspeed/model_parallel/rank_experts.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace ckpt::deepspeed {
namespace {

template <class Files>
const Files& of_rank(const std::map<std::uint64_t, Files>& files, std::uint64_t model_rank) {
  static const Files kNone;
  const auto at = files.find(model_rank);
  return at == files.end() ? kNone : at->second;
}

/// The experts of an expert-parallel rank, if the tensor-parallel ranks of a stage have whole experts of this layer:
/// expert-parallel rank r is on tensor-parallel rank r mod `tensor_ranks`. Nothing if they do not.
std::optional<std::uint64_t> whole_local_count(const ModelParallelFiles& files, std::uint64_t first_rank,
                                               std::uint64_t tensor_ranks, std::uint64_t layer, std::uint64_t count) {
  for (std::uint64_t local = 1; local <= count / tensor_ranks; ++local) {
    if (count % local != 0 || count / local % tensor_ranks != 0) continue;
    bool fits = true;
    for (std::uint64_t t = 0; fits && t < tensor_ranks; ++t) {
      const ExpertFiles& held = of_rank(files.experts, first_rank + t);
      fits = std::all_of(std::ranges::lower_bound(held, layer, {}, &ExpertFile::layer),
                         std::ranges::upper_bound(held, layer, {}, &ExpertFile::layer),
                         [&](const ExpertFile& file) { return file.expert / local % tensor_ranks == t; });
    }
    if (fits) return local;
  }
  return std::nullopt;
}

}  // namespace

RankExperts::RankExperts(const ModelParallelFiles& files, std::uint64_t model_rank, std::uint64_t tensor_ranks,
                         const std::vector<std::uint64_t>& counts)
    : model_rank_(model_rank),
      counts_(counts),
      beside_layers_(!files.layers.empty()),
      files_(of_rank(files.experts, model_rank)),
      optims_(of_rank(files.expert_optims, model_rank)) {
  const std::uint64_t tensor_rank = model_rank % tensor_ranks;
  const std::uint64_t first_rank = model_rank - tensor_rank;
  for (std::uint64_t t = 0; t < tensor_ranks; ++t) {
    const auto& held = of_rank(files.expert_optims, first_rank + t);
    if (!held.empty()) expert_ranks_ = std::max(expert_ranks_, held.back().rank + 1);
  }
  if (tensor_ranks == 1 || counts.empty()) return;
  for (std::uint64_t layer = 0; layer < counts.size(); ++layer) {
    const auto local = whole_local_count(files, first_rank, tensor_ranks, layer, counts[layer]);
    if (!local) return;
    local_counts_.push_back(*local);
  }
  cut_ = ExpertCut::whole;
  share_ = {.first = tensor_rank, .stride = tensor_ranks};
  expert_ranks_ = (expert_ranks_ + tensor_ranks - 1) / tensor_ranks * tensor_ranks;
}

bool RankExperts::has(std::uint64_t layer, std::uint64_t expert) const {
  if (layer >= counts_.size() || expert >= counts_[layer]) return false;
  return cut_ == ExpertCut::slices || expert / local_counts_[layer] % share_.stride == share_.first;
}

std::uint64_t RankExperts::most_expert_ranks(const ModelStates& model) const {
  std::uint64_t most = expert_ranks_;
  for (const auto& [index, group] : model.expert_groups) most = std::max(most, group.rank_count * share_.stride);
  return most;
}

Result<> RankExperts::check_files(const Tag& tag, bool whole_optimizer) const {
  if (const std::string name = missing(whole_optimizer); !name.empty()) {
    const std::string path = path_in(tag, name);
    return fail({.code = Errc::incomplete,
                 .message = path + ": the file is missing",
                 .file = path,
                 .hint = "each rank writes its own file: copy the missing ones from the nodes that wrote them"});
  }
  if (const std::string name = surplus(whole_optimizer); !name.empty()) {
    const std::string path = path_in(tag, name);
    return fail({.code = Errc::corrupt,
                 .message = path + ": belongs to a save with other ranks or experts",
                 .file = path,
                 .hint = "move the files of the older save away"});
  }
  return {};
}

Result<> RankExperts::check_apart(const StateFile& file, bool whole_optimizer) const {
  const auto refused = [&](const std::string& what) {
    return fail(with_hint(file.error(Errc::unsupported, what + " cannot be written for DeepSpeed again"),
                          "use --to ckpt or --to safetensors"));
  };
  if (whole_optimizer) return refused("experts of model-parallel ranks without ZeRO");
  if (cut_ == ExpertCut::whole)
    return refused("experts that each tensor-parallel rank has for itself (no enable_expert_tensor_parallelism)");
  if (beside_layers_) return refused("a pipeline with experts in some of its stages only");
  return {};
}

std::string RankExperts::missing(bool whole_optimizer) const {
  auto file = files_.begin();
  for (std::uint64_t layer = 0; layer < counts_.size(); ++layer) {
    for (std::uint64_t expert = 0; expert < counts_[layer]; ++expert) {
      if (!has(layer, expert)) continue;
      while (file != files_.end() && std::pair(file->layer, file->expert) < std::pair(layer, expert)) ++file;
      if (file == files_.end() || file->layer != layer || file->expert != expert)
        return expert_file_name(layer, expert, model_rank_);
    }
  }
  std::size_t optim = 0;
  const std::uint64_t optim_end = whole_optimizer && !counts_.empty() ? expert_ranks_ : 0;
  for (std::uint64_t rank = share_.first; rank < optim_end; rank += share_.stride, ++optim) {
    if (optim == optims_.size() || optims_[optim].rank != rank) return expert_optim_name(rank, model_rank_);
  }
  return {};
}

std::string RankExperts::surplus(bool whole_optimizer) const {
  for (const ExpertFile& file : files_) {
    if (!has(file.layer, file.expert)) return file.name;
  }
  const std::uint64_t most = counts_.empty() ? 0 : *std::ranges::max_element(counts_);
  for (const RankFile& file : optims_) {
    if (!whole_optimizer || file.rank >= most || file.rank % share_.stride != share_.first) return file.name;
  }
  return {};
}

}  // namespace ckpt::deepspeed
