#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "convert/write_request.hpp"
#include "format/universal/manifest.hpp"

/// Rows of a virtual checkpoint, from the map of its source.
namespace ckpt::universal {

/// Gives a row the chunks of a tensor of the source. Locator::file stays an index into Map::files.
/// errors  unsupported, with the tensor: its bytes are compressed, decoded by the reader, packed or cast
Result<> take_chunks(const Map& source, std::uint32_t tensor, TensorRow& row);

/// Replaces the file numbers of all chunks by those of the references that it returns.
Result<std::vector<ReferencedSource>> number_files(const Map& source,
                                                   const std::function<Result<Reference>(std::uint32_t)>& refer,
                                                   std::span<TensorRow> rows);

}  // namespace ckpt::universal
