#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "catalog/bucket.hpp"

namespace ckpt {

/// Extracts the undamaged tensors of a damaged universal checkpoint: `ckpt repair CKPT --out NEW`.
struct SalvageRequest {
  std::string path;
  std::string out;  ///< a directory that does not exist
  bool dry_run = false;
  std::string by{};
  catalog::Time now{};
};

struct SalvageReport {
  ConvertReport conversion{};
  std::vector<std::string> lost{};     ///< tensors of which a byte is wrong or missing, in the checkpoint's order
  std::vector<Finding> damage{};       ///< the places, at most kMostDamage
  std::vector<std::string> missing{};  ///< files that are missing or have a wrong size
  bool by_copy = false;                ///< manifest.json is lost or torn, its copy was read
  std::uint64_t tensor_count = 0;      ///< of the damaged one
};

/// Compares every existing leaf, then converts the tensors whose leaves are all right, and the objects if theirs are,
/// to a new checkpoint with a note about what is lost. The leaves are compared once more afterwards. The damaged
/// checkpoint is only read.
///
/// errors   those of convert; unsupported: another tool's checkpoint, which does not hash every byte; corrupt: nothing
///          is intact, or both manifests are lost
Result<SalvageReport> salvage(Session& session, const SalvageRequest& request);

}  // namespace ckpt
