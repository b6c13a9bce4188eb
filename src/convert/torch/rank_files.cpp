#include "convert/torch/rank_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "convert/torch/files.hpp"
#include "format/text/error_context.hpp"
#include "format/text/name_list.hpp"
#include "format/text/parse_number.hpp"
#include "format/torch/random_state.hpp"
#include "format/universal/objects.hpp"

namespace ckpt::torch {
namespace {

using pickle::NodeId;

constexpr std::size_t kMostPieces = std::size_t{4} << 20;
constexpr std::array<std::string_view, 4> kRankStepKeys{"global_step", "step", "global_steps", "iteration"};

bool is_weights(const RankFile& file) {
  return file.stem.starts_with("model") || file.stem.starts_with("pytorch_model");
}

/// A box of torch's elements as one of the model's: complex128 has a further dimension of 2, F4 counts twice as many.
Box in_model(Box box, const Shape& shape, const ModelType& type) {
  if (type.dtype == Dtype::f4 && type.shape != shape) {
    if (shape.empty()) return Box::whole(type.shape);
    box.offset.back() *= 2;
    box.size.back() *= 2;
  } else if (type.shape.size() > shape.size()) {
    box.offset.push_back(0);
    box.size.push_back(2);
  }
  return box;
}

}  // namespace

std::optional<RankFile> as_rank_file(std::string_view name) {
  if (!has_torch_suffix(name)) return std::nullopt;
  const std::string_view stem = name.substr(0, name.rfind('.'));
  const std::size_t at = stem.rfind("_rank");
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  std::string_view digits = stem.substr(at + 5);
  if (digits.starts_with('_')) digits.remove_prefix(1);
  const auto rank = parse_number<std::uint32_t>(digits);
  if (!rank) return std::nullopt;
  const std::string_view file_set = stem.substr(0, at);
  RankFile file{
      .path = std::string(name), .file_set = std::string(file_set), .stem = std::string(file_set), .rank = *rank};
  constexpr std::string_view kWorld = "_world_size_";
  if (const std::size_t world = file_set.rfind(kWorld); world != std::string_view::npos) {
    file.world = parse_number<std::uint32_t>(file_set.substr(world + kWorld.size()));
    file.stem = std::string(file_set.substr(0, world));
    if (file.world) return file;
  }
  if (file_set.find("fsdp") == std::string_view::npos && !file_set.starts_with("optimizer")) return std::nullopt;
  return file;
}

std::optional<RankFile> as_numbered_file(std::string_view name) {
  if (!has_torch_suffix(name)) return std::nullopt;
  const std::string_view stem = name.substr(0, name.rfind('.'));
  const std::size_t end = stem.find_last_not_of("0123456789");
  if (end == std::string_view::npos || end + 1 == stem.size()) return std::nullopt;
  const auto rank = parse_number<std::uint32_t>(stem.substr(end + 1));
  if (!rank) return std::nullopt;
  const std::size_t set_end = stem.find_last_not_of("_-.", end);
  if (set_end == std::string_view::npos) return std::nullopt;
  const std::string file_set(stem.substr(0, set_end + 1));
  return RankFile{.path = std::string(name), .file_set = file_set, .stem = file_set, .rank = *rank};
}

bool holds_distributed(const pickle::Graph& graph) {
  return std::ranges::any_of(unknown_classes(graph), [](const std::string& name) {
    return name.starts_with("torch.distributed.tensor.") || name.starts_with("torch.distributed._tensor.") ||
           name.starts_with("torch.distributed._shard.");
  });
}

Result<std::vector<RankFile>> order_rank_files(const std::string& root, std::vector<RankFile> files) {
  std::sort(files.begin(), files.end(), [](const RankFile& a, const RankFile& b) {
    return std::tuple(!is_weights(a), a.stem, a.file_set, a.rank) <
           std::tuple(!is_weights(b), b.stem, b.file_set, b.rank);
  });
  for (std::size_t begin = 0; begin < files.size();) {
    std::size_t end = begin;
    while (end < files.size() && files[end].file_set == files[begin].file_set) ++end;
    const RankFile& first = files[begin];
    if (end < files.size() && files[end].stem == first.stem) {
      return fail(
          {.code = Errc::ambiguous,
           .message = fmt::format("{}: two sets of one kind, {} and {}", root, first.file_set, files[end].file_set),
           .file = join_path(root, files[end].path),
           .hint = "move the unwanted one to a separate directory"});
    }
    const std::uint64_t world = std::max(first.world.value_or(0), files[end - 1].rank + 1);
    NameList names;
    std::string missing;  // the first
    std::size_t next = begin;
    for (std::uint64_t rank = 0; rank < world && names.count() < kNamesShown; ++rank) {
      if (next < end && files[next].rank == rank) {
        ++next;
        continue;
      }
      std::string name = first.path;
      const std::string own = std::to_string(first.rank);
      const std::size_t suffix = name.rfind('.');
      name.replace(suffix - own.size(), own.size(), std::to_string(rank));
      if (missing.empty()) missing = name;
      names.add(name);
    }
    if (names.count() > 0) {
      const std::uint64_t count = world - std::min<std::uint64_t>(world, end - begin);
      names.add_unnamed(count - std::min(count, names.count()));
      return fail(
          {.code = Errc::incomplete,
           .message = fmt::format("{}: files of {} of {} ranks are missing: {}", root, count, world, names.text()),
           .file = join_path(root, missing),
           .hint = "each rank wrote its own slices: copy the files from every node"});
    }
    begin = end;
  }
  return files;
}

Error RankFilesBuilder::at(Error error, const Part& part, const Path& path) const {
  const std::string name = set_prefix(part.file) + dotted(path);
  if (error.offset) *error.offset += part.archive.pickle_bytes.begin;
  error = with_context(std::move(error), part.path + ": " + name);
  error.file = part.path;
  return with_tensor(std::move(error), name);
}

std::string RankFilesBuilder::set_prefix(const RankFile& file) const {
  return file.file_set == first_set_ || !file.item.empty() ? std::string() : file.file_set + "/";
}

Result<> RankFilesBuilder::add(const RankFile& file, MapFile map_file, const std::string& path, TorchArchive archive) {
  if (map_.files.empty()) {
    first_set_ = file.file_set;
    map_.module_order = true;
  }
  auto tree = read_tree(archive.graph);
  if (!tree) {
    Error error = std::move(tree).error();
    error.message = path + ": " + error.message;
    const auto offset = error.offset ? std::optional(*error.offset + archive.pickle_bytes.begin) : std::nullopt;
    error.offset.reset();
    return fail(with_file(std::move(error), path, offset));
  }
  Part part{.file = file,
            .path = path,
            .archive = archive,
            .index = static_cast<std::uint32_t>(map_.files.size()),
            .distributed = DistributedReader(archive.graph, file.rank)};
  map_.files.push_back(std::move(map_file));
  for (const Leaf& leaf : tree->leaves) {
    Path leaf_path = tree->path(leaf.step);
    if (!file.item.empty()) leaf_path.insert(leaf_path.begin(), file.item);
    CKPT_CHECK(add_leaf(part, std::move(leaf_path), leaf));
  }
  if (file.rank == 0) {
    for (OptimizerState& optimizer : tree->optimizers) {
      if (!file.item.empty()) optimizer.path.insert(optimizer.path.begin(), file.item);
      optimizer.path = map_path({.prefix = set_prefix(file), .path = std::move(optimizer.path)});
      optimizers_.push_back(std::move(optimizer));
    }
  }
  for (const std::string_view key : kRankStepKeys) {
    const NodeId node = file.item.empty()  ? archive.graph.find(archive.graph.root(), key)
                        : file.item == key ? archive.graph.root()
                                           : pickle::kNone;
    if (node == pickle::kNone) continue;
    if (map_.meta.step || archive.graph.kind(node) != pickle::Kind::integer || archive.graph.integer(node) < 0)
      continue;
    map_.meta.step = static_cast<std::uint64_t>(archive.graph.integer(node));
  }
  keep_pickle(part);
  map_.meta.world_size = std::max(map_.meta.world_size.value_or(0), file.rank + 1);
  metadata_.push_back(archive.metadata_hash.hex());
  return {};
}

Result<> RankFilesBuilder::add_leaf(Part& part, Path path, const Leaf& leaf) {
  const bool is_tensor = leaf.kind == Leaf::Kind::tensor;
  if (dotted(path).empty()) path = {is_tensor ? "tensor" : "object"};  // a name is not empty
  return is_tensor ? add_tensor(part, std::move(path), leaf.node) : add_object(part, std::move(path), leaf.node);
}

Result<> RankFilesBuilder::add_tensor(Part& part, Path path, NodeId node) {
  const pickle::Graph& graph = part.archive.graph;
  const auto failed = [&](Error error) { return fail(at(std::move(error), part, path)); };
  auto sharded = as_sharded_tensor(graph, node, part.file.rank);
  if (!sharded) return failed(std::move(sharded).error());
  if (*sharded) {
    auto added = add_sharded(part, path, **sharded);
    return added ? added : failed(std::move(added).error());
  }
  auto distributed = part.distributed.read(node);
  if (!distributed) return failed(std::move(distributed).error());
  TensorView view;
  Shape global;
  std::vector<LocalPiece> pieces;
  if (*distributed) {
    auto local = local_pieces(**distributed);
    if (!local) return failed(std::move(local).error());
    pieces = *std::move(local);
    view = std::move((**distributed).local);
    global = std::move((**distributed).global_shape);
  } else {
    auto plain = as_tensor(graph, node);
    if (!plain) return failed(std::move(plain).error());
    if (!*plain) {
      return failed({.code = Errc::unsupported,
                     .message = fmt::format("a {} in the file of one rank, which is recognised but not yet read",
                                            unsupported_kind(graph, node)),
                     .offset = graph.offset(node),
                     .hint = "load it on all ranks and save it with torch.distributed.checkpoint"});
    }
    view = *std::move(*plain);
    global = view.shape;
    if (view.has_attributes) attributed_.push_back(part.file.path + "/" + dotted(path));
    if (volume(global) != 0) pieces.push_back({Box::whole(global), Shape(global.size(), 0)});
  }
  auto tensor = tensor_for(part, path, view, global);
  if (!tensor) return failed(std::move(tensor).error());
  if (!*tensor) return {};
  for (const LocalPiece& piece : pieces) {
    if (auto placed = place(part, **tensor, view, piece); !placed) return failed(std::move(placed).error());
  }
  return {};
}

/// A ShardedTensor's parts record their position.
Result<> RankFilesBuilder::add_sharded(Part& part, const Path& path, const ShardedView& sharded) {
  TensorView nothing;  // if the rank holds no part
  nothing.dtype_name = sharded.dtype_name;
  nothing.shape = Shape(std::max<std::size_t>(1, sharded.global_shape.size()), 0);
  const TensorView& first = sharded.parts.empty() ? nothing : sharded.parts.front().local;
  CKPT_TRY(const auto tensor, tensor_for(part, path, first, sharded.global_shape));
  if (!tensor) return {};
  for (const ShardedView::Part& held : sharded.parts) {
    if (volume(held.box.size) == 0) continue;
    CKPT_CHECK(place(part, *tensor, held.local, {held.box, Shape(held.box.size.size(), 0)}));
  }
  return {};
}

/// The tensor of the map that a rank's tensor is part of: known by its path, or new; nothing if it is tied to another
/// one.
Result<std::optional<std::uint32_t>> RankFilesBuilder::tensor_for(Part& part, Path path, const TensorView& view,
                                                                  const Shape& global) {
  const bool own = part.file.rank > 0 && is_random_state(dotted(path), view.dtype_name, view.shape.size());
  Item item{.prefix = own ? part.file.path + "/" : set_prefix(part.file), .path = std::move(path)};
  const std::string key = item.prefix + '\0' + dotted_escaped(item.path);
  ViewKey seen{view.storage_key + ' ' + view.dtype_name, {view.storage_offset}};
  seen.second.insert(seen.second.end(), view.shape.begin(), view.shape.end());
  seen.second.insert(seen.second.end(), view.strides.begin(), view.strides.end());
  const bool empty = volume(view.shape) == 0;
  const auto same = empty ? part.views.end() : part.views.find(seen);

  const auto known = tensor_of_.find(key);
  if (known != tensor_of_.end()) {
    const Collected& tensor = collected_[known->second];
    if (tensor.dtype_name != view.dtype_name || tensor.shape != global) {
      return fail(Errc::corrupt, std::string(tensor.dtype_name != view.dtype_name ? "its dtype" : "its shape") +
                                     " differs from that in " + tensor.first_file);
    }
    if (!empty) part.views.emplace(std::move(seen), known->second);
    return known->second;
  }
  if (const auto tie = tie_of_.find(key); tie != tie_of_.end()) {
    if (empty || (same != part.views.end() && same->second == tie->second)) return std::nullopt;
    return fail(Errc::corrupt, "tied to another tensor on an earlier rank, and not on this one");
  }
  if (same != part.views.end() && collected_[same->second].shape == global) {
    tie_of_.emplace(key, same->second);
    tied_.push_back(std::move(item));
    tied_to_.push_back(same->second);
    return std::nullopt;
  }

  TensorView whole = view;
  whole.shape = global;
  CKPT_TRY(ModelType type, model_type(whole));
  CKPT_TRY([[maybe_unused]] const std::uint64_t bytes, tensor_bytes(type.dtype, type.shape));
  if (part.file.rank > 0 && !own) map_.module_order = false;  // rank 0 does not hold all: stages of a pipeline
  const auto index = static_cast<std::uint32_t>(tensors_.size());
  const bool is_random = is_random_state(dotted(item.path), view.dtype_name, view.shape.size());
  map_.tensors.push_back({.name = dotted(item.path),
                          .dtype = type.dtype,
                          .shape = std::move(type.shape),
                          .role = is_random ? Role::blob : Role::param,
                          .true_dtype = std::move(type.true_dtype)});
  collected_.push_back({global, view.dtype_name, part.file.path});
  tensors_.push_back(std::move(item));
  tensor_of_.emplace(key, index);
  if (!empty) part.views.emplace(std::move(seen), index);
  return index;
}

Result<> RankFilesBuilder::place(const Part& part, std::uint32_t tensor, const TensorView& view,
                                 const LocalPiece& piece) {
  if (pieces_.size() == kMostPieces) return fail(Errc::refused, "more than 4 million pieces of tensors");
  TensorView own = view;  // inside `view`, which as_tensor checked
  own.shape = piece.box.size;
  for (std::size_t d = 0; d < own.shape.size(); ++d) {
    own.storage_offset += piece.local[d] * static_cast<std::uint64_t>(own.strides[d]);
  }
  CKPT_TRY(Locator where, part.archive.locate(own, part.index));
  TensorView whole = view;
  whole.shape = collected_[tensor].shape;
  CKPT_TRY(const ModelType type, model_type(whole));
  pieces_.push_back({tensor, Chunk{.box = in_model(piece.box, whole.shape, type)}, std::move(where)});
  return {};
}

Result<> RankFilesBuilder::add_object(Part& part, Path path, NodeId node) {
  auto value = to_value(
      part.archive.graph, node, [](NodeId) { return std::optional<std::string>{}; }, &part.expansion);
  if (!value) return fail(at(std::move(value).error(), part, path));
  NamedObject object{.name = "object", .value = **value};
  auto text = universal::build_objects({}, std::span(&object, 1));
  if (!text) return fail(at(std::move(text).error(), part, path));
  Item item{.prefix = set_prefix(part.file), .path = std::move(path)};
  const auto [first, is_new] =
      object_of_.emplace(item.prefix + '\0' + dotted_escaped(item.path), hash128(std::string_view(*text)));
  if (!is_new) {
    if (first->second == hash128(std::string_view(*text))) return {};
    item.prefix = part.file.path + "/";
    ++own_objects_;
  }
  objects_.push_back(std::move(item));
  map_.objects.push_back(std::move(object));
  return {};
}

/// A pickle with objects that no table knows is kept.
void RankFilesBuilder::keep_pickle(const Part& part) {
  const std::vector<std::string> classes = unknown_classes(part.archive.graph);
  const bool all_known = std::all_of(classes.begin(), classes.end(), [](const std::string& name) {
    return name.starts_with("torch.distributed.tensor.") || name.starts_with("torch.distributed._tensor.") ||
           name.starts_with("torch.distributed._shard.") || name.starts_with("torch.distributed.remote_device.") ||
           name.starts_with("torch.distributed.device_mesh.") || name.starts_with("torch.distributed._mesh_layout.");
  });
  if (all_known) return;
  const Extent bytes = part.archive.pickle_bytes;
  const auto index = static_cast<std::uint32_t>(tensors_.size());
  tensors_.push_back({.prefix = part.file.path + "/", .path = {"data.pkl"}});
  collected_.push_back({{bytes.size()}, "uint8", part.file.path});
  map_.tensors.push_back({.name = "data.pkl", .dtype = Dtype::u8, .shape = {bytes.size()}, .role = Role::blob});
  pieces_.push_back({index, Chunk{.box = Box::whole({bytes.size()})},
                     Locator{.file = part.index, .offset = bytes.begin, .dtype = Dtype::u8}});
}

/// The path inside the file, after the set or file where its name is before it.
Path RankFilesBuilder::map_path(const Item& item) {
  Path path = item.path;
  if (!item.prefix.empty()) path.insert(path.begin(), item.prefix.substr(0, item.prefix.size() - 1));
  return path;
}

Result<Map> RankFilesBuilder::build(Hasher& metadata) {
  std::vector<Nameless> nameless;
  for (const auto* items : {&tensors_, &tied_, &objects_}) {
    for (const Item& item : *items) nameless.push_back({item.prefix, item.path});
  }
  auto names = unique_names(nameless);
  if (!names) return fail(with_file(std::move(names).error(), root_));
  std::size_t at = 0;
  for (auto* items : {&tensors_, &tied_, &objects_}) {
    for (Item& item : *items) item.name = std::move((*names)[at++]);
  }

  // By names with those of the files: the root of one set is an optimizer, that of another the model.
  std::vector<Path> paths;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    paths.push_back(map_path(tensors_[i]));
    map_.tensors[i].name = dotted(paths.back());
  }
  assign_roles(map_.tensors, paths, optimizers_);

