#include "writers/row_text.hpp"

#include <utility>

#include "engine/comm/comm_text.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kMostDimensions = 64;

void append_shape(std::string& text, const Shape& shape) {
  append_number(text, shape.size());
  for (const std::uint64_t size : shape) append_number(text, size);
}

Shape take_shape(TextCursor& cursor) {
  const std::uint64_t dimensions = cursor.number();
  cursor.bad = cursor.bad || dimensions > kMostDimensions;
  Shape sizes;
  for (std::uint64_t d = 0; d < dimensions && !cursor.bad; ++d) sizes.push_back(cursor.number());
  return sizes;
}

Tensor take_tensor(TextCursor& cursor) {
  Tensor tensor{.name = cursor.field()};
  const std::uint64_t dtype = cursor.number();
  const std::uint64_t role = cursor.number();
  cursor.bad = cursor.bad || dtype >= kDtypeCount || role > static_cast<std::uint64_t>(Role::blob);
  tensor.dtype = static_cast<Dtype>(dtype);
  tensor.role = static_cast<Role>(role);
  tensor.shape = take_shape(cursor);
  tensor.parameter = cursor.field();
  tensor.slot = cursor.field();
  tensor.true_dtype = cursor.field();
  return tensor;
}

tl::unexpected<Error> unknown_text() {
  return fail(Errc::internal, "another rank sent an unreadable description of its tensors");
}

}  // namespace

void append_tensor(std::string& text, const Tensor& tensor) {
  append_field(text, tensor.name);
  append_number(text, static_cast<std::uint64_t>(tensor.dtype));
  append_number(text, static_cast<std::uint64_t>(tensor.role));
  append_shape(text, tensor.shape);
  append_field(text, tensor.parameter);
  append_field(text, tensor.slot);
  append_field(text, tensor.true_dtype);
}

Result<std::vector<Tensor>> tensors_from_text(std::string_view text) {
  std::vector<Tensor> tensors;
  TextCursor cursor{text};
  while (!cursor.rest.empty() && !cursor.bad) tensors.push_back(take_tensor(cursor));
  if (cursor.bad) return unknown_text();
  return tensors;
}

void append_part(std::string& text, const Tensor& tensor, const Chunk& chunk) {
  append_tensor(text, tensor);
  append_shape(text, chunk.box.offset);
  append_shape(text, chunk.box.size);
  append_number(text, chunk.flat ? 1 : 0);
  append_number(text, chunk.flat ? chunk.flat->begin : 0);
  append_number(text, chunk.flat ? chunk.flat->end : 0);
}

Result<std::vector<DescribedPart>> parts_from_text(std::string_view text) {
  std::vector<DescribedPart> parts;
  TextCursor cursor{text};
  while (!cursor.rest.empty() && !cursor.bad) {
    DescribedPart part{.tensor = take_tensor(cursor)};
    part.chunk.box = {.offset = take_shape(cursor), .size = take_shape(cursor)};
    const bool flat = cursor.number() != 0;
    const Extent range{.begin = cursor.number(), .end = cursor.number()};
    if (flat) part.chunk.flat = range;
    parts.push_back(std::move(part));
  }
  if (cursor.bad) return unknown_text();
  return parts;
}

}  // namespace ckpt
