#include "convert/megatron/local_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "convert/megatron/buckets.hpp"
#include "convert/megatron/run_arguments.hpp"
#include "convert/megatron/stored_objects.hpp"
#include "convert/model_arguments.hpp"
#include "convert/optimizer_roles.hpp"
#include "convert/torch_archive.hpp"
#include "format/hash.hpp"
#include "format/model/object_tree.hpp"
#include "format/text/error_context.hpp"
#include "format/text/name_list.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::string_view kLocalPrefix = "iter_";
constexpr std::string_view kLocalSuffix = "_local.pt";
constexpr std::string_view kShardedTensor = "megatron.core.dist_checkpointing.mapping.ShardedTensor";
constexpr std::string_view kShardedObject = "megatron.core.dist_checkpointing.mapping.ShardedObject";
constexpr std::uint64_t kMostRanks = std::uint64_t{1} << 20;

struct LocalName {
  std::uint64_t iteration = 0;
  std::uint64_t rank = 0;
};

/// Of iter_0000100_3_local.pt; one that was not finished ends in _local.dirty.pt.
std::optional<LocalName> local_name(std::string_view name) {
  if (!name.starts_with(kLocalPrefix) || !name.ends_with(kLocalSuffix)) return std::nullopt;
  name.remove_prefix(kLocalPrefix.size());
  name.remove_suffix(kLocalSuffix.size());
  const std::size_t at = name.find('_');
  if (at == std::string_view::npos) return std::nullopt;
  const auto iteration = parse_number<std::uint64_t>(name.substr(0, at));
  const auto rank = parse_number<std::uint64_t>(name.substr(at + 1));
  if (!iteration || !rank || *rank >= kMostRanks) return std::nullopt;
  return LocalName{*iteration, *rank};
}

std::optional<Shape> sizes_of(const Value* value) {
  const auto* list = value == nullptr ? nullptr : std::get_if<List>(&value->v);
  if (list == nullptr) return std::nullopt;
  Shape out;
  for (const ValuePtr& item : list->items) {
    const auto size = whole_number(item.get());
    if (!size || *size < 0) return std::nullopt;
    out.push_back(static_cast<std::uint64_t>(*size));
  }
  return out;
}

/// A slice(begin, end, None), as its class is called in a pickle.
std::optional<Extent> extent_of(const Value& value) {
  const auto* call = std::get_if<Opaque>(&value.v);
  if (call == nullptr || !call->global.ends_with("slice")) return std::nullopt;
  const auto* arguments = call->args == nullptr ? nullptr : std::get_if<List>(&call->args->v);
  if (arguments == nullptr || arguments->items.size() < 2) return std::nullopt;
  const auto begin = whole_number(arguments->items[0].get());
  const auto end = whole_number(arguments->items[1].get());
  if (!begin || !end || *begin < 0 || *end < *begin) return std::nullopt;
  return Extent{static_cast<std::uint64_t>(*begin), static_cast<std::uint64_t>(*end)};
}

