#pragma once

#include <string>

#include "catalog/index/database.hpp"
#include "catalog/trash/trash.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

/// What waits in the trash, told by the index: to read 100,000 records takes seconds. For those who show it; who
/// decides about what is there reads the records (`list_trash`).
namespace ckpt::catalog {

/// Of a store, or of one run in it ("" = all); equal to what `measure_trash` finds. Brings the index up to what the
/// trash holds first: every record is put in place by a rename, so a directory that is what it was holds the same ones,
/// and of one that is not those are read whose stamp is another. Where the index cannot be written all are read.
/// errors  io
Result<InTrash> measure_indexed_trash(Io& io, const std::string& store, Database& database, const std::string& run,
                                      Time now);

/// The next one reads every record again.
Result<> forget_trash(Database& database);

}  // namespace ckpt::catalog
