#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// A directory that is held, until its destructor.
class HeldDirectory {
 public:
  virtual ~HeldDirectory() = default;
};

struct HoldOptions {
  bool follow = false;  ///< the path may lead through links, its last part too; what lies below it may not
  bool reads = false;   ///< reads below it pass no link either; else they go by their path
  /// It is a store: of what is made below it the group may do what it may do with the store, where that passes its
  /// group on (setgid); and made by root in a store of another user it belongs to that user, with the store's rights.
  bool store = false;
  std::uint32_t readers = 0777;  ///< what is made below it gets no permission beyond these (readers_of)
};

/// Who may use a result of a file with these permissions: whoever may not read that may do nothing with this. The owner
/// may do anything.
constexpr std::uint32_t readers_of(std::uint32_t permissions) {
  return 0700U | ((permissions & 0040U) != 0 ? 0070U : 0U) | ((permissions & 0004U) != 0 ? 0007U : 0U);
}

/// What Ios of file systems with links and permissions can do beside.
class HoldsDirectories {
 public:
  virtual ~HoldsDirectories() = default;
  virtual Result<std::unique_ptr<HeldDirectory>> hold_directory(const std::string& path,
                                                                const HoldOptions& options) = 0;
  /// Of a file or a directory: the nine bits. Links are followed.
  virtual Result<std::uint32_t> permissions(const std::string& path) = 0;
};

/// Holds a directory: from now on what this Io, and all that were or will be made by `fresh` of it or of the same one,
/// make, remove, rename or write at a path below it is found from the directory that is open, beneath it, and through
/// no symbolic link. Where it is moved away or replaced meanwhile such a change is `changed`; where a link stands on
/// the way `linked`. An Io that cannot holds nothing. errors  linked, changed: as such a change; not_found; io
Result<std::unique_ptr<HeldDirectory>> hold_directory(Io& io, const std::string& path, const HoldOptions& options = {});

/// All of them where the Io knows none, or cannot tell.
std::uint32_t permissions_of(Io& io, const std::string& path);

}  // namespace ckpt
