#pragma once

#include <string>
#include <vector>

#include "format/result.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/sums.hpp"

namespace ckpt::universal {

constexpr std::string_view kManifestPath = "manifest.json";
constexpr std::string_view kSumsPath = "sums.bin";
constexpr std::string_view kManifestCopyPath = "index/manifest.json";

/// The two texts that make files a checkpoint.
struct Seal {
  std::string sums;      ///< sums.bin
  std::string manifest;  ///< manifest.json, and its second copy
};

/// Computes them from the files' sizes and leaves, once both are known.
///
/// manifest  complete but for the size and hash of sums.bin; its `id` is that of the files
/// files     sorted by key: keys, sizes, data begins
/// leaves    of the files in order
/// errors    as build_sums and build_manifest
Result<Seal> seal(Manifest manifest, std::vector<FileRecord> files, std::vector<Hash128> leaves);

/// The first of them; `manifest` gets its size and hash, and is then complete.
Result<std::string> seal_sums(Manifest& manifest, std::vector<FileRecord> files, std::vector<Hash128> leaves);

}  // namespace ckpt::universal
