#pragma once

#include <string>
#include <vector>

#include "catalog/index/entry.hpp"

namespace ckpt::catalog {

/// A symbolic link in a store, a tracker that holds a path, or what may be or hold either.
struct FoundLink {
  std::string run{};        ///< whose directory it stands in
  std::string holder{};     ///< the other tool's checkpoint of that run that it stands in; "" = beside checkpoints
  std::string path{};       ///< below that
  std::string leads{};      ///< of a tracker: the path that it holds
  bool unreadable = false;  ///< a tracker, or a directory of the run, that cannot be read now
};

/// Says of checkpoints which links in the store lead to them, or into them: a link beside checkpoints
/// (`latest -> step-...`) names one, as a tracker does; one among another tool's data files makes its checkpoint refer
/// to that one. Where they lead is looked up on the disk. What cannot be read may name any checkpoint of its run, and a
/// link that cannot be followed any of the store: so it names all of them. `links`: all of the store, as a refresh
/// found them.
void note_links(const std::string& store, const std::vector<FoundLink>& links, std::vector<Entry>& entries);

}  // namespace ckpt::catalog