  auto table = std::make_shared<ChunkTable>(tensors_.size());
  for (Piece& piece : pieces_) {
    table->add(piece.tensor, map_.tensors[piece.tensor].shape, std::move(piece.chunk), std::move(piece.where));
  }
  table->seal();
  map_.index = std::move(table);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& tensor = map_.tensors[i];
    tensor.name = tensors_[i].name;
    Path path = map_path(tensors_[i]);
    if (!splits_to(tensor.name, path)) tensor.path = std::move(path);
  }
  for (std::size_t i = 0; i < tied_.size(); ++i) {
    Alias& alias = map_.aliases.emplace_back(Alias{.name = tied_[i].name, .target = tensors_[tied_to_[i]].name});
    Path path = map_path(tied_[i]);
    if (!splits_to(alias.name, path)) alias.path = std::move(path);
  }
  for (std::size_t i = 0; i < objects_.size(); ++i) {
    map_.objects[i].name = objects_[i].name;
    map_.objects[i].path = map_path(objects_[i]);
  }
  if (own_objects_ > 0) {
    map_.findings.push_back(
        {.text = fmt::format("{} Python objects differ from the first rank's and are kept under their file's name",
                             own_objects_)});
  }
  if (!attributed_.empty()) {
    map_.findings.push_back(
        {.severity = Severity::warning,
         .text = fmt::format("Python attributes, or the custom class, of {} tensors are skipped: {}{}",
                             attributed_.size(), attributed_.front(), attributed_.size() > 1 ? ", ..." : ""),
         .skipped = Skipped::data});
  }
  for (const std::string& hash : metadata_) metadata.update(hash);
  map_.metadata_hash = metadata.digest().hex();
  map_.format = "torch";
  map_.nested = true;
  map_.meta.framework = "torch";
  return std::move(map_);
}

}  // namespace ckpt::torch
