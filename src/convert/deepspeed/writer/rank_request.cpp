#include "convert/deepspeed/writer/rank_request.hpp"

#include <string>
#include <unordered_map>
#include <vector>

namespace ckpt::deepspeed {
namespace {

std::string without_rank(std::string_view name, std::size_t ranks) {
  return std::string(split_ranked_name(name, ranks).name);
}

}  // namespace

RankRequests::RankRequests(const WriteRequest& whole) : whole_(whole), selected_(whole.ranks->ranks.size()) {
  const RankLayout& layout = *whole.ranks;
  const Map& source = *whole.source;
  std::unordered_map<std::uint32_t, std::vector<std::size_t>> holders;  // of a tensor; none: layer files have it
  for (std::size_t rank = 0; rank < layout.ranks.size(); ++rank) {
    for (const HeldTensor& held : layout.ranks[rank]) holders[held.tensor].push_back(rank);
  }
  for (const HeldLayer& layer : layout.layers) {
    for (const HeldTensor& held : layer.tensors) holders.try_emplace(held.tensor);
  }
  for (std::uint32_t i = 0; i < whole.tensors.size(); ++i) {
    const std::uint32_t tensor = whole.tensors[i].tensor;
    if (const auto found = holders.find(tensor); found != holders.end()) {
      for (const std::size_t rank : found->second) selected_[rank].push_back(i);
    } else {  // of an object: the first rank's have no suffix
      selected_[split_ranked_name(source.tensors[tensor].name, layout.ranks.size()).rank].push_back(i);
    }
  }
}

std::unique_ptr<RankRequest> RankRequests::of(std::uint64_t rank) const {
  const WriteRequest& whole = whole_;
  const Map& source = *whole.source;
  const RankLayout& layout = *whole.ranks;
  const std::size_t ranks = layout.ranks.size();
  std::unordered_map<std::uint32_t, const std::string*> names;  // the rank's, of tensors that it holds
  for (const HeldTensor& held : layout.ranks[rank]) names.emplace(held.tensor, &held.name);
  auto out = std::make_unique<RankRequest>();
  Map& map = out->map;
  map.format = source.format;
  map.files = source.files;
  map.meta = source.meta;
  map.module_order = source.module_order;
  map.parameter_order = source.parameter_order;
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
  for (const std::uint32_t i : selected_[rank]) {
    const Selected& selected = whole.tensors[i];
    const Tensor& tensor = source.tensors[selected.tensor];
    Tensor& mine = map.tensors[selected.tensor];
    mine = tensor;
    Selected& to = request.tensors.emplace_back(selected);
    const auto name = names.find(selected.tensor);
    if (name == names.end()) continue;
    mine.name = *name->second;
    mine.parameter = without_rank(tensor.parameter, ranks);
    to.name = layout.layers.empty() ? without_rank(selected.name, ranks) : mine.name;
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
