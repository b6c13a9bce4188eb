#include "convert/deepspeed/model_parallel/sliced_tensors.hpp"

#include <algorithm>
#include <iterator>

#include "convert/deepspeed/files/files.hpp"
#include "convert/deepspeed/stages/experts.hpp"

namespace ckpt::deepspeed {
namespace {

using StageSlices = std::map<std::uint64_t, RankSlice>;

/// A parameter, or a slot by its parameter: the names that rules match.
const std::string& ruled_name(const Tensor& tensor) {
  return tensor.parameter.empty() ? tensor.name : tensor.parameter;
}

Result<Assembled> assemble_stage(const std::string& name, std::uint64_t stage, const StageSlices& ranks,
                                 const SliceMesh& mesh) {
  const std::string& file = mesh.rule_files.at(stage);
  std::vector<RankSlice> slices;
  if (mesh.whole_experts.count(stage) != 0 && expert_name(name)) {
    for (const auto& [tensor_rank, slice] : ranks) slices.push_back(slice);
    if (slices.size() == 1) return mesh.rules.at(stage).assemble(name, slices);
  }
  for (std::uint64_t t = 0; t < mesh.tensor_ranks; ++t) {
    const auto at = ranks.find(t);
    if (at == ranks.end()) {
      return fail(
          with_tensor({.code = Errc::incomplete,
                       .message = name + ": the slice of tensor-parallel rank " + std::to_string(t) + " is in no file",
                       .file = file},
                      name));
    }
    slices.push_back(at->second);
  }
  auto whole = mesh.rules.at(stage).assemble(name, slices);
  if (!whole) return fail(with_tensor(with_file(std::move(whole).error(), file), name));
  return whole;
}

bool same_source(const PartitionIndex::Source& a, const PartitionIndex::Source& b) {
  const auto* one = std::get_if<Locator>(&a);
  const auto* other = std::get_if<Locator>(&b);
  return one != nullptr && other != nullptr && one->file == other->file && one->offset == other->offset &&
         one->strides == other->strides;
}

bool same_slices(const StageSlices& a, const StageSlices& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& left, const auto& right) {
    return left.first == right.first && left.second.shape == right.second.shape &&
           same_source(left.second.copies.front(), right.second.copies.front());
  });
}

/// True if both have the same locations: two names of one tensor.
bool same_places(const SlicedTensors::Entry& a, const SlicedTensors::Entry& b) {
  return std::equal(a.slices.begin(), a.slices.end(), b.slices.begin(), b.slices.end(),
                    [](const auto& left, const auto& right) {
                      return left.first == right.first && same_slices(left.second, right.second);
                    });
}

/// A rank's slice as a tensor of its own.
Tensor ranked(Tensor tensor, const Shape& shape, std::uint64_t rank) {
  tensor.shape = shape;
  if (tensor.parameter.empty()) {
    tensor.name = ranked_name(tensor.name, rank);
  } else {
    tensor.parameter = ranked_name(tensor.parameter, rank);
    tensor.name = slot_tensor(tensor.parameter, tensor.slot, tensor.dtype, shape).name;
  }
  return tensor;
}

}  // namespace

Result<SliceMesh> read_mesh(const StateFile& file, const RunFacts& facts, std::uint64_t last,
                            const std::vector<LayerFile>& layers) {
  constexpr std::uint64_t kMaxModelRanks = 1u << 16;
  SliceMesh mesh{.model_ranks = facts.model_parallel.value_or(last + 1), .tensor_ranks = facts.tensor_parallel};
  if (mesh.model_ranks == 0 || mesh.model_ranks > kMaxModelRanks) {
    return fail(file.error(Errc::corrupt, "mp_world_size: " + std::to_string(mesh.model_ranks)));
  }
  if (file.find(file.root(), "checkpoint_parallel_dimensions") == pickle::kNone) {
    // Older files do not say it: a module belongs to no stage, layers name their tensor-parallel ranks.
    mesh.tensor_ranks = file.find(file.root(), "module") != pickle::kNone ? mesh.model_ranks : 1;
    for (const LayerFile& layer : layers) mesh.tensor_ranks = std::max(mesh.tensor_ranks, layer.tensor_rank + 1);
  }
  if (mesh.tensor_ranks == 0 || mesh.model_ranks % mesh.tensor_ranks != 0 ||
      (facts.pipeline_parallel > 1 && mesh.model_ranks / mesh.tensor_ranks != facts.pipeline_parallel)) {
    return fail(file.error(Errc::corrupt, std::to_string(mesh.model_ranks) + " model-parallel ranks are not " +
                                              std::to_string(facts.pipeline_parallel) + " stages of " +
                                              std::to_string(mesh.tensor_ranks) + " tensor-parallel ranks"));
  }
  return mesh;
}

Result<> SlicedTensors::add(const std::string& file, Tensor tensor, const ModelRank& rank, RankSlice slice) {
  const auto [at, added] = entry_at_.emplace(tensor.name, entries_.size());
  const std::string name = tensor.name;
  if (added) {
    entries_.push_back({std::move(tensor), {}});
  } else if (const Tensor& other = entries_[at->second].tensor;
             other.dtype != tensor.dtype || other.true_dtype != tensor.true_dtype) {
    return fail({.code = Errc::corrupt,
                 .message = file + ": " + name + ": another dtype than in the files of other ranks",
                 .file = file,
                 .tensor = name});
  }
  auto& ranks = entries_[at->second].slices[rank.stage];
  const auto held = ranks.find(rank.tensor_rank);
  if (held == ranks.end()) {
    ranks.emplace(rank.tensor_rank, std::move(slice));
    return {};
  }
  if (held->second.shape != slice.shape) {
    return fail({.code = Errc::corrupt,
                 .message = file + ": " + name + ": another shape than in another file of the same rank",
                 .file = file,
                 .tensor = name});
  }
  for (PartitionIndex::Source& copy : slice.copies) {
    if (!same_source(copy, held->second.copies.front())) held->second.copies.push_back(std::move(copy));
  }
  return {};
}

