#include "convert/torch/map_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "convert/several_checkpoints.hpp"
#include "convert/unique_names.hpp"
#include "format/text/error_context.hpp"
#include "format/text/name_list.hpp"
#include "format/text/utf8.hpp"
#include "format/universal/objects.hpp"

namespace ckpt::torch {
namespace {

using pickle::kNone;
using pickle::NodeId;

constexpr std::uint64_t kMostValues = std::uint64_t{4} << 20;
constexpr std::array<std::string_view, 4> kStepKeys{"global_step", "step", "global_steps", "iteration"};

// Names of random number generator states of the Hugging Face Trainer and Accelerate: bytes, not weights.
bool holds_random_state(std::string_view path) {
  const std::string name = base_name(path);
  return name.starts_with("rng_state") || name.starts_with("random_states");
}

// Names for leaves without one: a made-up name takes no other's.
class NamesOfNameless {
 public:
  explicit NamesOfNameless(const StateTree& tree) : tree_(tree) {}

  const std::string& of(Leaf::Kind kind) {
    std::string& name = kind == Leaf::Kind::tensor ? tensor_ : object_;
    if (!name.empty()) return name;
    if (taken_.empty()) {
      for (const Leaf& leaf : tree_.leaves) {
        const StateTree::Step& step = tree_.steps[leaf.step];
        const auto* text = std::get_if<std::string>(&step.part);
        if (leaf.step != 0 && step.before == 0 && text != nullptr) taken_.insert(*text);
      }
    }
    name = kind == Leaf::Kind::tensor ? "tensor" : "object";
    while (taken_.contains(name)) name += "_";
    return name;
  }

