#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/convert/select.hpp"
#include "api/verbs.hpp"
#include "convert/open_source.hpp"
#include "engine/run/leaf_comparer.hpp"
#include "engine/run/run.hpp"

namespace ckpt {

/// Compares the leaf hashes stored in a source with the bytes as they are read; reads other leaves after the run.
class SourceHashes {
 public:
  /// options  of the run: memory that --memory leaves besides its pool is for pieces that arrive early
  SourceHashes(Session& session, const Source& source, const RunOptions& options);

  LeafComparer& comparer() { return comparer_; }

  /// Collective, after the run: reads the leaves of the selected files that were not compared. Returns how many leaves
  /// these files have.
  /// errors  checksum
  Result<std::uint64_t> finish(const Selection& selection);

  /// The failure of the run; for a leaf of the source, with the tensors in it.
  Error explained(Error error) const;

 private:
  std::string list_hint() const { return "ckpt verify " + source_.root + "    lists all damage"; }
  Result<std::vector<bool>> join() const;
  void add_open(std::uint32_t file, const std::vector<bool>& compared, std::vector<TargetFile>& files,
                std::vector<Hash128>& expected) const;

  Session& session_;
  const Source& source_;
  LeafComparer comparer_;
};

}  // namespace ckpt
