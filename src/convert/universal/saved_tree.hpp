#pragma once

#include <cstdint>
#include <string>

#include "engine/io/io.hpp"
#include "format/model/model.hpp"

namespace ckpt::universal {

/// A checkpoint of the Python package's `Run.save` as the tree that was saved, and as torch.save would keep it: tensors have
/// the names of their paths ("model.0.weight" instead of "model.0%2Eweight"), the tree's order, and the roles that optimizer
/// states give them; plain values are objects; `Map::whole` is the tree; the blob that holds the tree is left out. A map without
/// that blob stays as it is, and so does one with another blob of that name, which is a warning.
///
/// limit   bytes of memory that the tree may take
/// errors  checksum, newer: of the blob; memory; those of Io
Result<> show_saved_tree(Io& io, const std::string& root, std::uint64_t limit, Map& map);

}  // namespace ckpt::universal
