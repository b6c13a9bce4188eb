#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// A directory held until destruction.
class HeldDirectory {
 public:
  virtual ~HeldDirectory() = default;
};

struct HoldOptions {
  bool follow = false;  ///< the path may contain links, also as its last part; paths below it may not
  bool reads = false;   ///< reads below it follow no links either; else they use the plain path
  /// The directory is a store. If it passes its group on (setgid), the group gets the same rights on new files as on
  /// the store; files created by root in another user's store belong to that user, with the store's rights.
  bool store = false;
  std::uint32_t readers = 0777;  ///< limits the permissions of new files below it (readers_of)
};

/// Permission limit for a result made from a file with these permissions: users who cannot read the file get no access
/// to the result. The owner keeps full access.
constexpr std::uint32_t readers_of(std::uint32_t permissions) {
  return 0700U | ((permissions & 0040U) != 0 ? 0070U : 0U) | ((permissions & 0004U) != 0 ? 0007U : 0U);
}

/// Additional operations of Ios on file systems with links.
class HoldsDirectories {
 public:
  virtual ~HoldsDirectories() = default;
  virtual Result<std::unique_ptr<HeldDirectory>> hold_directory(const std::string& path,
                                                                const HoldOptions& options) = 0;
};

/// Holds a directory. From now on this Io, and all Ios made by `fresh` from it or from the same one, create, remove,
/// rename and write paths below the directory relative to its open descriptor, and never through a symbolic link. If
/// the directory is moved or replaced meanwhile, such a change fails with `changed`; a link on the path fails with
/// `linked`. An Io without this support holds nothing.
/// errors  linked, changed: as for such a change; not_found; io
Result<std::unique_ptr<HeldDirectory>> hold_directory(Io& io, const std::string& path, const HoldOptions& options = {});

}  // namespace ckpt