std::string_view after_dot(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

bool is_none(const Value* value) {
  return value == nullptr || std::holds_alternative<None>(value->v);
}

/// Joins the ranks' files, one pickle at a time.
class LocalReader {
 public:
  LocalReader(Io& io, std::string root, std::uint64_t iteration)
      : io_(io), root_(std::move(root)), iteration_(iteration) {}

  Result<> add(const std::string& relative, std::uint64_t rank) {
    path_ = join_path(root_, relative);
    rank_ = rank;
    CKPT_TRY(const FileHandle handle, io_.open(path_, {}));
    auto added = add_opened(handle, relative);
    auto closed = io_.close(handle);
    CKPT_CHECK(std::move(added));
    return closed;
  }

  /// How many ranks the run had, by its arguments.
  std::optional<std::uint64_t> world_size() const { return map_.meta.world_size; }

  Map finish() {
    auto table = std::make_shared<ChunkTable>(map_.tensors.size());
    for (Piece& piece : pieces_)
      table->add(piece.tensor, map_.tensors[piece.tensor].shape, std::move(piece.chunk), std::move(piece.where));
    table->seal();
    map_.index = std::move(table);
    assign_roles(map_.tensors, std::vector<Path>(map_.tensors.size()));
    if (!lost_.empty())
      map_.findings.push_back({.severity = Severity::warning,
                               .text = "objects of ranks are not read from local files: " + name_list(lost_),
                               .skipped = Skipped::training_state});
    map_.metadata_hash = hasher_.digest().hex();
    return std::move(map_);
  }

 private:
  struct Piece {
    std::size_t tensor = 0;
    Chunk chunk{};
    Locator where{};
  };

  Error wrong(Errc code, const std::string& key, std::string_view reason) const {
    return {.code = code,
            .message = fmt::format("{}: {}{}{}", path_, key, key.empty() ? "" : ": ", reason),
            .file = path_,
            .tensor = key};
  }

  Result<> add_opened(FileHandle handle, const std::string& relative) {
    CKPT_TRY(const FileInfo info, io_.info(handle));
    CKPT_TRY(const TorchArchive archive, open_torch_archive(io_, handle, path_, {0, info.bytes}));
    hasher_.update(relative);
    hasher_.update(archive.metadata_hash.hex());
    map_.files.push_back({relative, info.bytes, info.mtime_ns});
    CKPT_TRY(const ValuePtr root, torch::to_value(archive.graph, archive.graph.root(), [](pickle::NodeId node) {
               return std::optional(std::to_string(node));
             }));
    const Value* common = member(*root, "common");
    const Value* sharded = member(*root, "sharded_state_dict");
    if (common == nullptr || sharded == nullptr)
      return fail(wrong(Errc::unsupported, "", "a local checkpoint, but not of Megatron-LM"));
    CKPT_CHECK(check_origin(*common));
    if (map_.files.size() == 1) {
      read_run_arguments(*common, map_.meta);
      add_objects({}, std::make_shared<Value>(*common), map_);
    }
    std::vector<const Value*> open{sharded};
    while (!open.empty()) {
      const Value* value = open.back();
      open.pop_back();
      if (const auto* dict = std::get_if<Dict>(&value->v)) {
        for (const auto& [key, item] : dict->items)
          if (item != nullptr) open.push_back(item.get());
      } else if (const auto* list = std::get_if<List>(&value->v)) {
        for (const ValuePtr& item : list->items)
          if (item != nullptr) open.push_back(item.get());
      } else if (const auto* object = std::get_if<Opaque>(&value->v)) {
        if (object->global == kShardedTensor) CKPT_CHECK(add_tensor(archive, *value));
        if (object->global == kShardedObject) add_object(*value);
      }
    }
    return {};
  }

  /// A file of another save or rank than its name says.
  Result<> check_origin(const Value& common) const {
    const auto refuse = [&](const std::string& reason) {
      Error error = wrong(Errc::corrupt, "", reason);
      error.hint = "copy it again from the node that wrote it";
      return fail(std::move(error));
    };
    const auto iteration = whole_number(member(common, "iteration"));
    if (iteration && *iteration >= 0 && static_cast<std::uint64_t>(*iteration) != iteration_)
      return refuse(fmt::format("its name says iteration {}, but it is of iteration {}", iteration_, *iteration));
    const Value* args = member(common, kArguments);
    const auto rank = args == nullptr ? std::nullopt : whole_number(member(*args, "rank"));
    if (rank && *rank >= 0 && static_cast<std::uint64_t>(*rank) != rank_)
      return refuse(fmt::format("its name says rank {}, but rank {} wrote it", rank_, *rank));
    return {};
  }

  /// Parameter groups of the distributed optimizer are the same for all ranks; other objects belong to one.
  void add_object(const Value& object) {
    const std::string* key = text_of(member(object, "key"));
    const Value* data = member(object, "data");
    if (key == nullptr || is_none(data) || !seen_objects_.insert(*key).second) return;
    const auto path = bucket_object_path(*key);
    Map found;
    if (path) add_objects(*path, std::make_shared<Value>(*data), found);
    const bool is_plain = std::ranges::none_of(
        found.objects, [](const NamedObject& leaf) { return std::holds_alternative<TensorRef>(leaf.value.v); });
    if (path && is_plain) {
      std::ranges::move(found.objects, std::back_inserter(map_.objects));
    } else if (!key->starts_with("optimizer.distributed.dp_group_idx_") || path) {
      lost_.push_back(*key);
    }
  }

  Result<> add_tensor(const TorchArchive& archive, const Value& sharded) {
    const std::string* key = text_of(member(sharded, "key"));
    const auto global = sizes_of(member(sharded, "global_shape"));
    const auto local = sizes_of(member(sharded, "local_shape"));
    const auto offset = sizes_of(member(sharded, "global_offset"));
    const Value* data = member(sharded, "data");
    const auto* reference = data == nullptr ? nullptr : std::get_if<TensorRef>(&data->v);
    if (key == nullptr || key->empty() || !global || !local || !offset)
      return fail(wrong(Errc::corrupt, "", "a ShardedTensor lacks its key or place"));
    // With the algorithm fully_parallel each part has one of the data-parallel ranks that hold it.
    if (is_none(data)) return expect_elsewhere(*key, *global, sharded);
    if (reference == nullptr) return fail(wrong(Errc::unsupported, *key, "its data is not a tensor"));
    const auto node = parse_number<pickle::NodeId>(reference->name);
    auto view = node ? torch::as_tensor(archive.graph, *node) : std::optional<torch::TensorView>();
    if (!view) return fail(with_context(std::move(view).error(), path_));
    if (!*view) return fail(wrong(Errc::unsupported, *key, "its data is not a plain tensor"));
    const Value* flattened = member(sharded, "flattened_range");
    Piece piece{.chunk = {.box = {*offset, *local}}};
    if (local->size() > global->size() || offset->size() != global->size())
      return fail(wrong(Errc::corrupt, *key, "its place contradicts its shape"));
    // Layers that are stacked have an axis of their own, which the local tensor lacks.
    const std::size_t prepended = global->size() - local->size();
    piece.chunk.box.size.insert(piece.chunk.box.size.begin(), prepended, 1);
    if (!fits(piece.chunk.box, *global)) return fail(wrong(Errc::corrupt, *key, "its part leaves the tensor"));
    Shape held = *local;
    if (!is_none(flattened)) {
      piece.chunk.flat = extent_of(*flattened);
      if (!piece.chunk.flat || piece.chunk.flat->end > volume(*local))
        return fail(wrong(Errc::corrupt, *key, "its flattened range contradicts its shape"));
      held = {piece.chunk.flat->size()};
    }
    if ((*view)->shape != held) return fail(wrong(Errc::corrupt, *key, "its data has another shape"));
    CKPT_TRY(const ModelType type, model_type(**view));
    if (type.shape != held) return fail(wrong(Errc::unsupported, *key, "its element type cannot be cut"));
    CKPT_TRY(piece.tensor, tensor_for(*key, *global, type));
    auto where = archive.locate(**view, static_cast<std::uint32_t>(map_.files.size() - 1));
    if (!where) return fail(with_context(std::move(where).error(), path_));
    piece.where = *std::move(where);
    if (!piece.where.strides.empty()) {
      if (piece.chunk.flat) return fail(wrong(Errc::unsupported, *key, "a flattened part with strides"));
      piece.where.strides.insert(piece.where.strides.begin(), prepended, 0);
    }
    if (piece.chunk.volume() != 0) pieces_.push_back(std::move(piece));
    return {};
  }

  /// A part that another rank has to hold: the tensor has a hole if none does.
  Result<> expect_elsewhere(const std::string& key, const Shape& shape, const Value& sharded) {
    const Value* type = member(sharded, "dtype");
    const auto* named = type == nullptr ? nullptr : std::get_if<Opaque>(&type->v);
    const auto dtype = named == nullptr ? std::nullopt : dtype_from_torch(after_dot(named->global));
    if (!dtype) return fail(wrong(Errc::unsupported, key, "it has no element type"));
    return tensor_for(key, shape, {.dtype = *dtype, .shape = shape}).map([](std::size_t) {});
  }

  Result<std::size_t> tensor_for(const std::string& key, const Shape& shape, const ModelType& type) {
    CKPT_CHECK(tensor_bytes(type.dtype, shape));
    const auto [at, is_new] = by_key_.try_emplace(key, map_.tensors.size());
    if (is_new) map_.tensors.push_back({.name = key, .dtype = type.dtype, .shape = shape});
    const Tensor& tensor = map_.tensors[at->second];
    if (tensor.shape != shape || tensor.dtype != type.dtype)
      return fail(wrong(Errc::corrupt, key, "another rank's file gives it another shape or type"));
    return at->second;
  }

  Io& io_;
  std::string root_;
  std::uint64_t iteration_;  // of the files' names
  std::string path_{};       // of the file that is being added
  std::uint64_t rank_ = 0;   // of its name
  Map map_{};
  std::vector<Piece> pieces_{};
  std::unordered_map<std::string, std::size_t> by_key_{};
  std::unordered_set<std::string> seen_objects_{};  // keys
  std::vector<std::string> lost_{};
  Hasher hasher_{};
};

tl::unexpected<Error> without_ranks(const std::string& root, const LocalFiles& files, std::uint64_t world) {
  NameList names;
  for (std::uint64_t rank = 0; rank < world; ++rank)
    if (rank >= files.paths.size() || files.paths[rank].empty()) names.add(std::to_string(rank));
  return fail({.code = Errc::incomplete,
               .message = fmt::format("{}: local files of iteration {} are missing for {} of {} ranks: {}", root,
                                      files.iteration, names.count(), world, names.text()),
               .file = root,
               .hint = "each node stores only its own ranks: copy the folders from all nodes into one directory"});
}

}  // namespace