 private:
  const StateTree& tree_;
  std::unordered_set<std::string_view> taken_{};
  std::string tensor_{};
  std::string object_{};
};

// Offsets in the pickle become offsets in the file.
Error in_file(Error error, const TorchArchive& archive) {
  if (error.offset) *error.offset += archive.pickle_bytes.begin;
  return error;
}

}  // namespace

Error MapBuilder::at(Error error, const Part& part, const Path& path) const {
  const std::string name = part.file.prefix + dotted(path);
  error = with_context(std::move(error), part.path + ": " + name);
  error.file = part.path;
  return with_tensor(std::move(error), name);
}

Result<> MapBuilder::add(const StateFile& file, MapFile map_file, const std::string& path, TorchArchive archive) {
  auto tree = read_tree(archive.graph);
  if (!tree) return fail(with_file(with_context(in_file(std::move(tree).error(), archive), path), path));
  const auto part_index = static_cast<std::uint32_t>(parts_.size());
  const auto first_tensor = static_cast<std::uint32_t>(tensors_.size());
  parts_.push_back({.file = file, .path = path, .archive = std::move(archive)});
  map_.files.push_back(std::move(map_file));
  NamesOfNameless nameless(*tree);
  const auto place_of = [&](const Leaf& leaf, Path inside) {
    if (dotted(inside).empty()) inside = {nameless.of(leaf.kind)};
    if (!file.key.empty()) inside.insert(inside.begin(), file.key);
    return inside;
  };
  std::vector<const Leaf*> states;
  for (const Leaf& leaf : tree->leaves) {
    Path inside = tree->path(leaf.step);
    if (leaf.kind != Leaf::Kind::tensor) {
      objects_.push_back({.part = part_index, .path = place_of(leaf, std::move(inside)), .node = leaf.node});
    } else if (is_state_of(inside, tree->optimizers)) {
      states.push_back(&leaf);
    } else {
      CKPT_CHECK(add_tensor(part_index, place_of(leaf, std::move(inside)), leaf.node));
    }
  }
  for (const Leaf* leaf : states)
    CKPT_CHECK(add_tensor(part_index, place_of(*leaf, tree->path(leaf->step)), leaf->node));
  for (OptimizerState& optimizer : tree->optimizers) {
    if (!file.key.empty()) optimizer.path.insert(optimizer.path.begin(), file.key);
  }
  assign_part_roles(tree->optimizers, first_tensor);
  parts_.back().optimizers = std::move(tree->optimizers);
  if (holds_random_state(file.path)) {
    for (std::size_t i = first_tensor; i < map_.tensors.size(); ++i) {
      Tensor& tensor = map_.tensors[i];
      if (tensor.dtype == Dtype::u8 && tensor.shape.size() == 1) tensor.role = Role::blob;
    }
  }
  if (!file.key.empty()) {
    // Not weights, whatever they are in the trainer's own objects.
    for (std::size_t i = first_tensor; i < map_.tensors.size(); ++i) {
      Tensor& tensor = map_.tensors[i];
      if (tensor.role == Role::param) tensor.role = Role::slot;
    }
    return {};
  }
  demote_lightnings(first_tensor);
  find_step(parts_.back());
  return {};
}

/// Lightning keeps the tensors of the module under "state_dict"; all others belong to callbacks and hooks.
/// source  lightning/pytorch/trainer/connectors/checkpoint_connector.py: dump_checkpoint
void MapBuilder::demote_lightnings(std::size_t first_tensor) {
  const pickle::Graph& graph = parts_.back().archive.graph;
  if (graph.find(graph.root(), "pytorch-lightning_version") == kNone) return;
  for (std::size_t i = first_tensor; i < map_.tensors.size(); ++i) {
    const Path& path = tensors_[i].path;
    if (map_.tensors[i].role == Role::param && !path.empty() && path.front() != PathPart("state_dict"))
      map_.tensors[i].role = Role::slot;
  }
}

Result<> MapBuilder::add_tensor(std::uint32_t part_index, Path path, NodeId node) {
  Part& part = parts_[part_index];
  const pickle::Graph& graph = part.archive.graph;
  if (!is_listed(part, path)) {
    const std::string name = dotted(path);
    unlisted_.add(name, listed_.contains(name));
    return {};
  }
  auto view = as_tensor(graph, node);
  if (!view) return fail(at(in_file(std::move(view).error(), part.archive), part, path));
  if (!*view) {
    part.not_plain.push_back(fmt::format("{} ({})", dotted(path), unsupported_kind(graph, node)));
    return {};
  }
  auto where = part.archive.locate(**view, part_index);
  auto type = model_type(**view);
  if (where && type) {
    if (auto bytes = tensor_bytes(type->dtype, type->shape); !bytes) where = fail(std::move(bytes).error());
  }
  if (!where && where.error().code != Errc::unsupported) return fail(at(std::move(where).error(), part, path));
  if (!where || !type) {
    part.not_plain.push_back(fmt::format("{} ({})", dotted(path), (**view).dtype_name));
    return {};
  }
  if ((**view).has_attributes) part.attributed.push_back(dotted(path));
  if ((**view).untyped && (**view).element_bytes > 1 && part.archive.big_endian) part.untyped.push_back(dotted(path));
  part.used_storages.insert((**view).storage_key);
  const auto index = static_cast<std::uint32_t>(tensors_.size());
  if (volume(type->shape) != 0) {
    const TensorView& seen = **view;
    const auto [same, is_new] = part.views.emplace(ViewKey{seen.storage_key, seen.dtype_name, seen.storage_offset,
                                                           seen.shape, seen.strides, graph.callee_name(node)},
                                                   index);
    part.tensor_of.emplace(node, same->second);
    if (!is_new) {
      tied_.push_back({.part = part_index, .path = std::move(path), .tensor = same->second, .node = node});
      return {};
    }
  } else {
    part.tensor_of.emplace(node, index);
  }
  map_.tensors.push_back({.name = dotted(path),
                          .dtype = type->dtype,
                          .shape = std::move(type->shape),
                          .true_dtype = std::move(type->true_dtype)});
  where_.push_back(*std::move(where));
  const auto storage = part.archive.storages.find((**view).storage_key);
  const StoragePlace place = storage == part.archive.storages.end() ? StoragePlace{} : storage->second;
  storages_.push_back({place.offset, place.offset + place.bytes});
  tensors_.push_back({.part = part_index, .path = std::move(path), .tensor = index, .node = node});
  return {};
}

// By the names inside the file; so before the names of the map are given.
void MapBuilder::assign_part_roles(std::vector<OptimizerState>& optimizers, std::uint32_t first_tensor) {
  const auto begin = map_.tensors.begin() + first_tensor;
  std::vector<Tensor> own(std::make_move_iterator(begin), std::make_move_iterator(map_.tensors.end()));
  std::vector<Path> paths;
  for (std::size_t i = first_tensor; i < tensors_.size(); ++i) paths.push_back(tensors_[i].path);
  assign_roles(own, paths, optimizers);
  std::move(own.begin(), own.end(), begin);
}

bool MapBuilder::is_listed(const Part& part, const Path& path) {
  if (!part.file.listed) return true;
  const auto entry = listed_.find(dotted(path));
  if (entry == listed_.end() || entry->second != part.file.path) return false;
  found_.insert(entry->first);
  return true;
}

Result<> MapBuilder::check_listed() {
  std::vector<std::string> absent;
  for (const auto& [name, file] : listed_) {
    if (!found_.contains(name)) absent.push_back(name);
  }
  if (!absent.empty()) {
    std::sort(absent.begin(), absent.end());
    const std::string path = join_path(root_, listed_.at(absent.front()));
    return fail({.code = Errc::incomplete,
                 .message = fmt::format("{}: the index lists {}, which {} not in the file", path, name_list(absent),
                                        absent.size() == 1 ? "is" : "are"),
                 .file = path,
                 .tensor = absent.front(),
                 .hint = "copy or download the checkpoint again; ckpt does not convert incomplete checkpoints"});
  }
  unlisted_.report(map_.findings);
  return {};
}

void MapBuilder::find_step(Part& part) {
  const pickle::Graph& graph = part.archive.graph;
  for (const std::string_view key : kStepKeys) {
    const NodeId node = graph.find(graph.root(), key);
    if (part.step || graph.kind(node) != pickle::Kind::integer || graph.integer(node) < 0) continue;
    part.step = static_cast<std::uint64_t>(graph.integer(node));
  }
  if (!map_.meta.step) map_.meta.step = part.step;
  constexpr std::string_view kLightning = "pytorch-lightning_version";
  if (const auto version = as_text(graph, graph.find(graph.root(), kLightning)); version && is_utf8(*version)) {
    map_.meta.user.emplace_back(kLightning, *version);
  }
}

// torch.load swaps the bytes of typed storages only.
void MapBuilder::report_untyped(const Part& part) {
  if (part.untyped.empty()) return;
  map_.findings.push_back({.severity = Severity::warning,
                           .text = fmt::format("big-endian file: torch.load on a little-endian machine reads different "
                                               "values of {} (it does not swap their bytes; ckpt does)",
                                               name_list(part.untyped)),
                           .file = part.path});
}

// Pickles with content that the map cannot express are kept, with every storage that no tensor of the map uses.
void MapBuilder::keep_pickles() {
  for (std::uint32_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const std::vector<std::string> classes = unknown_classes(part.archive.graph);
    report_untyped(part);
    if (part.not_plain.empty() && part.attributed.empty() && part.deep.empty() && classes.empty()) continue;
    add_blob(i, "data.pkl", part.archive.pickle_bytes, std::nullopt);
    std::vector<std::pair<std::string, StoragePlace>> unused;
    for (const auto& [key, place] : part.archive.storages) {
      if (place.bytes != 0 && !part.used_storages.contains(key)) unused.emplace_back(key, place);
    }
    std::sort(unused.begin(), unused.end(),
              [](const auto& a, const auto& b) { return a.second.offset < b.second.offset; });
    for (const auto& [key, place] : unused) {
      const Extent bytes{place.offset, place.offset + place.bytes};
      add_blob(i, "data/" + key, bytes,
               part.archive.has_crc ? std::optional(Crc{bytes.begin, bytes.end, place.crc}) : std::nullopt);
    }
    if (!part.not_plain.empty()) {
      map_.findings.push_back({.severity = Severity::warning,
                               .text = fmt::format("{} of an unsupported kind, kept as blobs (data.pkl and "
                                                   "{} storages): {}",
                                                   part.not_plain.size() == 1 ? "a tensor is" : "tensors are",
                                                   unused.size(), name_list(part.not_plain)),
                               .file = part.path,
                               .skipped = Skipped::unless_blobs});
    }
    if (!part.attributed.empty()) {
      map_.findings.push_back(
          {.severity = Severity::warning,
           .text = fmt::format("Python attributes, or the custom class, of {} are kept only in the blob data.pkl: {}",
                               part.attributed.size() == 1 ? "a tensor" : "tensors", name_list(part.attributed)),
           .file = part.path,
           .skipped = Skipped::unless_blobs});
    }
    if (!part.deep.empty()) {
      map_.findings.push_back({.severity = Severity::warning,
                               .text = fmt::format("values nested more than {} levels deep are kept only in the blob "
                                                   "data.pkl: {}",
                                                   universal::kMaxObjectDepth, name_list(part.deep)),
                               .file = part.path});
    }
    if (!classes.empty()) {
      map_.findings.push_back(
          {.text = fmt::format("objects of unknown classes are kept as data, with the original pickle: {}",
                               name_list(classes)),
           .file = part.path});
    }
  }
}

void MapBuilder::add_blob(std::uint32_t part_index, const std::string& entry, Extent bytes, std::optional<Crc> crc) {
  const auto index = static_cast<std::uint32_t>(tensors_.size());
  Path path{entry};
  if (const std::string& key = parts_[part_index].file.key; !key.empty()) path.insert(path.begin(), key);
  tensors_.push_back({.part = part_index, .path = std::move(path), .tensor = index});
  map_.tensors.push_back({.name = entry, .dtype = Dtype::u8, .shape = {bytes.size()}, .role = Role::blob});
  where_.push_back({.file = part_index, .offset = bytes.begin, .dtype = Dtype::u8, .crc = crc});
  storages_.push_back({});
}

// Gives every item its name in the map.
Result<> MapBuilder::name_all() {
  std::vector<Nameless> nameless;
  for (const auto* items : {&tensors_, &tied_, &objects_}) {
    for (const Item& item : *items) nameless.push_back({parts_[item.part].file.prefix, item.path});
  }
  auto names = unique_names(nameless);
  if (!names) return fail(with_file(std::move(names).error(), root_));
  std::vector<std::string> escaped;
  std::size_t at = 0;
  for (auto* items : {&tensors_, &tied_, &objects_}) {
    for (Item& item : *items) {
      item.name = std::move((*names)[at]);
      if (item.name != nameless[at].prefix + dotted(item.path)) escaped.push_back(item.name);
      ++at;
    }
  }
  if (!escaped.empty()) {
    map_.findings.push_back(
        {.text = "names that collide or are not UTF-8 are written with %XX: " + name_list(escaped)});
  }
  return {};
}

// From names inside the files to names of the map. Where optimizer and weights are in different files, a parameter is
// looked for in all.
void MapBuilder::name_parameters() {
  std::unordered_map<std::string, const Item*> anywhere;
  std::vector<std::unordered_map<std::string, const Item*>> in_part(parts_.size());
  for (const auto* items : {&tensors_, &tied_}) {
    for (const Item& item : *items) {
      if (map_.tensors[item.tensor].role != Role::param) continue;
      const std::string name = dotted(item.path);
      in_part[item.part].emplace(name, &item);
      anywhere.emplace(name, &item);
    }
  }
  const auto rename = [&](std::uint32_t part, std::string& name) {
    const auto own = in_part[part].find(name);
    const auto other = anywhere.find(name);
    if (own != in_part[part].end()) {
      name = own->second->name;
    } else if (other != anywhere.end()) {
      name = other->second->name;
    }
  };
  for (const Item& item : tensors_) {
    Tensor& tensor = map_.tensors[item.tensor];
    if (tensor.role == Role::slot && !tensor.parameter.empty()) rename(item.part, tensor.parameter);
  }
}

/// No objects.json holds them: their pickle is kept.
Result<> MapBuilder::find_deep_objects() {
  std::vector<Item> kept;
  for (Item& item : objects_) {
    Part& part = parts_[item.part];
    const auto value = to_value(
        part.archive.graph, item.node, [](pickle::NodeId) { return std::optional<std::string>(); }, &part.expansion);
    if (!value) return fail(at(in_file(value.error(), part.archive), part, item.path));
    if (nests_within(**value, universal::kMaxObjectDepth, kMostValues)) {
      kept.push_back(std::move(item));
    } else {
      part.deep.push_back(dotted(item.path));
    }
  }
  objects_ = std::move(kept);
  return {};
}

Result<> MapBuilder::add_objects() {
  std::uint64_t total = 0;
  for (Item& item : objects_) {
    const Part& part = parts_[item.part];
    bool lost = false;
    const auto tensor_name = [&](NodeId node) -> std::optional<std::string> {
      const auto found = part.tensor_of.find(node);
      if (found != part.tensor_of.end()) return tensors_[found->second].name;
      lost = true;
      return std::nullopt;
    };
    Expansion own;
    auto value = to_value(part.archive.graph, item.node, tensor_name, &own);
    if (!value) return fail(at(in_file(std::move(value).error(), part.archive), part, item.path));
    total += own.values;
    if (total > kMostValues) {
      return fail(
          at({.code = Errc::refused, .message = "objects expand to more than 4 million values"}, part, item.path));
    }
    if (lost) {
      map_.findings.push_back({.severity = Severity::warning,
                               .text = "a tensor inside an object that contains itself is left out",
                               .file = part.path,
                               .tensor = item.name});
    }
    map_.objects.push_back({.name = item.name, .path = map_path(item), .value = **value});
  }
  return {};
}

// The path inside the file, after the file where its name is before it.
Path MapBuilder::map_path(const Item& item) const {
  Path path = item.path;
  const StateFile& file = parts_[item.part].file;
  if (!file.prefix.empty()) path.insert(path.begin(), file.path);
  return path;
}

void MapBuilder::add_aliases() {
  for (const Item& item : tied_) {
    Alias& alias = map_.aliases.emplace_back(Alias{.name = item.name, .target = tensors_[item.tensor].name});
    Path path = map_path(item);
    if (!splits_to(alias.name, path)) alias.path = std::move(path);
  }
}

void MapBuilder::place() {
  auto table = std::make_shared<ChunkTable>(tensors_.size());
  for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
    Tensor& tensor = map_.tensors[i];
    tensor.name = tensors_[i].name;
    Path path = map_path(tensors_[i]);
    if (!splits_to(tensor.name, path)) tensor.path = std::move(path);
    if (volume(tensor.shape) == 0) continue;
    table->add(i, tensor.shape, Chunk{.box = Box::whole(tensor.shape)}, std::move(where_[i]));
  }
  table->seal();
  map_.index = std::move(table);
}

