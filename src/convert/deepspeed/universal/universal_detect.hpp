#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convert/place.hpp"

namespace ckpt::deepspeed {

/// True for a universal folder (`zero/<parameter>/fp32.pt`), or a directory whose `latest_universal` names
/// one.
Result<std::optional<Match>> detect_universal(const Place& place);

/// The universal folder that a path means.
struct UniversalFolder {
  std::string directory{};             ///< below the path; "" = the path is the folder
  std::string chosen{};                ///< for people: "folder global_step3_universal from 'latest_universal'"
  std::vector<DirEntry> entries{};     ///< of the folder
  std::vector<DirEntry> parameters{};  ///< of its `zero`
};

/// errors   incomplete: `latest_universal` names a folder that is not there, or the folder has no `zero`; refused:
///          `latest_universal` leads out of the directory
Result<UniversalFolder> find_universal(Io& io, const std::string& root);

}  // namespace ckpt::deepspeed
