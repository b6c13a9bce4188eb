#pragma once

#include <string>
#include <vector>

#include "convert/safetensors/shard.hpp"
#include "engine/io/io.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"

namespace ckpt::safetensors {

/// Joins the `__metadata__` of all files into the map: user text (the first of several values counts, the others are
/// noted), step, id where all files agree, and tied names, which safetensors and transformers note as dropped -> kept.
void take_metadata(const std::vector<Shard>& shards, Map& map);

/// Reads the files that transformers writes next to the tensors: config.json (framework and version) and
/// trainer_state.json (the step). Neither decides what the tensors are, so one that is not JSON is noted and skipped.
///
/// errors    as the Io
/// metadata  receives the bytes of both
Result<> read_surroundings(Io& io, const std::string& root, const std::vector<DirEntry>& entries, Hasher& metadata,
                           Map& map);

}  // namespace ckpt::safetensors
