#include "format/seal.hpp"

#include <utility>

namespace ckpt::universal {

Result<Seal> seal(Manifest manifest, std::vector<FileRecord> files, std::vector<Hash128> leaves) {
  Sums sums{.id = manifest.id, .files = std::move(files), .leaves = std::move(leaves)};
  Seal out;
  CKPT_TRY(out.sums, build_sums(sums));
  manifest.sums_bytes = out.sums.size();
  manifest.sums_hash = hash128(out.sums);
  CKPT_TRY(out.manifest, build_manifest(manifest));
  return out;
}

}  // namespace ckpt::universal
