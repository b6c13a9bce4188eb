#include "support/random_layout.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <utility>

#include "format/checked.hpp"
#include "format/model/cast.hpp"

namespace ckpt::test {
namespace {

/// The bytes of a chunk in their stored order, and the locator's strides.
std::string stored_bytes(const Tensor& tensor, const std::string& bytes, const Chunk& chunk,
                         const std::vector<std::int64_t>& strides) {
  const std::size_t unit = unit_bytes(tensor.dtype);
  const Box whole = Box::whole(tensor.shape);
  const std::uint64_t elements = volume(chunk.box.size);
  std::string out;
  std::uint64_t span = elements;
  if (!strides.empty()) {
    span = 1;
    for (std::size_t d = 0; d < strides.size(); ++d) {
      span += (chunk.box.size[d] - 1) * static_cast<std::uint64_t>(strides[d]);
    }
  }
  out.assign(span * unit, '\xee');
  const std::uint64_t run = strides.empty() && !chunk.box.size.empty() ? chunk.box.size.back() : 1;  // adjacent in both
  Shape point = chunk.box.offset;
  for (std::uint64_t i = 0; i < elements; i += run) {
    std::uint64_t at = i;
    if (!strides.empty()) {
      at = 0;
      for (std::size_t d = 0; d < strides.size(); ++d) {
        at += (point[d] - chunk.box.offset[d]) * static_cast<std::uint64_t>(strides[d]);
      }
    }
    std::memcpy(&out[at * unit], &bytes[linear_index(whole, point) * unit], run * unit);
    for (std::size_t d = point.size() - (run > 1 ? 1 : 0); d-- > 0;) {
      if (++point[d] < chunk.box.offset[d] + chunk.box.size[d]) break;
      point[d] = chunk.box.offset[d];
    }
  }
  if (chunk.flat) out = out.substr(chunk.flat->begin * unit, chunk.flat->size() * unit);
  return out;
}

/// Cut points of [0, n): 0, some between, n.
std::vector<std::uint64_t> cuts(Dice& dice, std::uint64_t n, std::uint64_t most) {
  std::vector<std::uint64_t> out{0, n};
  for (std::uint64_t i = dice.roll(0, most); i > 0; --i) out.push_back(dice.roll(0, n));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<Chunk> flat_cut(Dice& dice, const Box& box) {
  std::vector<Chunk> out;
  const auto points = cuts(dice, volume(box.size), 4);
  for (std::size_t i = 0; i + 1 < points.size(); ++i) out.push_back({box, Extent{points[i], points[i + 1]}});
  return out;
}

/// Runs of whole bytes of a tensor whose elements share bytes.
std::vector<Chunk> packed_cut(Dice& dice, const Tensor& tensor) {
  const std::uint64_t bits = dtype_bits(tensor.dtype);
  const std::uint64_t group = bits == 4 ? 2 : 4;  // elements in whole bytes
  const Box whole = Box::whole(tensor.shape);
  std::vector<Chunk> out;
  const auto points = cuts(dice, volume(tensor.shape) / group, 4);
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    out.push_back({whole, Extent{points[i] * group, points[i + 1] * group}});
  }
  return out;
}

void fill(Dice& dice, std::string& bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t random = dice.roll(0, std::numeric_limits<std::uint64_t>::max());
    std::memcpy(&bytes[at], &random, std::min(sizeof random, bytes.size() - at));
  }
}

/// A float without its NaNs, so that widening and narrowing it changes no bit.
void drop_nans(Dtype dtype, std::string& bytes) {
  if (!is_castable(dtype) && dtype != Dtype::c64) return;
  const std::size_t unit = dtype == Dtype::c64 ? 4 : unit_bytes(dtype);
  for (std::size_t at = unit - 1; at < bytes.size(); at += unit) bytes[at] = static_cast<char>(bytes[at] & 0xbf);
}

std::string as_stored(const std::string& bytes, Dtype dtype, const Locator& where) {
  std::string out = bytes;
  const std::size_t count = bytes.size() / unit_bytes(dtype);
  if (where.dtype != dtype) {
    out.resize(count * unit_bytes(where.dtype));
    CastCounts counts;
    cast(dtype, reinterpret_cast<const std::byte*>(bytes.data()), where.dtype, reinterpret_cast<std::byte*>(out.data()),
         count, counts);
  }
  if (where.big_endian) {
    const unsigned halves = where.dtype == Dtype::c64 ? 2 : 1;
    swap_bytes(reinterpret_cast<std::byte*>(out.data()), count * halves, unit_bytes(where.dtype) / halves);
  }
  return out;
}

/// Strides of a permuted, padded array.
std::vector<std::int64_t> random_strides(Dice& dice, const Shape& size) {
  std::vector<std::size_t> order(size.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[dice.roll(0, i - 1)]);
  std::vector<std::int64_t> strides(size.size());
  std::uint64_t stride = 1;
  for (const std::size_t d : order) {
    strides[d] = static_cast<std::int64_t>(stride);
    stride = stride * size[d] + dice.roll(0, 2);
  }
  return strides;
}

}  // namespace

