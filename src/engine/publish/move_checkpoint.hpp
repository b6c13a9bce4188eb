#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Why a checkpoint cannot be changed now.
enum class LockOutcome : std::uint8_t {
  free,      ///< ours, while the lock is held
  read,      ///< a process loads, converts, verifies or writes it
  unknown,   ///< this file system does not show other readers
  vanished,  ///< does not exist
};

/// The exclusive lock of a checkpoint (directory or file): every reader holds a shared one for as long as it reads, and
/// where locks do not reach every host a claim (claims.hpp).
struct LockedCheckpoint {
  LockOutcome outcome = LockOutcome::free;
  std::unique_ptr<HeldLock> lock{};  ///< taken only if free; stays with the checkpoint through a rename. Null if only
                                     ///< claims show readers
  std::string reader{};              ///< the reader, or why it is unknown; empty if it is another process of this host
  struct Claimed {
    std::string store{};
    std::vector<std::string> keys{};
  };
  std::vector<Claimed> claimed{};  ///< where readers of other hosts would have said so; empty where locks reach them
};

/// The name under which earlier readers know a checkpoint.
struct Formerly {
  std::string id{};
  std::string path{};
};

/// Takes it, without waiting.
/// errors  io
Result<LockedCheckpoint> lock_checkpoint(Io& io, const std::string& checkpoint, const Formerly& formerly = {});

/// Whether a reader has started since, checked after the checkpoint has left the name that readers know. `held` becomes
/// `read` or `unknown` then.
/// errors  io
Result<> check_no_readers(Io& io, LockedCheckpoint& held);

/// Gives a checkpoint that is held another place on the same file system, where nothing may be, and makes that durable.
/// At every instant, and after a crash at any, it has at least one of the two names.
/// errors  target_exists; io: it has the old name; not_durable: it has the new one, perhaps not after a crash
Result<> move_checkpoint(Io& io, const std::string& from, const std::string& to);

}  // namespace ckpt
