#include "convert/megatron/zarr.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/join_maps.hpp"
#include "convert/megatron/stored_objects.hpp"
#include "convert/optimizer_roles.hpp"
#include "convert/torch_archive.hpp"
#include "convert/zarr_arrays.hpp"
#include "format/hash.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::string_view kObject = "shard_";
constexpr std::string_view kObjectSuffix = ".pt";
// Locks of ranks that wrote parts of one array: empty files with the names of its chunks, and of .zarray.
constexpr std::string_view kLocks = ".sync";

/// Objects that ranks saved in files of their own.
class ObjectFiles {
 public:
  ObjectFiles(Io& io, std::string root) : io_(io), root_(std::move(root)) {}

  Result<> add(const std::string& folder, std::string_view file) {
    const std::string relative = join_path(folder, file);
    const std::string path = join_path(root_, relative);
    CKPT_TRY(const FileHandle handle, io_.open(path, {}));
    auto added = add_opened(handle, relative, path);
    auto closed = io_.close(handle);
    CKPT_CHECK(std::move(added));
    return closed;
  }

  Map finish(Hasher& hasher) {
    auto table = std::make_shared<ChunkTable>(map_.tensors.size());
    for (std::size_t i = 0; i < places_.size(); ++i)
      table->add(i, map_.tensors[i].shape, Chunk{.box = Box::whole(map_.tensors[i].shape)},
                 {.file = static_cast<std::uint32_t>(i), .offset = places_[i].begin, .dtype = Dtype::u8});
    table->seal();
    map_.index = std::move(table);
    hasher.update(hasher_.digest().hex());
    return std::move(map_);
  }

 private:
  Result<> add_opened(FileHandle handle, const std::string& relative, const std::string& path) {
    CKPT_TRY(const FileInfo info, io_.info(handle));
    CKPT_TRY(const TorchArchive archive, open_torch_archive(io_, handle, path, {0, info.bytes}));
    hasher_.update(relative);
    hasher_.update(archive.metadata_hash.hex());
    const std::string key = relative.substr(0, relative.size() - kObjectSuffix.size());
    Extent place{0, info.bytes};
    std::string name = relative;
    if (archive.storages.empty()) {
      CKPT_TRY(ValuePtr value,
               torch::to_value(archive.graph, archive.graph.root(),
                               [](pickle::NodeId) -> std::optional<std::string> { return std::nullopt; }));
      if (!std::holds_alternative<Opaque>(value->v)) {
        add_objects({key}, value, map_);
        place = archive.pickle_bytes;
        name = key + "/data.pkl";
      }
    }
    map_.tensors.push_back({.name = name, .dtype = Dtype::u8, .shape = {place.size()}, .role = Role::blob});
    map_.files.push_back({relative, info.bytes, info.mtime_ns});
    places_.push_back(place);
    return {};
  }

  Io& io_;
  std::string root_;
  Map map_{};
  std::vector<Extent> places_{};
  Hasher hasher_{};
};

/// A folder whose `.zarray` was lost: of an array only it is known by that name.
Result<> check_array(const std::string& folder, const std::vector<DirEntry>& entries) {
  const bool has_chunk = std::ranges::any_of(entries, [](const DirEntry& entry) {
    return entry.kind == FileInfo::Kind::file && entry.name.find_first_not_of("0123456789.") == std::string::npos;
  });
  if (!has_chunk) return {};
  const std::string path = join_path(folder, zarr::kArrayFile);
  return fail(
      {.code = Errc::incomplete, .message = path + ": missing, but the array's chunks are there", .file = path});
}

/// Nothing lists the arrays of a checkpoint, but all weights have state in the same slots. Masters aside: weights in fp32
/// need none.
///
/// source  megatron/core/optimizer/distrib_optimizer.py: sharded_param_state_fs_model_space
Result<> check_slots(const std::string& root, const std::set<std::string>& folders) {
  constexpr std::string_view kState = "optimizer.state.";
  std::set<std::string> slots;
  std::map<std::string, std::pair<std::string, std::set<std::string>>> weights;  // what is before its state, its slots
  for (const std::string& folder : folders) {
    const std::size_t at = folder.find(kState);
    const std::size_t slot_begin = at + kState.size();
    const std::size_t slot_end = at == std::string::npos ? at : folder.find('.', slot_begin);
    if (slot_end == std::string::npos || folder.ends_with(kLocks)) continue;
    const std::string slot = folder.substr(slot_begin, slot_end - slot_begin);
    auto& [before, own] = weights[folder.substr(slot_end + 1)];
    before = folder.substr(0, slot_begin);
    if (slot == "param" || slot == "fp32_param") continue;
    own.insert(slot);
    slots.insert(slot);
  }
  const auto lost = [&](const std::string& folder) {
    const std::string path = join_path(root, folder);
    return fail({.code = Errc::incomplete,
                 .message = path + ": the array's folder is missing",
                 .file = path,
                 .tensor = folder,
                 .hint = "copy it from the node that wrote it, or use an earlier checkpoint"});
  };
  for (const auto& [weight, state] : weights) {
    if (!folders.contains(weight)) return lost(weight);
    for (const std::string& slot : slots)
      if (!state.second.contains(slot)) return lost(fmt::format("{}{}.{}", state.first, slot, weight));
  }
  return {};
}

}  // namespace

Result<Map> open_zarr(Io& io, const std::string& root) {
  ZarrArrays arrays(io, root);
  ObjectFiles objects(io, root);
  CKPT_TRY(std::vector<DirEntry> folders, io.list(root));
  std::ranges::sort(folders, {}, &DirEntry::name);
  std::set<std::string> names;  // of arrays
  for (const DirEntry& folder : folders) {
    if (folder.kind != FileInfo::Kind::directory || folder.name.ends_with(kLocks)) continue;
    CKPT_TRY(std::vector<DirEntry> entries, io.list(join_path(root, folder.name)));
    std::ranges::sort(entries, {}, &DirEntry::name);
    bool has_array = false;
    for (const DirEntry& entry : entries) {
      if (entry.name == zarr::kArrayFile) {
        has_array = true;
        names.insert(folder.name);
        CKPT_CHECK(arrays.add(folder.name, {.name = folder.name}));
      } else if (entry.name.starts_with(kObject) && entry.name.ends_with(kObjectSuffix)) {
        CKPT_CHECK(objects.add(folder.name, entry.name));
      }
    }
    if (!has_array) CKPT_CHECK(check_array(join_path(root, folder.name), entries));
  }
  CKPT_CHECK(check_slots(root, names));
  Hasher hasher;
  Map map;
  arrays.finish(map, hasher);
  map.variant = fmt::format("{} arrays", map.tensors.size());
  CKPT_CHECK(join_maps(map, objects.finish(hasher), {}, root));
  assign_roles(map.tensors, std::vector<Path>(map.tensors.size()));
  map.metadata_hash = hasher.digest().hex();
  return map;
}

}  // namespace ckpt::megatron
