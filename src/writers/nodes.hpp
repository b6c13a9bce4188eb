#pragma once

#include <chrono>
#include <string>

#include "engine/comm/comm.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt {

/// The ranks with one local directory are a node; its lowest rank leads: it commits and drains their files. Without
/// local directories all ranks are one node.
struct Nodes {
  int leader = 0;        ///< of this rank's node
  bool several = false;  ///< each with a separate local directory, with only its ranks' files

  bool leads(int rank) const { return rank == leader; }
};

/// The ranks of one machine whose local directory is the same one are a node; the directory is created. An empty one:
/// no local tier, on all ranks. Collective.
/// errors  usage: some ranks name a directory, others do not
Result<Nodes> find_nodes(Comm& comm, std::chrono::milliseconds patience, Io& io, const std::string& local_directory);

}  // namespace ckpt
