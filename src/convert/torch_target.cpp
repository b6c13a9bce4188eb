#include "convert/torch_target.hpp"

#include <algorithm>
#include <utility>

#include "format/checked.hpp"
#include "format/torch/archive_layout.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kArchiveAlignment = 64;  // so that alignment in the archive is alignment in the file

}  // namespace

Extent append_torch_object(TargetFile& file, TorchObject object) {
  torch::ArchiveRequest request{
      .root = std::move(object.root), .pickle = std::move(object.pickle), .id = std::move(object.id)};
  request.storage_bytes.reserve(object.storages.size());
  for (const TorchStorage& storage : object.storages) request.storage_bytes.push_back(storage.bytes);
  torch::ArchiveLayout layout = lay_out_archive(request);

  const std::uint64_t base = round_up(file.bytes, kArchiveAlignment);
  std::size_t count = file.placements.size() + layout.pieces.size();
  for (const TorchStorage& storage : object.storages) count += storage.placements.size();
  // Not to the exact size each time: a DCP file holds tens of thousands of archives.
  if (count > file.placements.capacity()) file.placements.reserve(std::max(count, 2 * file.placements.capacity()));
  auto piece = layout.pieces.begin();
  const auto add_pieces_before = [&](std::uint64_t offset) {
    for (; piece != layout.pieces.end() && piece->offset < offset; ++piece) {
      file.placements.push_back({.offset = base + piece->offset,
                                 .bytes = piece->bytes.size(),
                                 .from = Placement::From::literal,
                                 .literal = std::move(piece->bytes)});
    }
  };
  for (std::size_t k = 0; k < object.storages.size(); ++k) {
    const std::uint64_t begin = layout.storage_offsets[k];
    add_pieces_before(begin);
    for (Placement& placement : object.storages[k].placements) {
      if (placement.bytes == 0) continue;
      placement.offset += base + begin;
      file.placements.push_back(std::move(placement));
    }
  }
  add_pieces_before(layout.bytes);
  for (const auto& late : layout.late)
    file.late.push_back({base + late.offset, {base + late.covers.begin, base + late.covers.end}});
  file.bytes = base + layout.bytes;
  return {base, file.bytes};
}

TargetFile torch_object_file(std::string path, TorchObject object) {
  TargetFile file{.path = std::move(path)};
  append_torch_object(file, std::move(object));
  return file;
}

}  // namespace ckpt
