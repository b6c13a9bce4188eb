#pragma once

#include <optional>
#include <string>

#include "convert/place.hpp"
#include "convert/read_options.hpp"
#include "engine/io/io.hpp"
#include "format/model/model.hpp"

namespace ckpt::universal {

Result<std::optional<Match>> detect(const Place& place);

/// errors  as open_checkpoint; checksum or corrupt: objects.json. Files of records that are missing are findings.
Result<Map> open(Io& io, const std::string& root, const ReadOptions& options);

}  // namespace ckpt::universal
