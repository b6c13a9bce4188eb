#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convert/format.hpp"
#include "engine/locks/lease.hpp"
#include "engine/run/source_files.hpp"

namespace ckpt {

/// A checkpoint that was opened for reading: the lease on its root is held while this lives, which the Io outlives.
struct Source {
  std::string root{};  ///< directory of the map's files, or the file: the archive of a checkpoint in one
  const Format* format = nullptr;
  std::string why{};  ///< the findings of detection; empty if only --from decided
  /// The state of its files when they were opened, and an Io that checks it: for later reads of metadata.
  std::shared_ptr<SourceFiles> files{};
  std::unique_ptr<Io> io{};
  /// Of a checkpoint in an archive: an Io in which that is a folder, and the checkpoint's path in it. Else null and "".
  std::unique_ptr<Io> archive_io{};
  std::string archive_root{};
  Map map{};
  /// Files next to it that describe the model and are not extras; only with ReadOptions::find_beside.
  std::vector<std::string> settings{};
  std::unique_ptr<Lease> lease{};
  std::vector<std::unique_ptr<Lease>> referenced_leases{};  ///< on the checkpoints that a virtual one refers to

  /// For reading files by their own names, those in an archive too.
  Io& names_io() const { return archive_io ? *archive_io : *io; }
  const std::string& names_root() const { return archive_io ? archive_root : root; }

  /// errors  changed: a file has changed since it was opened
  Result<> check_unchanged() const { return files->look_again(*io); }
  /// A failure to read it; where its files changed in the meantime, that.
  Error explained(Error error) const;
};

/// Detects (or uses `from`) and opens. not_found; unsupported naming what was seen; ambiguous listing the matches;
/// incomplete; corrupt; refused.
Result<Source> open_source(Io& io, const std::string& path, std::string_view from, const ReadOptions& options);

}  // namespace ckpt
