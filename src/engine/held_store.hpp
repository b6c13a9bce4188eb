#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/hold_directory.hpp"
#include "engine/io.hpp"
#include "format/result.hpp"

/// Holding what is written to, so that nothing outside of it is reached (hold_directory.hpp).
namespace ckpt {

/// A store: whatever is made, moved or removed below it lies in it, and belongs to whom the store belongs to. Its path
/// may lead through links; no directory below it may be one.
/// errors  linked: its .ckpt is a link; not_found; io
Result<std::unique_ptr<HeldDirectory>> hold_store(Io& io, const std::string& store);

/// The nearest directory at or above a run's that has a .ckpt; "" where there is none near. errors  io
Result<std::string> store_above(Io& io, const std::string& run_directory);

struct HeldRun {
  std::unique_ptr<HeldDirectory> store{};  ///< null where the run lies in none
  std::unique_ptr<HeldDirectory> directory{};
};
/// The directory of a run, which may be a link only where it lies in no store, and that store.
/// errors  linked: a link stands between the two; not_found; io
Result<HeldRun> hold_run(Io& io, const std::string& run_directory);

}  // namespace ckpt
