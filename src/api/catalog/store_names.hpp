#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/io/io.hpp"

namespace ckpt {

/// What can be named in a store, for completion.
struct StoreNames {
  std::vector<std::string> runs{};
  std::vector<std::string> checkpoints{};  ///< RUN@STEP, newest first within a run, and RUN@latest
  std::vector<std::string> tags{};
};

/// Reads names of directories and marks only: no catalog, no manifest, no lock; writes nothing. Looks at the first few
/// thousand directories. Directories that cannot be read are skipped.
StoreNames store_names(Io& io, const std::string& store);

/// The hint for a name that is no run, but a directory of some of these runs; nothing if it is none.
std::optional<std::string> hint_of_runs_below(Io& io, const std::string& store, const std::string& name,
                                              std::span<const std::string> runs);

/// The directory of RUN@STEP: the newest save of that step. Empty if there is none.
std::string directory_of_step(Io& io, const std::string& store, const std::string& name);

}  // namespace ckpt
