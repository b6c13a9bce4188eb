#include "convert/universal/saved_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "convert/metadata_memory.hpp"
#include "convert/optimizer_roles.hpp"
#include "convert/unique_names.hpp"
#include "engine/run/checks.hpp"
#include "format/model/object_tree.hpp"
#include "format/model/reordered_index.hpp"
#include "format/text/name_list.hpp"
#include "format/universal/python_tree.hpp"
#include "format/universal/sums.hpp"

namespace ckpt::universal {
namespace {

constexpr std::size_t kLongSequence = 16;  // items; longer ones of plain values stay together, as of torch's files
constexpr std::uint64_t kLeaf = std::uint64_t{1} << kLeafShift;
constexpr std::string_view kLightning = "pytorch-lightning_version";

/// The bytes of a blob. The leaves that hold it are compared with their hashes.
Result<std::string> read_blob(Io& io, const std::string& root, const Map& map, std::uint32_t tensor) {
  const std::uint64_t bytes = volume(map.tensors[tensor].shape);
  std::vector<Locator> pieces;
  CKPT_CHECK(map.index->chunks(tensor, {0, bytes}, [&](const PlacedChunk& placed) -> Result<> {
    pieces.push_back(placed.where);
    return {};
  }));
  const Locator where = pieces.empty() ? Locator{} : pieces.front();
  const MapFile& file = map.files[where.file];
  const std::string path = path_of(map, where.file, root);
  const std::uint64_t end = where.offset + bytes;
  if (pieces.size() != 1 || end > file.bytes)
    return fail({.code = Errc::corrupt, .message = path + ": python.json is not stored in one piece", .file = path});
  const Extent read{where.offset / kLeaf * kLeaf, std::min(file.bytes, (end + kLeaf - 1) / kLeaf * kLeaf)};
  std::string leaves(static_cast<std::size_t>(read.size()), '\0');
  CKPT_TRY(const FileHandle handle, io.open(path, {}));
  const auto got = io.read_at(handle, read.begin, std::as_writable_bytes(std::span(leaves)));
  const auto closed = io.close(handle);
  CKPT_CHECK(got);
  CKPT_CHECK(closed);
  const std::span<const Hash128> hashes = map.hashes.of(where.file);
  for (std::uint64_t at = read.begin; at < read.end && !hashes.empty(); at += kLeaf) {
    if (hash128(std::string_view(leaves).substr(at - read.begin, kLeaf)) == hashes[at / kLeaf]) continue;
    return fail({.code = Errc::checksum,
                 .message = path + ": the content does not match the hashes in sums.bin",
                 .file = path,
                 .offset = at});
  }
  return leaves.substr(where.offset - read.begin, bytes);
}

/// The values at the ends of a tree's paths, in its order, as they are of a torch.save file.
class Leaves {
 public:
  struct Leaf {
    Path path;
    ValuePtr value;
  };

  explicit Leaves(const ValuePtr& root) { reach(root); }

  /// Memory of the leaves and of what is made of them, bytes: measured, with short and long names.
  static std::uint64_t memory_for(const Value& value, std::uint64_t path_bytes = 0) {
    if (!is_opened(value)) return kLeafBytes + 3 * path_bytes;
    std::uint64_t out = 0;
    if (const auto* dict = std::get_if<Dict>(&value.v)) {
      for (const auto& [key, each] : dict->items) {
        const std::string* text = text_of(key.get());
        out += memory_for(*each, path_bytes + kPartBytes + (text == nullptr ? 0 : text->size()));
      }
    } else {
      for (const ValuePtr& each : std::get<List>(value.v).items) out += memory_for(*each, path_bytes + kPartBytes);
    }
    return out;
  }

  std::vector<Leaf> all{};
  std::vector<OptimizerState> optimizers{};

 private:
  static constexpr std::uint64_t kLeafBytes = 400;
  static constexpr std::uint64_t kPartBytes = 64;

  static bool is_plain(const ValuePtr& value) {
    return !std::holds_alternative<List>(value->v) && !std::holds_alternative<Dict>(value->v) &&
           !std::holds_alternative<TensorRef>(value->v);
  }

  /// Whether leaves follow below it: empty containers, and long sequences of plain values, are leaves.
  static bool is_opened(const Value& value) {
    if (const auto* dict = std::get_if<Dict>(&value.v)) return !dict->items.empty();
    const auto* list = std::get_if<List>(&value.v);
    return list != nullptr && !list->items.empty() &&
           (list->items.size() <= kLongSequence || !std::ranges::all_of(list->items, is_plain));
  }

  void reach(const ValuePtr& value) {
    if (!is_opened(*value)) {
      if (!path_.empty()) all.push_back({path_, value});
    } else if (const auto* dict = std::get_if<Dict>(&value->v)) {
      note_optimizer(*value);
      for (const auto& [key, each] : dict->items) enter(part_of(*key), each);
    } else {
      const List& list = std::get<List>(value->v);
      for (std::size_t i = 0; i < list.items.size(); ++i) enter(static_cast<std::int64_t>(i), list.items[i]);
    }
  }

