#include "convert/megatron/buckets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "convert/megatron/buffer_layout.hpp"
#include "convert/megatron/common_state.hpp"
#include "convert/megatron/flat_index.hpp"
#include "convert/megatron/model_division.hpp"
#include "convert/megatron/rank_grid.hpp"
#include "convert/megatron/run_arguments.hpp"
#include "convert/model_arguments.hpp"
#include "format/model/slot_name.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::string_view kChain = "chained_";
constexpr std::string_view kBuckets = "optimizer.distributed.dp_group_idx_";
constexpr std::string_view kFirstRank = "optimizer.distributed.dp_group_idx_0.";

/// optimizer.distributed.dp_group_idx_1.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0.exp_avg, with
/// "chained_1." before it where the rank has several optimizers
struct BucketName {
  std::uint64_t optimizer = 0;
  std::uint64_t rank = 0;
  std::uint64_t buffer = 0;
  std::uint64_t bucket = 0;
  std::string slot{};
};

/// Takes "WORDnumber" and what ends it.
std::optional<std::uint64_t> take(std::string_view& text, std::string_view word, char end) {
  if (!text.starts_with(word)) return std::nullopt;
  text.remove_prefix(word.size());
  const auto number = take_number<std::uint64_t>(text);
  if (!number || !text.starts_with(end)) return std::nullopt;
  text.remove_prefix(1);
  return number;
}

/// Takes "chained_1.", if it is there.
std::uint64_t take_optimizer(std::string_view& name) {
  std::string_view rest = name;
  const auto number = take(rest, kChain, '.');
  if (number) name = rest;
  return number.value_or(0);
}

/// Of buckets, or of an item that describes them.
bool is_of_buckets(std::string_view name) {
  take_optimizer(name);
  return name.starts_with(kBuckets);
}

std::optional<BucketName> bucket_name(std::string_view name) {
  const std::uint64_t optimizer = take_optimizer(name);
  const auto rank = take(name, kBuckets, '.');
  const auto buffer = rank ? take(name, "gbuf_idx_", '.') : std::nullopt;
  const std::size_t at = name.find(").bucket_idx_");
  if (!buffer || at == std::string_view::npos) return std::nullopt;
  name.remove_prefix(at + 2);
  const auto bucket = take(name, "bucket_idx_", '.');
  if (!bucket || name.empty()) return std::nullopt;
  return BucketName{
      .optimizer = optimizer, .rank = *rank, .buffer = *buffer, .bucket = *bucket, .slot = std::string(name)};
}

using BucketKey = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;  // as in its name

/// One of the optimizers of the ranks: above one expert-parallel rank the experts have their own.
struct BucketOptimizer {
  std::uint64_t number = 0;  ///< in the names
  bool is_of_experts = false;
  std::uint64_t ranks = 0;  ///< that hold different parts
};

class BucketState {
 public:
  explicit BucketState(Map& map) : map_(map) {}

  Result<bool> run() {
    if (!find_buckets()) return false;
    const auto args = std::ranges::find(map_.objects, kArguments, &NamedObject::name);
    if (args == map_.objects.end()) return false;
    const Value arguments = args->value;
    for (std::uint32_t t = 0; t < map_.tensors.size(); ++t) {
      const Tensor& tensor = map_.tensors[t];
      if (tensor.role != Role::param && tensor.role != Role::buffer) continue;
      weights_.push_back({.name = tensor.name, .shape = tensor.shape, .is_trained = tensor.role == Role::param});
      numbers_.push_back(t);
    }
    ModelForm form = model_form(arguments);
    form.vocabulary.reset();  // it is padded as it is
    auto grid = rank_grid(&arguments, {}, count_layers(weights_), "");
    if (!grid) return false;
    const std::vector<BucketOptimizer> optimizers = optimizers_of(*grid);
    if (optimizers.empty()) return false;
    auto division = ModelDivision::make(weights_, form, *grid, "");
    if (!division || !division->unordered().empty()) return false;
    pieces_.resize(slots_.size(), std::vector<std::vector<FlatPiece>>(weights_.size()));
    for (const BucketOptimizer& optimizer : optimizers)
      for (std::uint64_t rank = 0; rank < optimizer.ranks; ++rank) {
        CKPT_TRY(const bool fits, add_rank(optimizer, rank, *grid, *division, arguments));
        if (!fits) return false;
      }
    if (used_ != buckets_.size()) return false;
    rewrite();
    return true;
  }

