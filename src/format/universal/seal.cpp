#include "format/universal/seal.hpp"

#include <utility>

namespace ckpt::universal {

Result<std::string> seal_sums(Manifest& manifest, std::vector<FileRecord> files, std::vector<Hash128> leaves) {
  Sums sums{.id = manifest.id, .files = std::move(files), .leaves = std::move(leaves)};
  CKPT_TRY(std::string out, build_sums(sums));
  manifest.sums_bytes = out.size();
  manifest.sums_hash = hash128(out);
  return out;
}

Result<Seal> seal(Manifest manifest, std::vector<FileRecord> files, std::vector<Hash128> leaves) {
  Seal out;
  CKPT_TRY(out.sums, seal_sums(manifest, std::move(files), std::move(leaves)));
  CKPT_TRY(out.manifest, build_manifest(manifest));
  return out;
}

}  // namespace ckpt::universal