  void enter(PathPart part, const ValuePtr& value) {
    path_.push_back(std::move(part));
    reach(value);
    path_.pop_back();
  }

  static PathPart part_of(const Value& key) {
    if (const auto* number = std::get_if<std::int64_t>(&key.v)) return *number;
    if (const auto* number = std::get_if<BigInt>(&key.v)) return number->decimal;
    const std::string* text = text_of(&key);
    return text == nullptr ? std::string() : *text;
  }

  void note_optimizer(const Value& value) {
    const Value* groups = member(&value, "param_groups");
    const auto* list = groups == nullptr ? nullptr : std::get_if<List>(&groups->v);
    if (list == nullptr || member(&value, "state") == nullptr) return;
    OptimizerState found{.path = path_};
    for (const ValuePtr& group : list->items) {
      const Value* params = member(group.get(), "params");
      const Value* names = member(group.get(), "param_names");
      const auto* indices = params == nullptr ? nullptr : std::get_if<List>(&params->v);
      const auto* texts = names == nullptr ? nullptr : std::get_if<List>(&names->v);
      if (indices == nullptr || texts == nullptr) continue;
      for (std::size_t i = 0; i < std::min(indices->items.size(), texts->items.size()); ++i) {
        const auto* index = std::get_if<std::int64_t>(&indices->items[i]->v);
        const std::string* name = text_of(texts->items[i].get());
        if (index != nullptr && name != nullptr) found.parameters.emplace(*index, *name);
      }
    }
    optimizers.push_back(std::move(found));
  }

  Path path_{};
};

/// The tree with other names of its tensors.
ValuePtr renamed(const ValuePtr& value, const std::unordered_map<std::string, std::string>& names) {
  if (const auto* ref = std::get_if<TensorRef>(&value->v)) {
    return std::make_shared<const Value>(Value{TensorRef{.name = names.at(ref->name)}});
  }
  if (const auto* list = std::get_if<List>(&value->v)) {
    List out = *list;
    for (ValuePtr& item : out.items) item = renamed(item, names);
    return std::make_shared<const Value>(Value{std::move(out)});
  }
  if (const auto* dict = std::get_if<Dict>(&value->v)) {
    Dict out = *dict;
    for (auto& [key, item] : out.items) item = renamed(item, names);
    return std::make_shared<const Value>(Value{std::move(out)});
  }
  return value;
}

class SavedTree {
 public:
  /// blob  the tensor that holds the tree
  SavedTree(Map& map, std::uint32_t blob, ValuePtr root)
      : map_(map), blob_(blob), root_(std::move(root)), leaves_(root_) {
    for (std::uint32_t i = 0; i < map_.tensors.size(); ++i) rows_.emplace(map_.tensors[i].name, i);
    for (const Alias& alias : map_.aliases) {
      if (const auto target = rows_.find(alias.target); target != rows_.end())
        rows_.emplace(alias.name, target->second);
    }
  }

  Result<> show() {
    sort_leaves();
    add_blobs();
    if (tensors_.size() + 1 != map_.tensors.size()) return fail(Errc::corrupt, "it does not list every tensor");
    std::vector<Nameless> nameless;
    for (const auto* some : {&tensors_, &ties_}) {
      for (const Named& one : *some) nameless.push_back({.path = one.path});
    }
    for (const NamedObject& object : objects_) nameless.push_back({.path = object.path});
    CKPT_TRY(const std::vector<std::string> names, unique_names(nameless));
    std::vector<Tensor> tensors = with_roles();
    name(tensors, names);
    std::vector<std::uint32_t> order;
    for (const Named& one : tensors_) order.push_back(one.row);
    for (Extra& extra : map_.extras)
      extra.tensor = static_cast<std::uint32_t>(std::ranges::find(order, extra.tensor) - order.begin());
    map_.index = std::make_shared<ReorderedIndex>(std::move(map_.index), std::move(order));
    map_.tensors = std::move(tensors);
    map_.nested = true;
    map_.module_order = true;
    keep_whole();
    return {};
  }

 private:
  /// A tensor, or another name of one.
  struct Named {
    std::uint32_t row = 0;  ///< in the map of before
    Path path{};
  };

  /// A tensor's first path is its own, the others are tied to it; those of optimizer state come last.
  void sort_leaves() {
    std::unordered_set<std::uint32_t> seen;
    std::stable_partition(leaves_.all.begin(), leaves_.all.end(), [&](const Leaves::Leaf& leaf) {
      return !std::holds_alternative<TensorRef>(leaf.value->v) || !is_state_of(leaf.path, leaves_.optimizers);
    });
    for (Leaves::Leaf& leaf : leaves_.all) {
      const auto* ref = std::get_if<TensorRef>(&leaf.value->v);
      if (ref == nullptr) {
        objects_.push_back({.path = std::move(leaf.path), .value = *leaf.value});
        continue;
      }
      const auto row = rows_.find(ref->name);
      if (row == rows_.end()) {
        absent_.push_back(dotted(leaf.path));
        continue;
      }
      const bool is_new = seen.insert(row->second).second;
      (is_new ? tensors_ : ties_).push_back({row->second, std::move(leaf.path)});
    }
  }

