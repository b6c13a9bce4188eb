#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "catalog/index/database.hpp"
#include "catalog/scan/links.hpp"
#include "catalog/scan/scan.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt::catalog {

/// How far a refresh trusts the index.
enum class Trust : std::uint8_t {
  /// A run directory with the same inode and time holds the same checkpoints; notes in the inboxes announce changed
  /// marks. One check per run, whatever it holds, plus directory and manifest of its newest.
  notes,
  /// Each checkpoint's directory, manifest and marks are checked too.
  nothing_unseen,
  /// Nothing: everything is read again.
  nothing,
};

struct Refreshed {
  std::uint64_t read = 0;     ///< checkpoints that were read
  std::uint64_t removed = 0;  ///< that no longer exist
  std::vector<Unread> unread{};
  std::vector<FoundLink> links{};  ///< all of the store: directories that hold any are listed each time
};

/// Brings the index up to date with the disk: afterwards its rows are those that `Trust::nothing` would make. One
/// transaction; none if nothing changed. Notes in inboxes are removed once their changes are durable in the
/// index.
///
/// manifest_bytes  of read_entry
/// now      by the machine's clock: a directory that was changed just before is listed again the next time
/// errors   not_found: the store does not exist; those of `asked`: the index is then unchanged
Result<Refreshed> refresh(Io& io, const std::string& store, Database& database, const OtherTools& tools, Trust trust,
                          Time now, std::uint64_t manifest_bytes = kMostManifestBytes);

}  // namespace ckpt::catalog
