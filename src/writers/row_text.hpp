#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt {

/// How ranks of one program describe tensors to each other: name, dtype, shape, role, parameter, slot, true dtype.
void append_tensor(std::string& text, const Tensor& tensor);
/// All tensors of a text that append_tensor made.
/// errors  internal: another text
Result<std::vector<Tensor>> tensors_from_text(std::string_view text);

/// A tensor as one rank describes it, and the part of it on that rank.
struct DescribedPart {
  Tensor tensor{};
  Chunk chunk{};
};
void append_part(std::string& text, const Tensor& tensor, const Chunk& chunk);
/// All parts of a text that append_part made.
/// errors  internal: another text
Result<std::vector<DescribedPart>> parts_from_text(std::string_view text);

}  // namespace ckpt