  /// Files of the model that go with a copy, after the tensors of the tree.
  void add_blobs() {
    in_tree_ = tensors_.size();
    for (std::uint32_t i = 0; i < map_.tensors.size(); ++i) {
      if (i != blob_ && map_.tensors[i].role == Role::blob) tensors_.push_back({i, {map_.tensors[i].name}});
    }
  }

  /// By the names inside the tree.
  std::vector<Tensor> with_roles() const {
    std::vector<Tensor> out;
    std::vector<Path> paths;
    for (const Named& one : tensors_) {
      out.push_back(map_.tensors[one.row]);
      out.back().name = dotted(one.path);
      paths.push_back(one.path);
    }
    assign_roles(out, paths, leaves_.optimizers);
    // As of Lightning's own files: tensors of callbacks and hooks are no weights.
    if (member(root_.get(), kLightning) == nullptr) return out;
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i].role == Role::param && paths[i].front() != PathPart("state_dict")) out[i].role = Role::slot;
    }
    return out;
  }

  /// names  of tensors, ties and objects
  void name(std::vector<Tensor>& tensors, const std::vector<std::string>& names) {
    std::unordered_map<std::string, std::string_view> by_path;
    for (std::size_t i = 0; i < tensors_.size() + ties_.size(); ++i) {
      const Path& path = i < tensors_.size() ? tensors_[i].path : ties_[i - tensors_.size()].path;
      by_path.emplace(dotted(path), names[i]);
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (const auto found = by_path.find(tensors[i].parameter); found != by_path.end())
        tensors[i].parameter = found->second;
      tensors[i].name = names[i];
      if (i < in_tree_) tensors[i].path = kept_path(names[i], tensors_[i].path);
      new_names_.emplace(tensors_[i].row, names[i]);
    }
    map_.aliases.clear();
    for (std::size_t i = 0; i < ties_.size(); ++i) {
      const std::string& own = names[tensors_.size() + i];
      map_.aliases.push_back(
          {.name = own, .target = new_names_.at(ties_[i].row), .path = kept_path(own, ties_[i].path)});
    }
    for (std::size_t i = 0; i < objects_.size(); ++i) objects_[i].name = names[tensors_.size() + ties_.size() + i];
    std::ranges::move(objects_, std::back_inserter(map_.objects));
  }

  static Path kept_path(const std::string& name, const Path& path) { return splits_to(name, path) ? Path{} : path; }

  /// Of a tree all of whose tensors are there.
  void keep_whole() {
    if (!absent_.empty()) {
      map_.findings.push_back({.text = "missing tensors of the saved tree: " + name_list(absent_)});
      return;
    }
    std::unordered_map<std::string, std::string> names;
    for (const auto& [old, row] : rows_) {
      if (const auto found = new_names_.find(row); found != new_names_.end()) names.emplace(old, found->second);
    }
    map_.whole = [root = root_, names = std::move(names)]() -> Result<WholeObject> {
      return WholeObject{.value = renamed(root, names)};
    };
  }

  Map& map_;
  const std::uint32_t blob_;
  const ValuePtr root_;
  Leaves leaves_;
  std::unordered_map<std::string, std::uint32_t> rows_{};  ///< of the map of before, by all names
  std::vector<Named> tensors_{};
  std::size_t in_tree_ = 0;  ///< of tensors_
  std::vector<Named> ties_{};
  std::vector<NamedObject> objects_{};
  std::vector<std::string> absent_{};
  std::unordered_map<std::uint32_t, std::string> new_names_{};  ///< by row
};

}  // namespace

Result<> show_saved_tree(Io& io, const std::string& root, std::uint64_t limit, Map& map) {
  const auto blob = std::ranges::find(map.tensors, kPythonTree, &Tensor::name);
  const bool is_converted = !map.origin.empty() && map.origin != map.format;  // a blob of that name is the source's own
  if (blob == map.tensors.end() || blob->role != Role::blob || is_converted) return {};
  const auto number = static_cast<std::uint32_t>(blob - map.tensors.begin());
  const std::uint64_t bytes = volume(blob->shape);
  const std::string name = join_path(root, kPythonTree);
  const std::uint64_t parsed = memory_for(bytes, MetadataCost::python_tree);
  if (parsed > limit) return fail(over_metadata_limit(name, bytes, parsed, limit));
  CKPT_TRY(const std::string text, read_blob(io, root, map, number));
  const auto show = [&]() -> Result<> {
    CKPT_TRY(ValuePtr tree, parse_python_tree(text));
    if (const std::uint64_t needed = parsed + Leaves::memory_for(*tree); needed > limit)
      return fail(over_metadata_limit(name, bytes, needed, limit));
    return SavedTree(map, number, std::move(tree)).show();
  };
  auto shown = show();
  if (shown) return {};
  if (shown.error().code != Errc::corrupt) return fail(with_file(std::move(shown).error(), root));
  map.findings.push_back({.severity = Severity::warning,
                          .text = fmt::format("{} is not a tree of ckpt.Run ({}): names and roles are shown as stored",
                                              kPythonTree, shown.error().message),
                          .file = root});
  return {};
}

}  // namespace ckpt::universal
