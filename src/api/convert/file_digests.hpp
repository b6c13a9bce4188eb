#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "convert/format.hpp"

namespace ckpt {

/// The result of comparing files with the digests that a checkpoint states.
struct DigestCheck {
  std::uint64_t files = 0;  ///< compared
  std::uint64_t bytes = 0;
  std::vector<Finding> damage{};  ///< one per file that is missing or differs
};

/// Reads each file and compares its SHA-256. Not collective.
///
/// io      in which the files are, below `root`
/// errors  interrupted; those of Io
Result<DigestCheck> check_digests(Session& session, Io& io, const std::string& root,
                                  const std::vector<FileDigest>& digests, const std::string& phase);

}  // namespace ckpt
