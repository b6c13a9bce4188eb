#include "convert/deepspeed/files/objects.hpp"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include "format/model/same_value.hpp"
#include "format/text/error_context.hpp"
#include "format/torch/torch_object.hpp"

namespace ckpt::deepspeed {

using pickle::Kind;
using pickle::kNone;
using pickle::NodeId;

namespace {

PathPart path_part(const pickle::Graph& graph, NodeId key, std::size_t position) {
  if (auto text = torch::as_text(graph, key)) return *std::move(text);
  if (const auto integer = torch::as_integer(graph, key)) return *integer;
  return static_cast<std::int64_t>(position);
}

std::uint64_t text_bytes(const Path& path) {
  std::uint64_t bytes = 0;
  for (const PathPart& part : path) bytes += part_text(part).size();
  return bytes;
}

bool may_hold_tensors(const pickle::Graph& graph, NodeId node) {
  switch (graph.kind(node)) {
    case Kind::list:
    case Kind::tuple:
    case Kind::set:
    case Kind::dict:
    case Kind::call:
      return true;
    default:
      return false;
  }
}

}  // namespace

namespace {

constexpr std::uint64_t kMostSharedBytes = 64 << 10;
constexpr std::size_t kMostSharedTensors = 4096;

/// Of a small dense tensor; empty for others.
std::vector<std::byte> small_content(const StateFile& file, const FileTensor& tensor) {
  const auto bytes = tensor_bytes(tensor.type.dtype, tensor.type.shape);
  if (!bytes || *bytes > kMostSharedBytes || !tensor.where.strides.empty()) return {};
  return file.bytes(tensor.where.offset, *bytes).value_or(std::vector<std::byte>());
}

}  // namespace

void FirstTensors::note(const StateFile& file, const std::vector<ObjectTensor>& tensors) {
  for (const ObjectTensor& each : tensors) {
    if (by_name_.size() >= kMostSharedTensors) return;
    auto bytes = small_content(file, each.tensor);
    if (!bytes.empty()) by_name_.emplace(each.name, Content{.type = each.tensor.type, .bytes = std::move(bytes)});
  }
}

bool FirstTensors::has(const StateFile& file, const std::string& name, const FileTensor& tensor) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return false;
  const auto& [type, bytes] = found->second;
  return type.dtype == tensor.type.dtype && type.shape == tensor.type.shape &&
         type.true_dtype == tensor.type.true_dtype && bytes == small_content(file, tensor);
}

Result<> ObjectReader::name_tensors(NodeId start, const Path& path) {
  const pickle::Graph& graph = file_.graph();
  std::vector<std::pair<NodeId, Path>> open{{start, path}};
  std::unordered_set<NodeId> seen;
  while (!open.empty()) {
    const NodeId node = open.back().first;
    Path here = std::move(open.back().second);
    open.pop_back();
    if (!seen.insert(node).second) continue;
    auto tensor = file_.tensor(node, dotted(here));
    if (!tensor) {
      if (tensor.error().code != Errc::unsupported) return fail(std::move(tensor).error());
      dropped_.push_back(dotted(here) + rank_suffix_);
      continue;
    }
    if (*tensor) {
      std::string name = dotted(here);
      if (first_ != nullptr && !rank_suffix_.empty() && first_->has(file_, name, **tensor)) {
        names_.emplace(node, std::move(name));
        continue;
      }
      name += rank_suffix_;
      names_.emplace(node, name);
      tensors_.push_back({std::move(name), std::move(here), **std::move(tensor)});
      continue;
    }
    // key: kNone for an item of a sequence
    const auto descend = [&](NodeId child, NodeId key, std::size_t position) -> Result<> {
      if (!may_hold_tensors(graph, child)) return {};  // a long list of numbers costs nothing
      Path below = here;
      below.push_back(path_part(graph, key, position));
      CKPT_CHECK(file_.count_names(text_bytes(below)));
      open.emplace_back(child, std::move(below));
      return {};
    };
    // Pushed last to first, so that they are taken in the file's order.
    if (const auto entries = torch::as_mapping(graph, node)) {
      for (std::size_t i = entries->size(); i-- > 0;) {
        CKPT_CHECK(descend((*entries)[i].second, (*entries)[i].first, i));
      }
    } else if (const auto items = torch::as_sequence(graph, node)) {
      for (std::size_t i = items->size(); i-- > 0;) CKPT_CHECK(descend((*items)[i], kNone, i));
    }
  }
  return {};
}

