#include "convert/deepspeed/writer/rank_request.hpp"

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace ckpt::deepspeed {
namespace {

std::string without_rank(std::string_view name, std::size_t ranks) {
  return std::string(split_ranked_name(name, ranks).name);
}

/// Which tensors are a rank's: those that it holds, and those of its objects.
class Ownership {
 public:
  Ownership(const RankLayout& layout, std::uint64_t rank) : layout_(layout), rank_(rank) {
    for (const auto& held : layout.ranks) {
      for (const HeldTensor& entry : held) placed_.insert(entry.tensor);
    }
    for (const HeldLayer& layer : layout.layers) {
      for (const HeldTensor& entry : layer.tensors) placed_.insert(entry.tensor);
    }
    for (const HeldTensor& entry : layout.ranks[rank]) mine_.emplace(entry.tensor, &entry.name);
  }

  /// The rank's name of a tensor of the model or its optimizer, or null.
  const std::string* name_of(std::uint32_t tensor) const {
    const auto found = mine_.find(tensor);
    return found == mine_.end() ? nullptr : found->second;
  }
  /// A tensor of an object: the first rank's have no suffix.
  bool is_of_object(std::uint32_t tensor, const std::string& name) const {
    return !placed_.contains(tensor) && split_ranked_name(name, layout_.ranks.size()).rank == rank_;
  }

 private:
  const RankLayout& layout_;
  const std::uint64_t rank_;
  std::unordered_set<std::uint32_t> placed_{};
  std::unordered_map<std::uint32_t, const std::string*> mine_{};
};

}  // namespace

std::unique_ptr<RankRequest> request_of_rank(const WriteRequest& whole, std::uint64_t rank) {
  const Map& source = *whole.source;
  const RankLayout& layout = *whole.ranks;
  const std::size_t ranks = layout.ranks.size();
  const Ownership ownership(layout, rank);
  auto out = std::make_unique<RankRequest>();
  Map& map = out->map;
  map.format = source.format;
  map.files = source.files;
  map.meta = source.meta;
  map.tensors.resize(source.tensors.size());
  WriteRequest& request = out->request;
  request.source = &map;
  request.ranks = whole.ranks;
  request.options = whole.options;
  request.target = whole.target;
  request.id = whole.id;
  request.source_format = whole.source_format;
  request.scalars = whole.scalars;
  request.stop = whole.stop;
  for (const Selected& selected : whole.tensors) {
    const std::string* name = ownership.name_of(selected.tensor);
    const Tensor& tensor = source.tensors[selected.tensor];
    if (name == nullptr && !ownership.is_of_object(selected.tensor, tensor.name)) continue;
    Tensor& mine = map.tensors[selected.tensor];
    mine = tensor;
    Selected& to = request.tensors.emplace_back(selected);
    if (name == nullptr) continue;
    mine.name = *name;
    mine.parameter = without_rank(tensor.parameter, ranks);
    to.name = layout.layers.empty() ? without_rank(selected.name, ranks) : *name;
  }
  for (const Alias& alias : whole.aliases) {
    if (split_ranked_name(alias.name, ranks).rank != rank) continue;
    request.aliases.push_back({without_rank(alias.name, ranks), without_rank(alias.target, ranks)});
  }
  for (const NamedObject& object : whole.objects) {
    const RankedName name = split_ranked_name(object.name, ranks);
    if (name.has_rank && name.rank != rank) continue;
    NamedObject& mine = request.objects.emplace_back(object);
    if (!name.has_rank) continue;
    mine.name = name.name;
    auto* last = mine.path.empty() ? nullptr : std::get_if<std::string>(&mine.path.back());
    if (last != nullptr) *last = without_rank(*last, ranks);
  }
  return out;
}

}  // namespace ckpt::deepspeed
