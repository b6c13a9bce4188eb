#include "convert/zarr_arrays.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/io/stat_if_present.hpp"
#include "format/text/error_context.hpp"

namespace ckpt {
namespace {

/// Distances of neighbours in a chunk's file, in elements.
std::vector<std::int64_t> strides_of(const zarr::Array& array) {
  if (!array.is_column_major) return row_major_strides(array.chunk);
  std::vector<std::int64_t> out;
  std::int64_t stride = 1;
  for (const std::uint64_t size : array.chunk) {
    out.push_back(stride);
    stride *= static_cast<std::int64_t>(size);
  }
  return out;
}

/// The part of the array that a chunk holds: less than the chunk at the array's end.
Box box_of(const zarr::Array& array, const Shape& at) {
  Box out{.offset = at, .size = array.chunk};
  for (std::size_t d = 0; d < at.size(); ++d) {
    out.offset[d] *= array.chunk[d];
    out.size[d] = std::min(out.size[d], array.shape[d] - out.offset[d]);
  }
  return out;
}

/// The next chunk of an array; false after the last one.
bool next_chunk(const zarr::Array& array, Shape& at) {
  for (std::size_t d = at.size(); d-- > 0;) {
    if (++at[d] <= (array.shape[d] - 1) / array.chunk[d]) return true;
    at[d] = 0;
  }
  return false;
}

}  // namespace

Result<> ZarrArrays::add_chunk(const zarr::Array& array, const std::string& folder, const Shape& at) {
  const std::string relative = join_path(folder, zarr::chunk_name(array, at));
  const std::string path = join_path(root_, relative);
  CKPT_TRY(const auto info, stat_if_present(io_, path));
  if (!info || info->kind != FileInfo::Kind::file)
    return fail({.code = Errc::incomplete,
                 .message = path + ": a chunk of the array is missing",
                 .file = path,
                 .tensor = tensors_.back().name,
                 .hint = "copy it from the node that wrote it, or use an earlier checkpoint"});
  if (info->bytes != array.chunk_bytes)
    return fail({.code = Errc::corrupt,
                 .message = fmt::format("{}: the file has {} bytes, a chunk of the array {}", path, info->bytes,
                                        array.chunk_bytes),
                 .file = path,
                 .tensor = tensors_.back().name,
                 .hint = "copy it again from the node that wrote it, or use an earlier checkpoint"});
  Placed placed{.tensor = tensors_.size() - 1, .box = box_of(array, at)};
  placed.where.file = static_cast<std::uint32_t>(files_.size());
  placed.where.dtype = array.dtype;
  placed.where.big_endian = array.big_endian;
  if (placed.box.size != array.chunk || array.is_column_major) placed.where.strides = strides_of(array);
  if (array.is_complex128) {
    placed.box.offset.push_back(0);
    placed.box.size.push_back(2);
    for (std::int64_t& stride : placed.where.strides) stride *= 2;
    if (!placed.where.strides.empty()) placed.where.strides.push_back(1);
  }
  files_.push_back({relative, info->bytes, info->mtime_ns});
  chunks_.push_back(std::move(placed));
  return {};
}

namespace {

constexpr std::uint64_t kMostInFolders = std::uint64_t{1} << 16;

}  // namespace

Result<> ZarrArrays::add(const std::string& folder, Tensor tensor) {
  const std::string path = join_path(join_path(root_, folder), zarr::kArrayFile);
  CKPT_TRY(const std::string text, read_small_file(io_, path, zarr::kMostArrayFileBytes));
  hasher_.update(folder);
  hasher_.update(text);
  auto array = zarr::parse_array(text);
  if (!array) return fail(with_file(with_context(std::move(array).error(), join_path(root_, folder)), path));
  tensor.dtype = array->dtype;
  tensor.shape = array->shape;
  if (array->is_complex128) {
    tensor.shape.push_back(2);
    tensor.true_dtype = "complex128";
  }
  CKPT_CHECK(tensor_bytes(tensor.dtype, tensor.shape));
  tensors_.push_back(std::move(tensor));
  if (std::ranges::find(array->shape, 0U) != array->shape.end()) return {};
  // Every round needs a file that is there, so a shape cannot make it long; but folders may be links to each other.
  std::uint64_t chunks = 1;
  for (std::size_t d = 0; d < array->shape.size() && chunks <= kMostInFolders; ++d)
    chunks *= std::min((array->shape[d] - 1) / array->chunk[d] + 1, kMostInFolders + 1);
  if (array->separator == '/' && chunks > kMostInFolders) {
    return fail({.code = Errc::refused,
                 .message = fmt::format("{}: more than {} chunks in nested folders", path, kMostInFolders),
                 .file = path});
  }
  Shape at(array->shape.size(), 0);
  do {
    CKPT_CHECK(add_chunk(*array, folder, at));
  } while (next_chunk(*array, at));
  return {};
}

void ZarrArrays::finish(Map& map, Hasher& hasher) {
  auto table = std::make_shared<ChunkTable>(tensors_.size());
  for (Placed& placed : chunks_)
    table->add(placed.tensor, tensors_[placed.tensor].shape, Chunk{.box = std::move(placed.box)},
               std::move(placed.where));
  table->seal();
  map.tensors = std::move(tensors_);
  map.files = std::move(files_);
  map.index = std::move(table);
  hasher.update(hasher_.digest().hex());
}

}  // namespace ckpt