std::vector<std::string> foreign_classes(const StateFile& file) {
  // Classes that are read by their fields, or whose fields say all there is to say.
  constexpr std::array kOwn{std::string_view("deepspeed.runtime.fp16.loss_scaler."),
                            std::string_view("deepspeed.runtime.zero.config.ZeroStageEnum"),
                            std::string_view("deepspeed.utils.tensor_fragment.fragment_address"),
                            std::string_view("deepspeed.runtime.bf16_optimizer.fragment_address")};
  std::vector<std::string> names = torch::unknown_classes(file.graph());
  std::erase_if(names, [&](const std::string& name) {
    return std::any_of(kOwn.begin(), kOwn.end(), [&](std::string_view own) { return name.starts_with(own); });
  });
  return names;
}

Result<Value> ObjectReader::read(NodeId node, const Path& path) {
  names_.clear();
  CKPT_CHECK(name_tensors(node, path));
  return value(node, dotted(path));
}

Result<Value> ObjectReader::read_plain(NodeId node, const std::string& where) {
  names_.clear();
  return value(node, where);
}

Result<Value> ObjectReader::value(NodeId node, const std::string& where) {
  const auto name_of = [&](NodeId tensor) -> std::optional<std::string> {
    const auto found = names_.find(tensor);
    if (found == names_.end()) return std::nullopt;
    return found->second;
  };
  auto value = torch::to_value(file_.graph(), node, name_of, &expansion_);
  if (!value) {
    return fail(with_file(with_context(std::move(value).error(), file_.path() + ": " + where), file_.path()));
  }
  return **value;
}

bool RankObjects::add(std::uint64_t rank, std::vector<NamedObject> objects) {
  const bool first_rank = rank_count_++ == 0;
  bool same = true;
  for (NamedObject& object : objects) {
    const auto [at, added] = by_name_.emplace(object.name, items_.size());
    if (added) {
      items_.push_back({.first = std::move(object)});
      // A later rank alone has it: it belongs to that rank.
      if (first_rank) {
        items_.back().equal.push_back(rank);
      } else {
        items_.back().different.emplace_back(rank, items_.back().first.value);
        same = false;
      }
      continue;
    }
    Item& item = items_[at->second];
    if (!item.equal.empty() && same_value(item.first.value, object.value)) {
      item.equal.push_back(rank);
    } else {
      item.different.emplace_back(rank, std::move(object.value));
      same = false;
    }
  }
  return same;
}

std::vector<NamedObject> RankObjects::take() {
  std::vector<NamedObject> out;
  for (Item& item : items_) {
    if (item.equal.size() == rank_count_) {
      out.push_back(std::move(item.first));
      continue;
    }
    std::vector<std::pair<std::uint64_t, Value>> ranks = std::move(item.different);
    for (const std::uint64_t rank : item.equal) ranks.emplace_back(rank, item.first.value);
    std::sort(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [rank, value] : ranks) {
      NamedObject object{item.first.name + "@" + std::to_string(rank), item.first.path, std::move(value)};
      if (!object.path.empty() && std::holds_alternative<std::string>(object.path.back())) {
        std::get<std::string>(object.path.back()) += "@" + std::to_string(rank);
      }
      out.push_back(std::move(object));
    }
  }
  items_.clear();
  by_name_.clear();
  rank_count_ = 0;
  return out;
}

}  // namespace ckpt::deepspeed