State random_state(Dice& dice) {
  constexpr Dtype kDtypes[] = {Dtype::u8,  Dtype::bf16, Dtype::f16, Dtype::f32,
                               Dtype::i64, Dtype::c64,  Dtype::f4,  Dtype::f6_e2m3};
  State state;
  const std::uint64_t count = dice.roll(1, 6);
  for (std::uint64_t i = 0; i < count; ++i) {
    Tensor tensor{.name = "t" + std::to_string(i), .dtype = kDtypes[dice.roll(0, std::size(kDtypes) - 1)]};
    const std::uint64_t rank = dice.roll(0, 4);
    for (std::uint64_t d = 0; d < rank; ++d) tensor.shape.push_back(dice.one_in(12) ? 0 : dice.roll(1, 9));
    if (dice.one_in(4)) tensor.shape = {dice.roll(1, 3), dice.roll(1, 700), dice.roll(1, 700)};
    if (is_packed(tensor.dtype)) tensor.shape.push_back(4 * dice.roll(1, 5));
    std::string bytes(tensor_bytes(tensor.dtype, tensor.shape).value(), '\0');
    fill(dice, bytes);
    drop_nans(tensor.dtype, bytes);
    state.tensors.push_back(std::move(tensor));
    state.bytes.push_back(std::move(bytes));
  }
  return state;
}

std::vector<Chunk> random_cut(Dice& dice, const Shape& shape) {
  if (volume(shape) == 0) return {};
  const Box whole = Box::whole(shape);
  if (shape.empty()) return {{whole, std::nullopt}};
  if (dice.one_in(3)) return flat_cut(dice, whole);
  std::vector<Box> boxes{Box{{}, {}}};
  for (const std::uint64_t size : shape) {
    const auto points = cuts(dice, size, 2);
    std::vector<Box> grown;
    for (const Box& box : boxes) {
      for (std::size_t i = 0; i + 1 < points.size(); ++i) {
        Box next = box;
        next.offset.push_back(points[i]);
        next.size.push_back(points[i + 1] - points[i]);
        grown.push_back(std::move(next));
      }
    }
    boxes = std::move(grown);
  }
  std::vector<Chunk> out;
  for (Box& box : boxes) {
    if (dice.one_in(4)) {
      const auto parts = flat_cut(dice, box);
      out.insert(out.end(), parts.begin(), parts.end());
    } else {
      out.push_back({std::move(box), std::nullopt});
    }
  }
  return out;
}

