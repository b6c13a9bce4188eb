#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "format/model/box.hpp"
#include "format/model/value.hpp"
#include "format/result.hpp"

namespace ckpt::dcp {

/// The rank in the name of a data file, `__R_I.distcp`, or nothing.
std::optional<std::uint64_t> rank_of(std::string_view file_name);

/// The pickles of a .distcp file's items. Each item is a torch.save archive of one object.

/// A dense, row-major tensor over storage 0, which it fills.
///
/// dtype     torch's name without "torch."
/// shape     of the chunk, as torch counts elements
/// bytes     of the chunk
std::string tensor_pickle(std::string_view dtype, const Shape& shape, std::uint64_t bytes);

/// A plain Python object: None, bools, numbers, text, bytes and containers of them.
/// errors    unsupported: it holds tensors or objects of other classes
Result<std::string> object_pickle(const Value& value);

}  // namespace ckpt::dcp
