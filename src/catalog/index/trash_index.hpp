#pragma once

#include <string>
#include <vector>

#include "catalog/index/database.hpp"
#include "catalog/trash/trash.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

/// The contents of the trash, from the index: reading 100,000 records takes seconds. For display; decisions read the
/// records (`list_trash`).
namespace ckpt::catalog {

/// Of a store, or of one run in it ("": all); equal to the result of `measure_trash`. Refreshes the index first:
/// records are written by rename, so an unchanged directory has unchanged records, and in a changed one only records
/// with a new stamp are read. If the index cannot be written, all are read.
/// errors  io
Result<InTrash> measure_indexed_trash(Io& io, const std::string& store, Database& database, const std::string& run,
                                      Time now);

/// How series of a run ("": of all runs) began, as the records of its deletions say: also of checkpoints purged since.
/// `began` is not set. Refreshed likewise.
/// errors  io
Result<std::vector<SeriesBirth>> indexed_births(Io& io, const std::string& store, Database& database,
                                                const std::string& run, Time now);

/// The next one reads every record again.
Result<> forget_trash(Database& database);

}  // namespace ckpt::catalog
