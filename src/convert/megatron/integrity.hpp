#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convert/format.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt::megatron {

inline constexpr std::string_view kIntegrity = "integrity.json";

/// The digests that Megatron-LM writes with --verify-integrity (0.18 and newer): {"algorithm": "sha256", "files": {NAME:
/// DIGEST}}. None where the iteration has no such file.
///
/// errors  corrupt: not such a document; unsupported: another algorithm; refused: a name that leaves the directory
Result<std::vector<FileDigest>> stated_digests(Io& io, const std::string& root);

}  // namespace ckpt::megatron
