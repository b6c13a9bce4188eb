#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "cli/output/console.hpp"
#include "cli/output/progress.hpp"
#include "cli/process/launch.hpp"
#include "cli/process/machine.hpp"
#include "cli/text/units.hpp"
#include "cli/words/words.hpp"

namespace ckpt {
class Comm;
}

namespace ckpt::cli {

/// The flags of every verb, read.
struct Settings {
  SizeStyle sizes = SizeStyle::binary;
  bool json = false;
  bool quiet = false;
  unsigned verbose = 0;  ///< 0, 1 (-v), 2 (-vv)
  bool alone = false;    ///< --no-mpi
  IoKind io = IoKind::automatic;
  std::optional<std::uint64_t> memory_bytes{};  ///< nothing = the default, which depends on the ranks of the node
  std::optional<unsigned> threads{};
  std::string progress{};  ///< the mode as given; "" = auto
  std::chrono::milliseconds progress_every{30'000};
};

/// errors   usage: an invalid size, number or time
Result<Settings> read_settings(const Words& words, const Environment& environment, const Machine& machine);

/// The environment of a command. References outlive it.
struct Context {
  const Words& words;
  const Settings& settings;
  const Launch& launch;
  const Machine& machine;
  Console& console;
  /// The ranks of a shared command. They stay joined until rank 0 has printed the answer.
  std::shared_ptr<Comm>& ranks;
};

}  // namespace ckpt::cli
