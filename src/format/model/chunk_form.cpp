#include "format/model/chunk_form.hpp"

#include <utility>
#include <vector>

namespace ckpt {
namespace {

/// How the dimensions of a packed tensor are joined: dimension `joined` and those inside of it become one of bytes.
struct ByteRows {
  std::size_t joined = 0;
  std::uint64_t elements = 1;  ///< of one step along dimension `joined`
};

/// The innermost dimension whose rows are whole bytes; if there is none the outermost, whose only row is the tensor.
ByteRows byte_rows(const Tensor& tensor) {
  const std::uint64_t bits = dtype_bits(tensor.dtype);
  ByteRows rows{.joined = tensor.shape.size()};
  std::uint64_t inner = 1;
  while (rows.joined > 0) {
    --rows.joined;
    rows.elements = inner;
    inner *= tensor.shape[rows.joined];
    if (inner % 8 * bits % 8 == 0) break;
  }
  return rows;
}

}  // namespace

Chunk tightest(Chunk chunk) {
  if (!chunk.flat || chunk.flat->begin >= chunk.flat->end) return chunk;
  std::uint64_t inner = volume(chunk.box.size);
  std::uint64_t begin = chunk.flat->begin;
  std::uint64_t last = chunk.flat->end - 1;
  for (std::size_t d = 0; d < chunk.box.size.size(); ++d) {
    inner /= chunk.box.size[d];
    const std::uint64_t row = begin / inner;
    chunk.box.offset[d] += row;
    chunk.box.size[d] = last / inner - row + 1;
    begin -= row * inner;
    last -= row * inner;
    if (chunk.box.size[d] != 1) break;
  }
  chunk.flat = Extent{begin, last + 1};
  if (begin == 0 && chunk.flat->end == volume(chunk.box.size)) chunk.flat.reset();
  return chunk;
}

Chunk as_run(Chunk chunk, const Shape& shape) {
  chunk = tightest(std::move(chunk));
  std::size_t d = shape.size();
  while (d > 0 && chunk.box.size[d - 1] == shape[d - 1]) --d;
  if (d == 0) return chunk;  // the whole tensor, or a piece of it
  for (std::size_t outer = 0; outer + 1 < d; ++outer) {
    if (chunk.box.size[outer] != 1) return chunk;
  }
  const Box whole = Box::whole(shape);
  const std::uint64_t begin = linear_index(whole, chunk.box.offset);
  const Extent held = chunk.flat.value_or(Extent{0, volume(chunk.box.size)});
  return {.box = whole, .flat = Extent{begin + held.begin, begin + held.end}};
}

std::uint64_t first_element(const Chunk& chunk, const Shape& shape) {
  Shape point = chunk.box.offset;
  std::uint64_t rest = chunk.flat ? chunk.flat->begin : 0;
  for (std::size_t d = point.size(); d-- > 0 && rest != 0;) {
    point[d] += rest % chunk.box.size[d];
    rest /= chunk.box.size[d];
  }
  return linear_index(Box::whole(shape), point);
}

Shape byte_shape(const Tensor& tensor) {
  const ByteRows rows = byte_rows(tensor);
  Shape out(tensor.shape.begin(), tensor.shape.begin() + static_cast<std::ptrdiff_t>(rows.joined));
  if (tensor.shape.empty()) return out;
  out.push_back(tensor.shape[rows.joined] * rows.elements * dtype_bits(tensor.dtype) / 8);
  return out;
}

std::optional<Chunk> in_bytes(const Chunk& chunk, const Tensor& tensor) {
  const ByteRows rows = byte_rows(tensor);
  if (tensor.shape.empty()) return chunk;
  bool whole = true;
  const auto bytes = [&](std::uint64_t elements) {
    const std::uint64_t bits = elements * dtype_bits(tensor.dtype);
    whole = whole && bits % 8 == 0;
    return bits / 8;
  };
  for (std::size_t d = rows.joined + 1; d < tensor.shape.size(); ++d)
    whole = whole && chunk.box.size[d] == tensor.shape[d];
  const auto cut = static_cast<std::ptrdiff_t>(rows.joined);
  Chunk out{.box = {{chunk.box.offset.begin(), chunk.box.offset.begin() + cut},
                    {chunk.box.size.begin(), chunk.box.size.begin() + cut}}};
  out.box.offset.push_back(bytes(chunk.box.offset[rows.joined] * rows.elements));
  out.box.size.push_back(bytes(chunk.box.size[rows.joined] * rows.elements));
  if (chunk.flat) out.flat = Extent{bytes(chunk.flat->begin), bytes(chunk.flat->end)};
  if (!whole) return std::nullopt;
  return out;
}

}  // namespace ckpt