Result<std::optional<LocalFiles>> find_local_files(const Place& place) {
  std::map<std::uint64_t, std::map<std::uint64_t, std::string>> found;  // by iteration and rank
  std::uint64_t world = 0;
  for (const DirEntry& folder : place.entries) {
    const auto number = parse_number<std::uint64_t>(folder.name);
    if (folder.kind != FileInfo::Kind::directory || !number) continue;
    CKPT_TRY(const std::vector<DirEntry> entries, place.io.list(join_path(place.root, folder.name)));
    for (const DirEntry& entry : entries) {
      const auto name = local_name(entry.name);
      if (!name || entry.kind != FileInfo::Kind::file) continue;
      // A rank's own file, where there are replicas of it too.
      std::string& path = found[name->iteration][name->rank];
      if (path.empty() || number == name->rank) path = join_path(folder.name, entry.name);
      world = std::max(world, name->rank + 1);
    }
  }
  if (found.empty()) return std::nullopt;
  auto chosen = std::prev(found.end());
  for (auto at = found.rbegin(); at != found.rend(); ++at) {
    if (at->second.size() != world) continue;
    chosen = std::prev(at.base());
    break;
  }
  world = chosen->second.rbegin()->first + 1;  // older iterations may be of a job with more ranks
  LocalFiles out{.iteration = chosen->first, .paths = std::vector<std::string>(static_cast<std::size_t>(world))};
  for (auto& [rank, path] : chosen->second) out.paths[static_cast<std::size_t>(rank)] = std::move(path);
  return out;
}

Result<Map> open_local_files(Io& io, const std::string& root, const LocalFiles& files) {
  LocalReader reader(io, root, files.iteration);
  if (std::ranges::find(files.paths, "") != files.paths.end()) return without_ranks(root, files, files.paths.size());
  for (std::uint64_t rank = 0; rank < files.paths.size(); ++rank) {
    CKPT_CHECK(reader.add(files.paths[static_cast<std::size_t>(rank)], rank));
    const std::uint64_t world = std::min(reader.world_size().value_or(0), kMostRanks);
    if (world > files.paths.size()) return without_ranks(root, files, world);
  }
  Map map = reader.finish();
  map.variant = fmt::format("{} files of ranks", map.files.size());
  map.meta.step = files.iteration;
  return map;
}

}  // namespace ckpt::megatron
