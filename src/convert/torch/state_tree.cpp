#include "convert/torch/state_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "format/torch/torch_object.hpp"

namespace ckpt::torch {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::kNone;
using pickle::NodeId;

constexpr std::size_t kMostSteps = std::size_t{2} << 20;
constexpr std::size_t kLongSequence = 16;  // items; longer ones of plain values stay together
constexpr std::size_t kDeepestPath = 1000;

struct Child {
  PathPart part;
  NodeId node = kNone;
  bool is_leaf = false;  // regardless of its contents
};
using Children = std::vector<Child>;

bool is_sequence(Kind kind) {
  return kind == Kind::list || kind == Kind::tuple;
}

bool is_plain(Kind kind) {
  return kind != Kind::list && kind != Kind::tuple && kind != Kind::set && kind != Kind::dict && kind != Kind::call &&
         kind != Kind::persistent;
}

bool is_dict(const Graph& graph, NodeId node) {
  if (graph.kind(node) == Kind::dict) return true;
  const std::string_view name = graph.callee_name(node);
  return name == "collections OrderedDict" || name == "collections defaultdict" || name == "collections Counter";
}

// Bytes as Python prints them.
std::string bytes_text(std::string_view bytes) {
  std::string out = "b'";
  for (const char c : bytes) {
    if (c >= ' ' && c <= '~' && c != '\'' && c != '\\')
      out += c;
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return out + "'";
}

// The remaining length for the text of a key: values shared in a pickle may be nested to any size.
struct Room {
  std::size_t values = 128;
  std::size_t bytes = 4096;  // of the texts inside it

  static bool take(std::size_t& left, std::size_t wanted) {
    const bool fits = wanted <= left;
    left -= fits ? wanted : 0;
    return fits;
  }
};

std::string key_text(const Graph& graph, NodeId key, Room& room);

std::string items_text(const Graph& graph, std::span<const NodeId> items, Room& room) {
  std::string out;
  for (const NodeId item : items) out += (out.empty() ? "" : ", ") + key_text(graph, item, room);
  return out;
}

// A key that is neither text nor integer, as Python prints it except for quotes.
std::string key_text(const Graph& graph, NodeId key, Room& room) {
  const auto fits = [&](std::size_t items) { return room.take(room.values, items + 1); };
  const std::string by_place = fmt::format("key@{}", graph.offset(key));
  switch (graph.kind(key)) {
    case Kind::text:
    case Kind::bytes:  // of Python 2: its text
    case Kind::big_integer:
    case Kind::global:
      if (!room.take(room.bytes, graph.text(key).size())) return by_place;
      return std::string(graph.text(key));
    case Kind::integer:
      return std::to_string(graph.integer(key));
    case Kind::none:
      return "None";
    case Kind::boolean:
      return graph.boolean(key) ? "True" : "False";
    case Kind::real:
      return fmt::format("{}", graph.real(key));
    case Kind::tuple:
      if (!fits(graph.items(key).size())) return by_place;
      return "(" + items_text(graph, graph.items(key), room) + ")";
    case Kind::set:
      if (!fits(graph.items(key).size())) return by_place;
      return "frozenset(" + items_text(graph, graph.items(key), room) + ")";
    case Kind::call:
      break;
    default:
      return by_place;
  }
  if (const auto bytes = as_bytes(graph, key))
    return room.take(room.bytes, bytes->size()) ? bytes_text(*bytes) : by_place;
  // An Enum, a complex number, a frozenset; of an object with more than arguments they are not all.
  const NodeId arguments = graph.arguments(key);
  const auto items = as_sequence(graph, key);
  const bool is_told = items || (graph.state(key) == kNone && graph.kind(arguments) == Kind::tuple);
  const std::span<const NodeId> parts = items ? std::span<const NodeId>(*items) : graph.items(arguments);
  std::string name(graph.callee_name(key));
  std::ranges::replace(name, ' ', '.');
  if (!is_told || name.empty() || !fits(parts.size()) || !room.take(room.bytes, name.size())) return by_place;
  return fmt::format("{}({})", name, items_text(graph, parts, room));
}

std::uint64_t text_bytes(const PathPart& part) {
  const auto* text = std::get_if<std::string>(&part);
  return text == nullptr ? 0 : text->size();
}

// Whether a path holds the key as it is. Python 2's text is bytes.
bool is_path_key(Kind key) {
  return key == Kind::text || key == Kind::integer || key == Kind::bytes;
}

// A dict's key as a part of a path.
PathPart part_of(const Graph& graph, NodeId key) {
  if (graph.kind(key) == Kind::integer) return graph.integer(key);
  if (graph.kind(key) == Kind::text) return std::string(graph.text(key));
  Room room;
  return key_text(graph, key, room);
}

// Which nodes have a tensor inside.
class Tensors {
 public:
  explicit Tensors(const Graph& graph) : graph_(graph), marks_(graph.node_count(), Mark::unseen) {}

  bool inside(NodeId node) {
    if (marks_[node] == Mark::unseen) visit(node);
    return marks_[node] == Mark::yes;
  }

 private:
  enum class Mark : std::uint8_t { unseen, on_path, no, yes };
  struct Frame {
    NodeId node;
    std::vector<NodeId> parts;
    std::size_t next = 0;
    bool found = false;
  };

  void visit(NodeId root) {
    std::vector<Frame> path;
    enter(root, path);
    while (!path.empty()) {
      Frame& top = path.back();
      if (top.next == top.parts.size() || top.found) {
        marks_[top.node] = top.found ? Mark::yes : Mark::no;
        const bool found = top.found;
        path.pop_back();
        if (found && !path.empty()) path.back().found = true;
        continue;
      }
      const NodeId part = top.parts[top.next++];
      if (part == kNone) continue;
      if (marks_[part] == Mark::unseen) {
        enter(part, path);
      } else if (marks_[part] == Mark::yes) {
        top.found = true;
      }
    }
  }

  void enter(NodeId node, std::vector<Frame>& path) {
    if (is_plain(graph_.kind(node))) {
      marks_[node] = Mark::no;
      return;
    }
    Frame frame{.node = node, .parts = {}, .found = is_tensor(graph_, node)};
    if (!frame.found) {
      const auto items = graph_.items(node);
      frame.parts.assign(items.begin(), items.end());
      frame.parts.push_back(graph_.arguments(node));
      frame.parts.push_back(graph_.state(node));
    }
    marks_[node] = Mark::on_path;
    path.push_back(std::move(frame));
  }

  const Graph& graph_;
  std::vector<Mark> marks_;
};

class Walk {
  static constexpr std::string_view kTooManyValues = "2 million values";

 public:
  explicit Walk(const Graph& graph) : graph_(graph), tensors_(graph) {}

  Result<StateTree> run() {
    out_.steps.push_back({});
    reach(graph_.root(), 0, false);
    while (!stack_.empty()) {
      Frame& top = stack_.back();
      if (!too_many_.empty()) return too_many(top.node);
      if (top.next == top.children.size()) {
        on_path_.erase(top.node);
        stack_.pop_back();
        continue;
      }
      Child& child = top.children[top.next++];
      --pending_;
      if (out_.steps.size() == kMostSteps) {
        too_many_ = kTooManyValues;
        return too_many(child.node);
      }
      out_.steps.push_back({top.step, std::move(child.part)});
      path_bytes_ = top.path_bytes + text_bytes(out_.steps.back().part);
      reach(child.node, static_cast<std::uint32_t>(out_.steps.size() - 1), child.is_leaf);
    }
    if (!too_many_.empty()) return too_many(graph_.root());
    return std::move(out_);
  }

 private:
  tl::unexpected<Error> too_many(NodeId node) const {
    return fail({.code = Errc::refused,
                 .message = fmt::format("state: it expands to more than {}", too_many_),
                 .offset = graph_.offset(node)});
  }
  // Every child becomes a step and may become a name, so too many are detected before memory is allocated for them.
  // key_bytes: of the children's keys, which the pickle may hold once
  bool has_room(std::size_t children, std::uint64_t key_bytes) {
    if (children > kMostSteps || out_.steps.size() + pending_ + children > kMostSteps) {
      too_many_ = kTooManyValues;
      return false;
    }
    name_bytes_ += key_bytes + children * path_bytes_;
    if (name_bytes_ > graph_.text_bytes() + Expansion::most_repeated_bytes) too_many_ = "256 MiB of repeated names";
    return too_many_.empty();
  }

  struct Frame {
    NodeId node;
    std::uint32_t step;
    std::uint64_t path_bytes;
    Children children;
    std::size_t next = 0;
  };

  // Adds a leaf, or opens the node.
  void reach(NodeId node, std::uint32_t step, bool is_leaf) {
    if (is_tensor(graph_, node)) {
      out_.leaves.push_back({Leaf::Kind::tensor, step, node});
      return;
    }
    Children children;
    if (!is_leaf && !on_path_.contains(node) && stack_.size() < kDeepestPath) children = children_of(node);
    if (children.empty()) {
      out_.leaves.push_back({Leaf::Kind::object, step, node});
      return;
    }
    note_optimizer(node, step);
    on_path_.insert(node);
    pending_ += children.size();
    stack_.push_back({node, step, path_bytes_, std::move(children)});
  }

  // The children of a node; nothing if it is kept as one value.
  Children children_of(NodeId node) {
    Children children;
    const Kind kind = graph_.kind(node);
    if (is_plain(kind)) return children;
    if (is_sequence(kind)) {
      if (kept_whole_.contains(node)) return children;
      const auto items = graph_.items(node);
      const bool all_plain =
          std::all_of(items.begin(), items.end(), [&](NodeId item) { return is_plain(graph_.kind(item)); });
      if (items.size() <= kLongSequence || !all_plain) {
        add_items(children, items);
      } else {
        kept_whole_.insert(node);
      }
    } else if (is_dict(graph_, node)) {
      const auto pairs = as_mapping(graph_, node);
      if (keeps_keys_whole(node, pairs)) return children;
      add_pairs(children, pairs);
      if (graph_.state(node) == kNone) return children;
      const auto [metadata, is_new] = metadata_of_.try_emplace(node, kNone);
      if (is_new) metadata->second = graph_.find(graph_.state(node), "_metadata");
      if (metadata->second != kNone) children.push_back({"_metadata", metadata->second, true});
    } else if (tensors_.inside(node)) {
      add_parts(children, node);
    }
    return children;
  }

  // Of a dict of plain values; the names of tensors need a path, whatever their keys.
  bool keeps_keys_whole(NodeId node, const std::optional<std::vector<std::pair<NodeId, NodeId>>>& pairs) {
    if (!pairs || stack_.empty()) return false;
    if (kept_whole_.contains(node)) return true;
    const bool all_fit =
        std::ranges::all_of(*pairs, [&](const auto& pair) { return is_path_key(graph_.kind(pair.first)); });
    if (all_fit || tensors_.inside(node)) return false;
    kept_whole_.insert(node);
    return true;
  }

  // An object, or a set, that has a tensor inside.
  void add_parts(Children& children, NodeId node) {
    if (const NodeId arguments = graph_.arguments(node); arguments != kNone && tensors_.inside(arguments)) {
      children.push_back({"args", arguments});
    }
    if (graph_.has_pairs(node)) {
      std::vector<std::pair<NodeId, NodeId>> pairs;
      const auto items = graph_.items(node);
      for (std::size_t i = 0; i + 1 < items.size(); i += 2) pairs.emplace_back(items[i], items[i + 1]);
      add_pairs(children, pairs);
    } else {
      add_items(children, graph_.items(node));
    }
    const NodeId state = graph_.state(node);
    if (state == kNone) return;
    if (graph_.has_pairs(node) || graph_.kind(state) != Kind::dict) {
      children.push_back({"state", state});
    } else {
      add_pairs(children, as_mapping(graph_, state));
    }
  }

  void add_items(Children& children, std::span<const NodeId> items) {
    if (!has_room(children.size() + items.size(), 0)) return;
    for (std::size_t i = 0; i < items.size(); ++i) children.push_back({static_cast<std::int64_t>(i), items[i]});
  }

  void add_pairs(Children& children, const std::optional<std::vector<std::pair<NodeId, NodeId>>>& pairs) {
    if (!pairs) return;
    std::uint64_t key_bytes = 0;
    for (const auto& pair : *pairs) key_bytes += graph_.text(pair.first).size();
    if (!has_room(children.size() + pairs->size(), key_bytes)) return;
    const std::size_t first = children.size();
    for (const auto& [key, value] : *pairs) children.push_back({part_of(graph_, key), value});
    name_apart(*pairs, std::span(children).subspan(first));
  }

  // Keys of several kinds may print the same, as True and "True": those that are not text get their position.
  void name_apart(const std::vector<std::pair<NodeId, NodeId>>& pairs, std::span<Child> children) const {
    const auto is_text = [&](std::size_t i) { return graph_.kind(pairs[i].first) == Kind::text; };
    std::size_t texts = 0;
    while (texts < pairs.size() && is_text(texts)) ++texts;
    if (texts == pairs.size()) return;
    std::set<PathPart> taken;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (is_text(i)) taken.insert(children[i].part);
    }
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (is_text(i) || taken.insert(children[i].part).second) continue;
      std::string text = dotted({children[i].part}) + fmt::format("@{}", graph_.offset(pairs[i].first));
      if (!taken.insert(text).second) {
        text += fmt::format("@{}", i);  // the same node again
        while (!taken.insert(text).second) text += "@";
      }
      children[i].part = std::move(text);
    }
  }

