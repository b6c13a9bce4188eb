#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "format/result.hpp"
#include "format/universal/manifest.hpp"
#include "writers/publish_save.hpp"

namespace ckpt {

/// The files that make the written ones a checkpoint, from the records of all ranks (save_record.hpp). Where and as
/// which step it is published is not filled in.
/// errors  internal: not a record
Result<SaveToPublish> merged_content(universal::Manifest manifest, const std::vector<std::string>& records);

/// Several nodes: the same as a text, which rank 0 sends to the leaders, and back. Each leader fills in its own
/// generation.
/// errors  internal: not a record; those of sealing
Result<std::string> sealed_text(universal::Manifest manifest, const std::vector<std::string>& records);
/// errors  internal: not made by sealed_text; those of parsing
Result<SaveToPublish> sealed_content(std::string_view text);

}  // namespace ckpt
