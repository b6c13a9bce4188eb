#pragma once

#include <string>
#include <vector>

#include "catalog/scan/entry.hpp"

namespace ckpt::catalog {

/// A symbolic link in a store, a tracker that holds a path, a reference of a virtual checkpoint to a file, or an entry
/// that may be or hold one of these.
struct FoundLink {
  std::string run{};        ///< of the run whose directory contains it
  std::string holder{};     ///< the checkpoint of that run that contains it; "": next to checkpoints
  std::string path{};       ///< below that
  std::string leads{};      ///< of a tracker or a reference: the path that it holds
  bool unreadable = false;  ///< a tracker, or a directory of the run, that cannot be read now
};

/// Records for checkpoints which links in the store lead to them, or into them: a link next to checkpoints (`latest ->
/// step-...`) names one, as a tracker does; a link among a checkpoint's data files, or a reference, makes its checkpoint
/// refer to that one, unless a mark there says so already. Targets are resolved on the disk. An unreadable entry may
/// name any checkpoint of its run, and a link that cannot be followed any of the store, so it counts for all of them.
/// `links`: all of the store, as a refresh found them.
void note_links(const std::string& store, const std::vector<FoundLink>& links, std::vector<Entry>& entries);

}  // namespace ckpt::catalog