 private:
  /// Tensors by rank, buffer, bucket, and slot.
  bool find_buckets() {
    std::set<std::string> slots;
    for (std::uint32_t t = 0; t < map_.tensors.size(); ++t) {
      const Tensor& tensor = map_.tensors[t];
      auto name = tensor.role == Role::blob ? std::nullopt : bucket_name(tensor.name);
      if (!name) continue;
      if (tensor.shape.size() != 1) return false;
      slots.insert(name->slot);
      buckets_[{name->optimizer, name->rank, name->buffer, name->bucket}].emplace(std::move(name->slot), t);
    }
    slots_.assign(slots.begin(), slots.end());
    return !buckets_.empty() &&
           std::ranges::all_of(buckets_, [&](const auto& bucket) { return bucket.second.size() == slots_.size(); });
  }

  /// None where the buckets are of other ranks than the grid's. Asked before the layout of every rank that the arguments
  /// claim: each has buckets.
  std::vector<BucketOptimizer> optimizers_of(const RankGrid& grid) const {
    std::map<std::uint64_t, std::set<std::uint64_t>> ranks;
    for (const auto& [key, tensors] : buckets_) ranks[std::get<0>(key)].insert(std::get<1>(key));
    std::vector<BucketOptimizer> out;
    for (const auto& [number, found] : ranks) {
      const bool of_experts = !out.empty();
      const std::uint64_t wanted = grid.pipeline * (of_experts ? grid.expert_tensor * grid.expert : grid.tensor);
      if (found.size() != wanted) return {};
      out.push_back({.number = number, .is_of_experts = of_experts, .ranks = wanted});
    }
    return out.size() == (grid.expert > 1 ? 2U : 1U) ? out : std::vector<BucketOptimizer>{};
  }

  /// source  megatron/core/parallel_state.py: the order of ranks is tp-ep-pp
  static RankPlace place_of(const BucketOptimizer& optimizer, std::uint64_t rank, const RankGrid& grid) {
    const std::uint64_t tensor = optimizer.is_of_experts ? grid.expert_tensor : grid.tensor;
    const std::uint64_t expert = optimizer.is_of_experts ? grid.expert : 1;
    return {.tensor = rank % tensor, .pipeline = rank / tensor / expert, .expert = rank / tensor % expert};
  }

  Result<bool> add_rank(const BucketOptimizer& optimizer, std::uint64_t rank, const RankGrid& grid,
                        const ModelDivision& division, const Value& arguments) {
    const RankPlace place = place_of(optimizer, rank, grid);
    std::uint64_t buffers = 0;
    for (std::uint64_t c = 0; c < grid.chunks; ++c) {
      const std::vector<RankWeight> weights = division.chunk(place, c);
      const auto dtype_of = [&](const RankWeight& weight) {
        const bool is_held = (weight.is_expert && grid.expert > 1) == optimizer.is_of_experts;
        return is_held && weights_[weight.whole].is_trained ? std::optional(map_.tensors[numbers_[weight.whole]].dtype)
                                                            : std::nullopt;
      };
      const bool has_buckets = place.pipeline == 0 && c == 0;
      for (const RankBuffer& buffer :
           rank_buffers(weights, dtype_of, has_buckets ? bucket_elements(arguments, grid.data) : std::nullopt)) {
        CKPT_TRY(const bool fits, add_buffer(optimizer.number, rank, buffers++, weights, buffer));
        if (!fits) return false;
      }
    }
    return true;
  }

  Result<bool> add_buffer(std::uint64_t optimizer, std::uint64_t rank, std::uint64_t number,
                          const std::vector<RankWeight>& weights, const RankBuffer& buffer) {
    std::vector<const std::map<std::string, std::uint32_t>*> tensors;
    std::vector<std::unordered_set<std::uint64_t>> begins;
    for (std::uint64_t b = 0; b < buffer.layout.buckets.size(); ++b) {
      const auto found = buckets_.find({optimizer, rank, number, b});
      if (found == buckets_.end()) return false;
      ++used_;
      for (const auto& [slot, tensor] : found->second)
        if (map_.tensors[tensor].shape.front() != buffer.layout.buckets[b]) return false;
      tensors.push_back(&found->second);
      begins.emplace_back();
      const std::uint32_t first = found->second.begin()->second;
      CKPT_CHECK(map_.index->regions(first, {0, buffer.layout.buckets[b]}, [&](const Chunk& chunk) -> Result<> {
        begins.back().insert(chunk.box.offset.front() + (chunk.flat ? chunk.flat->begin : 0));
        return {};
      }));
    }
    for (std::size_t i = 0; i < buffer.weights.size(); ++i) {
      const RankWeight& weight = weights[buffer.weights[i]];
      const BufferLayout::Place& at = buffer.layout.places[i];
      if (!begins[at.bucket].contains(at.offset)) return false;
      if (!is_main_copy(weight, rank)) continue;
      for (std::size_t s = 0; s < slots_.size(); ++s) {
        std::uint64_t begin = at.offset;
        for (const Box& box : weight.boxes) {
          if (volume(box.size) == 0) continue;
          pieces_[s][weight.whole].push_back({.source = tensors[at.bucket]->at(slots_[s]), .begin = begin, .to = box});
          begin += volume(box.size);
        }
      }
    }
    return true;
  }

