#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/io/hold_directory.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

/// Holds the directories that are written to, so that no operation reaches outside them (hold_directory.hpp).
namespace ckpt {

/// A store: everything that is created, moved or removed below it stays inside it and gets the owner of the store. Its
/// path may contain symbolic links; directories below it may not be links.
/// errors  linked: its .ckpt is a link; not_found; io
Result<std::unique_ptr<HeldDirectory>> hold_store(Io& io, const std::string& store);

/// The nearest directory at or above a run's that has a .ckpt; "" if there is none nearby.
/// errors  io
Result<std::string> store_above(Io& io, const std::string& run_directory);

/// The store that a directory lies in and is not itself; "" if there is none nearby, or it is a store or has a policy.
/// errors  io
Result<std::string> store_around(Io& io, const std::string& directory);

struct HeldRun {
  std::unique_ptr<HeldDirectory> store{};  ///< null if the run is in no store
  std::unique_ptr<HeldDirectory> directory{};
};
/// The directory of a run, with its store. May be a symbolic link only if the run is in no store.
/// errors  linked: a link between the store and the run; not_found; io
Result<HeldRun> hold_run(Io& io, const std::string& run_directory);

}  // namespace ckpt