  // The state dict of a torch.optim optimizer, by what torch/optim/optimizer.py state_dict() returns.
  void note_optimizer(NodeId node, std::uint32_t step) {
    if (!is_dict(graph_, node)) return;
    const NodeId groups = graph_.find(node, "param_groups");
    if (groups == kNone || graph_.kind(groups) != Kind::list || graph_.find(node, "state") == kNone) return;
    OptimizerState optimizer{.path = out_.path(step)};
    for (const NodeId group : graph_.items(groups)) {
      const auto indices = graph_.items(find(group, "params"));
      const auto names = graph_.items(find(group, "param_names"));
      // Of a dict that is reached many times, they are kept each time.
      std::uint64_t bytes = names.size() * sizeof(std::string);
      for (const NodeId name : names) bytes += graph_.text(name).size();
      if (!has_room(0, bytes)) return;
      for (std::size_t i = 0; i < std::min(indices.size(), names.size()); ++i) {
        if (graph_.kind(indices[i]) != Kind::integer || graph_.kind(names[i]) != Kind::text) continue;
        optimizer.parameters.emplace(graph_.integer(indices[i]), graph_.text(names[i]));
      }
    }
    out_.optimizers.push_back(std::move(optimizer));
  }

  NodeId find(NodeId group, std::string_view key) const {
    const NodeId found = graph_.find(group, key);
    return found != kNone && is_sequence(graph_.kind(found)) ? found : kNone;
  }

  const Graph& graph_;
  Tensors tensors_;
  StateTree out_;
  std::vector<Frame> stack_;
  std::size_t pending_ = 0;  // children on the stack that are not steps yet
  // Of nodes that may be reached many times, what a look through all their items told.
  std::unordered_set<NodeId> kept_whole_{};
  std::unordered_map<NodeId, NodeId> metadata_of_{};
  std::uint64_t path_bytes_ = 0;  // of the names above the node that is being opened
  std::uint64_t name_bytes_ = 0;  // of all paths, repeated names each time
  std::string_view too_many_{};   // of what; empty: all within the limits
  std::unordered_set<NodeId> on_path_;
};

}  // namespace

Path StateTree::path(std::uint32_t step) const {
  Path path;
  for (; step != 0; step = steps[step].before) path.push_back(steps[step].part);
  std::reverse(path.begin(), path.end());
  return path;
}

bool is_tensor(const Graph& graph, NodeId node) {
  if (is_plain(graph.kind(node))) return false;
  if (!unsupported_kind(graph, node).empty()) return true;
  const auto view = as_tensor(graph, node);
  return !view || view->has_value();
}

Result<StateTree> read_tree(const Graph& graph) {
  return Walk(graph).run();
}

}  // namespace ckpt::torch
