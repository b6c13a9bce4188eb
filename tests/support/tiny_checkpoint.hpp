#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/io.hpp"
#include "format/result.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/sums.hpp"

namespace ckpt::test {

/// Files of a directory: path below it -> bytes.
using Tree = std::map<std::string, std::string>;

/// Saves real checkpoints of a few KiB (a parameter and a slot of an optimizer) into any run by the real commit, with
/// the caller's clock, series and metrics.
class TinyCheckpoints {
 public:
  /// Makes a Run save the one that all others are copies of.
  TinyCheckpoints();

  struct Save {
    std::string run_directory;
    std::uint64_t step = 0;
    universal::Run run{};  ///< all but the generation
    std::string created;   ///< universal::utc_text
    std::vector<std::pair<std::string, std::string>> user{};
    std::uint64_t number = 0;  ///< gives the id and the values: another one for each
  };
  static Hash128 id_of(const Save& save);
  /// The data files of such a save.
  Tree data_of(const Save& save) const;
  /// Removes leftovers of earlier saves of the run, writes the files, commits. The name of the checkpoint.
  Result<std::string> save(Io& io, const Save& save) const;

 private:
  universal::Manifest manifest_{};
  universal::Sums sums_{};
  Tree files_{};
};

}  // namespace ckpt::test
