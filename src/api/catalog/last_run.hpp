#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "catalog/bucket.hpp"
#include "engine/io/io.hpp"

/// When a store was last pruned and verified, and with what result: STORE/.ckpt/last-prune.json and last-verify.json,
/// for `ckpt status` and for alerts.
namespace ckpt {

struct LastRun {
  enum class Kind : std::uint8_t { prune, verify } kind = Kind::prune;
  catalog::Time at{};          ///< its end
  std::string by{};            ///< "ana@n17 pid 4211"
  int exit_code = 0;           ///< 0, or 3 (something is in use), or that of its failure; of verify 1: damage was found
  std::uint64_t count = 0;     ///< deleted or demoted; checked
  std::uint64_t problems = 0;  ///< damaged ones found
  std::uint64_t bytes = 0;     ///< moved to the trash; read
  /// Of all runs since the file exists.
  std::uint64_t count_total = 0;
  std::uint64_t bytes_total = 0;
};

/// Nothing if there was none, or the file cannot be read.
std::optional<LastRun> read_last_run(Io& io, const std::string& store, LastRun::Kind kind);

/// Adds to the totals of the file before it. It informs only: a failure changes nothing else. Nothing is written where
/// the store has no .ckpt/.
void record_last_run(Io& io, const std::string& store, LastRun run);

}  // namespace ckpt