const SlicedTensors::Entry* SlicedTensors::find(const std::string& name) const {
  const auto at = entry_at_.find(name);
  return at == entry_at_.end() ? nullptr : &entries_[at->second];
}

Result<Assembled> SlicedTensors::assemble(const Entry& entry, const SliceMesh& mesh) {
  const std::string& name = ruled_name(entry.tensor);
  Assembled whole;
  bool first = true;
  for (const auto& [stage, ranks] : entry.slices) {
    CKPT_TRY(Assembled part, assemble_stage(name, stage, ranks, mesh));
    if (std::exchange(first, false)) {
      whole = std::move(part);
      continue;
    }
    if (!name.starts_with(kTiedModules) && mesh.tied.count(name) == 0) {
      return fail(with_hint(with_tensor({.code = Errc::unsupported,
                                         .message = name + ": is in several stages of the "
                                                           "pipeline, and is not tied: which one "
                                                           "counts is not known"},
                                        name),
                            kWhatIsRead));
    }
    bool same = part.shape == whole.shape && part.pieces.size() == whole.pieces.size();
    for (std::size_t i = 0; same && i < part.pieces.size(); ++i) {
      same = part.pieces[i].box == whole.pieces[i].box;
      if (same) std::ranges::move(part.pieces[i].copies, std::back_inserter(whole.pieces[i].copies));
    }
    if (!same) {
      return fail(with_tensor(
          {.code = Errc::corrupt, .message = name + ": tied, but cut differently in two stages of the pipeline"},
          name));
    }
  }
  return whole;
}

Result<> SlicedTensors::place(MapBuilder& builder, const Entry& entry, const SliceMesh& mesh) {
  CKPT_TRY(Assembled whole, assemble(entry, mesh));
  Tensor tensor = entry.tensor;
  tensor.shape = std::move(whole.shape);
  return builder.add_pieces(std::move(tensor), std::move(whole.pieces));
}

const SlicedTensors::Entry* SlicedTensors::tied_to(
    const Entry& entry, const std::vector<std::pair<std::string, std::string>>& shared) const {
  for (const auto& [alias, target] : shared) {
    const Entry* held = alias == entry.tensor.name ? find(target) : nullptr;
    if (held != nullptr && same_places(entry, *held)) return held;
  }
  return nullptr;
}

Result<> SlicedTensors::place_apart(MapBuilder& builder, const SliceMesh& mesh, const Ties& ties, RankLayout& out,
                                    const std::function<void(const Tensor&, std::uint64_t)>& placed) const {
  std::map<std::string, std::string> tied;
  for (const Alias& alias : ties.known) tied.emplace(alias.name, alias.target);
  for (const Entry& entry : entries_) {
    if (const Entry* held = tied_to(entry, ties.shared)) {
      tied.emplace(entry.tensor.name, held->tensor.name);
      continue;
    }
    for (const auto& [stage, ranks] : entry.slices) {
      for (const auto& [tensor_rank, slice] : ranks) {
        const std::uint64_t rank = stage * mesh.tensor_ranks + tensor_rank;
        out.ranks[rank].push_back({static_cast<std::uint32_t>(builder.tensor_count()), entry.tensor.name});
        CKPT_CHECK(
            builder.add_pieces(ranked(entry.tensor, slice.shape, rank), {{Box::whole(slice.shape), slice.copies}}));
        placed(entry.tensor, rank);
      }
    }
  }
  for (const auto& [name, target] : tied) {
    if (find(target) == nullptr) continue;
    for (std::uint64_t m = 0; m < mesh.model_ranks; ++m)
      builder.add_alias(ranked_name(name, m), ranked_name(target, m));
  }
  return {};
}

Result<> SlicedTensors::place_unruled(MapBuilder& builder, const Entry& entry, const SliceMesh& mesh,
                                      const std::vector<std::pair<std::string, std::string>>& shared,
                                      const std::function<bool(const std::string&)>& ruled) const {
  const std::string& name = entry.tensor.name;
  if (const Entry* held = tied_to(entry, shared); held != nullptr && ruled(held->tensor.name)) {
    builder.add_alias(name, held->tensor.name);
    return {};
  }
  for (const auto& [stage, ranks] : entry.slices) {
    for (const auto& [tensor_rank, slice] : ranks) {
      Tensor tensor = entry.tensor;
      tensor.name += "@" + std::to_string(stage * mesh.tensor_ranks + tensor_rank);
      tensor.shape = slice.shape;
      PartitionIndex::Piece piece{Box::whole(slice.shape), slice.copies};
      CKPT_CHECK(builder.add_pieces(std::move(tensor), {std::move(piece)}));
    }
  }
  builder.find(Severity::warning,
               name +
                   ": no rule of universal_checkpoint_info says how tensor-parallel ranks cut it: kept once a rank, "
                   "as " +
                   name + "@RANK",
               {}, name);
  return {};
}

}  // namespace ckpt::deepspeed
