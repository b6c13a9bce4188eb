#include "convert/megatron/zarr.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
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

}  // namespace

Result<Map> open_zarr(Io& io, const std::string& root) {
  ZarrArrays arrays(io, root);
  ObjectFiles objects(io, root);
  CKPT_TRY(std::vector<DirEntry> folders, io.list(root));
  std::ranges::sort(folders, {}, &DirEntry::name);
  for (const DirEntry& folder : folders) {
    if (folder.kind != FileInfo::Kind::directory || folder.name.ends_with(kLocks)) continue;
    CKPT_TRY(std::vector<DirEntry> entries, io.list(join_path(root, folder.name)));
    std::ranges::sort(entries, {}, &DirEntry::name);
    for (const DirEntry& entry : entries) {
      if (entry.name == zarr::kArrayFile)
        CKPT_CHECK(arrays.add(folder.name, {.name = folder.name}));
      else if (entry.name.starts_with(kObject) && entry.name.ends_with(kObjectSuffix))
        CKPT_CHECK(objects.add(folder.name, entry.name));
    }
  }
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
