#pragma once

#include <string>
#include <vector>

#include "catalog/index/database.hpp"
#include "catalog/index/entry.hpp"
#include "engine/io.hpp"
#include "format/result.hpp"

namespace ckpt::catalog {

/// Says of checkpoints which symbolic links in the store lead to them, or into them: a link beside checkpoints
/// (`latest -> step-...`) names one, as a tracker does; one among another tool's data files makes its checkpoint refer
/// to that one. Looked up on the disk, as far as the index tells where links may be.
/// errors  of the index
Result<> note_links(Io& io, const std::string& store, Database& database, std::vector<Entry>& entries);

}  // namespace ckpt::catalog