  /// Of weights that several ranks have the state is the first one's, as in torch_dist.
  bool is_main_copy(const RankWeight& weight, std::uint64_t rank) {
    if (weight.boxes.empty() || (weight.is_shared && weight.name == kOutput)) return false;
    const Box& box = weight.boxes.front();
    const auto [known, is_new] = owners_.emplace(std::pair(weight.whole, box.offset), rank);
    return is_new || known->second == rank;
  }

  void rewrite() {
    auto index = std::make_shared<FlatIndex>(map_.index);
    std::vector<Tensor> tensors;
    std::vector<Dtype> dtypes;
    for (const std::string& slot : slots_) dtypes.push_back(map_.tensors[buckets_.begin()->second.at(slot)].dtype);
    for (std::uint32_t t = 0; t < map_.tensors.size(); ++t) {
      // Flat tensors, and the items that describe them.
      if (is_of_buckets(map_.tensors[t].name)) continue;
      index->add(t);
      tensors.push_back(std::move(map_.tensors[t]));
    }
    std::erase_if(map_.objects, [](const NamedObject& object) { return is_of_buckets(object.name); });
    for (std::size_t s = 0; s < slots_.size(); ++s)
      for (std::size_t w = 0; w < weights_.size(); ++w) {
        if (!weights_[w].is_trained) continue;
        const std::string slot = slots_[s] == "param" ? "master" : slots_[s];
        tensors.push_back({.name = slot_name(weights_[w].name, slot),
                           .dtype = dtypes[s],
                           .shape = weights_[w].shape,
                           .role = Role::slot,
                           .parameter = weights_[w].name,
                           .slot = slot});
        index->add(weights_[w].shape, std::move(pieces_[s][w]));
      }
    map_.tensors = std::move(tensors);
    map_.index = std::move(index);
  }

  Map& map_;
  std::map<BucketKey, std::map<std::string, std::uint32_t>> buckets_{};
  std::vector<std::string> slots_{};
  std::vector<WholeWeight> weights_{};
  std::vector<std::uint32_t> numbers_{};                       // of weights, in the map
  std::vector<std::vector<std::vector<FlatPiece>>> pieces_{};  // by slot and weight
  std::map<std::pair<std::size_t, Shape>, std::uint64_t> owners_{};
  std::size_t used_ = 0;
};

}  // namespace

Result<bool> assign_buckets(Map& map) {
  return BucketState(map).run();
}

std::optional<Path> bucket_object_path(std::string_view key) {
  const bool is_chained = key.starts_with(kChain);
  const std::uint64_t optimizer = take_optimizer(key);
  if (!key.starts_with(kFirstRank)) return std::nullopt;
  key.remove_prefix(kFirstRank.size());
  if (key != "optimizer" && key != "grad_scaler") return std::nullopt;
  Path out{"optimizer"};
  if (is_chained) out.emplace_back(static_cast<std::int64_t>(optimizer));
  out.emplace_back(std::string(key));
  return out;
}

std::vector<BucketItem> bucket_items(const Map& map) {
  std::vector<BucketItem> out;
  for (std::uint32_t t = 0; t < map.tensors.size(); ++t) {
    const Tensor& tensor = map.tensors[t];
    const std::size_t end = tensor.role == Role::blob ? tensor.name.find(kItem) : std::string::npos;
    if (end == std::string::npos) continue;
    if (auto path = bucket_object_path(std::string_view(tensor.name).substr(0, end)))
      out.push_back({.path = *std::move(path), .tensor = t});
  }
  return out;
}

}  // namespace ckpt::megatron