// Parts of one checkpoint share no tensor; files of several steps share them all.
Result<> MapBuilder::check_one_checkpoint() const {
  std::unordered_map<std::string, std::uint32_t> first;
  std::set<std::uint32_t> alike;
  const auto counts = [&](std::uint32_t part) { return !parts_[part].file.listed && parts_[part].file.key.empty(); };
  for (const auto* items : {&tensors_, &tied_}) {
    for (const Item& item : *items) {
      if (parts_.size() < 2 || !counts(item.part) || map_.tensors[item.tensor].role == Role::blob) continue;
      const auto [at, is_new] = first.emplace(dotted(item.path), item.part);
      if (!is_new && at->second != item.part) alike.insert({at->second, item.part});
    }
  }
  if (alike.empty()) return {};
  std::vector<OneCheckpoint> all;
  for (const std::uint32_t part : alike)
    all.push_back({.name = parts_[part].file.path, .step = parts_[part].step, .mtime_ns = map_.files[part].mtime_ns});
  return fail(several_checkpoints(root_, std::move(all)));
}

// The data from which a file is rebuilt. Keeps the graph alive.
void MapBuilder::keep_whole() {
  if (parts_.size() != 1) return;
  const StateFile& file = parts_.front().file;
  if (!file.prefix.empty() || !file.key.empty() || file.listed) return;
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const Item& item : tensors_) names.push_back(item.name);
  map_.whole = [graph = parts_.front().archive.graph, tensor_of = std::move(parts_.front().tensor_of),
                names = std::move(names), storages = std::move(storages_)]() -> Result<WholeObject> {
    WholeObject out;
    const auto name_of = [&](NodeId node) -> std::optional<std::string> {
      const auto found = tensor_of.find(node);
      return found == tensor_of.end() ? std::string() : names[found->second];
    };
    CKPT_TRY(out.value, to_value(graph, graph.root(), name_of));
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (storages[i].size() > 0) out.storages.emplace(names[i], storages[i]);
    }
    return out;
  };
}

Result<Map> MapBuilder::build(Hasher& metadata) {
  CKPT_CHECK(check_listed());
  CKPT_CHECK(check_one_checkpoint());
  CKPT_CHECK(find_deep_objects());
  keep_pickles();
  CKPT_CHECK(name_all());
  name_parameters();
  CKPT_CHECK(add_objects());
  add_aliases();
  place();
  keep_whole();
  for (const Part& part : parts_) metadata.update(part.archive.metadata_hash.hex());
  map_.metadata_hash = metadata.digest().hex();
  map_.format = "torch";
  map_.nested = true;
  map_.module_order = true;
  map_.meta.framework = "torch";
  return std::move(map_);
}

}  // namespace ckpt::torch
