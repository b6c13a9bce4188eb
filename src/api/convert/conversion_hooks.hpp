#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/convert/select.hpp"
#include "convert/format.hpp"
#include "engine/publish/publish.hpp"

namespace ckpt {

/// Where another verb makes a conversion its own: parts of tensors, and forms that only hold such; a target that gets
/// its name at the commit. A function that is not set changes nothing. References outlive the conversion.
struct ConversionHooks {
  std::vector<std::string> parameters{};                   ///< of the command; part of the id
  std::function<Result<const Format*>()> choose_target{};  ///< by default from the request
  std::function<Result<>(const Map& map)> check{};         ///< before anything is selected
  /// Sets Selected::part: of the chosen format lay_out_parts is called. Such a conversion is not resumed.
  std::function<Result<>(const Map& map, Selection& selection)> cut{};
  std::function<void(const Selection& selection, const Skeleton& skeleton)> laid_out{};

  /// A checkpoint of a run, whose number is known only when it is published. The request's target is then the beginning
  /// of its partial's name, in its final directory. All three are rank 0's.
  struct InRun {
    /// The path where this conversion was published before; nothing if it was not.
    std::function<Result<std::optional<std::string>>(const std::string& id)> find{};
    std::function<Result<>()> make_directory{};
    /// Commits; `files` are those of Skeleton::finish. The path.
    std::function<Result<std::string>(Publication& publication, std::vector<SmallFile> files)> publish{};
  };
  std::optional<InRun> in_run{};
};

}  // namespace ckpt