Map write_random_layout(Dice& dice, const State& state, const std::string& directory, std::size_t file_count) {
  Map map;
  map.tensors = state.tensors;
  std::vector<std::string> files(file_count);
  ChunkTable table(state.tensors.size());
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    const Tensor& tensor = state.tensors[i];
    const bool packed = is_packed(tensor.dtype);
    for (const Chunk& chunk : packed ? packed_cut(dice, tensor) : random_cut(dice, tensor.shape)) {
      for (std::uint64_t copy = dice.one_in(5) ? 2 : 1; copy > 0; --copy) {  // now and then a replica
        Locator where{.file = static_cast<std::uint32_t>(dice.roll(0, file_count - 1)), .dtype = tensor.dtype};
        const bool narrow = tensor.dtype == Dtype::bf16 || tensor.dtype == Dtype::f16;
        if (narrow && dice.one_in(4)) where.dtype = Dtype::f32;
        where.big_endian = unit_bytes(where.dtype) > 1 && dice.one_in(4);
        if (!chunk.flat && !chunk.box.size.empty() && dice.one_in(3)) {
          where.strides = random_strides(dice, chunk.box.size);
        }
        std::string& file = files[where.file];
        file.append(dice.roll(0, 9), '\xdd');  // unaligned
        where.offset = file.size();
        if (packed) {
          const std::uint64_t bits = dtype_bits(tensor.dtype);
          file += state.bytes[i].substr(chunk.flat->begin * bits / 8, chunk.flat->size() * bits / 8);
        } else {
          file += as_stored(stored_bytes(tensor, state.bytes[i], chunk, where.strides), tensor.dtype, where);
        }
        table.add(i, tensor.shape, chunk, where);
      }
    }
  }
  table.seal();
  map.index = std::make_shared<ChunkTable>(std::move(table));
  for (std::size_t f = 0; f < file_count; ++f) {
    const std::string name = "source" + std::to_string(f);
    std::ofstream(directory + "/" + name, std::ios::binary) << files[f];
    map.files.push_back({name, files[f].size(), 0});
  }
  return map;
}

std::string chunk_bytes(const State& state, std::uint32_t tensor, const std::optional<Chunk>& chunk, Dtype dtype) {
  const Tensor& of = state.tensors[tensor];
  if (is_packed(of.dtype)) return state.bytes[tensor];
  const Chunk part = chunk.value_or(Chunk{Box::whole(of.shape), std::nullopt});
  return as_stored(stored_bytes(of, state.bytes[tensor], part, {}), of.dtype, {.dtype = dtype});
}

TargetLayout random_target(Dice& dice, const std::vector<Tensor>& tensors, std::size_t file_count) {
  TargetLayout out;
  out.map.tensors = tensors;
  out.files.resize(file_count);
  for (std::size_t f = 0; f < file_count; ++f) out.files[f].path = "target" + std::to_string(f);
  ChunkTable table(tensors.size());
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    const std::vector<Chunk> whole{{Box::whole(tensors[i].shape), std::nullopt}};  // packed tensors are never cut
    for (const Chunk& chunk : is_packed(tensors[i].dtype) ? whole : random_cut(dice, tensors[i].shape)) {
      const auto f = static_cast<std::uint32_t>(dice.roll(0, file_count - 1));
      TargetFile& file = out.files[f];
      const std::uint64_t offset = round_up(file.bytes + dice.roll(0, 40), 8);
      const std::uint64_t bytes = chunk.volume() * dtype_bits(tensors[i].dtype) / 8;
      file.placements.push_back(
          {.offset = offset, .bytes = bytes, .tensor = i, .chunk = chunk, .dtype = tensors[i].dtype});
      file.bytes = offset + bytes;
      table.add(i, tensors[i].shape, chunk, {.file = f, .offset = offset, .dtype = tensors[i].dtype});
    }
  }
  table.seal();
  out.map.index = std::make_shared<ChunkTable>(std::move(table));
  for (const TargetFile& file : out.files) out.map.files.push_back({file.path, file.bytes, 0});
  return out;
}

TargetLayout whole_target(const std::vector<Tensor>& tensors) {
  TargetLayout out;
  out.map.tensors = tensors;
  TargetFile& file = out.files.emplace_back();
  file.path = "whole";
  ChunkTable table(tensors.size());
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = volume(tensors[i].shape) * dtype_bits(tensors[i].dtype) / 8;
    file.bytes = round_up(file.bytes, 8);
    if (bytes == 0) continue;
    file.placements.push_back({.offset = file.bytes, .bytes = bytes, .tensor = i, .dtype = tensors[i].dtype});
    table.add(i, tensors[i].shape, {Box::whole(tensors[i].shape), std::nullopt},
              {.file = 0, .offset = file.bytes, .dtype = tensors[i].dtype});
    file.bytes += bytes;
  }
  table.seal();
  out.map.index = std::make_shared<ChunkTable>(std::move(table));
  out.map.files.push_back({file.path, file.bytes, 0});
  return out;
}

}  // namespace ckpt::test
