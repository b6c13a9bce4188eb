#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api/select.hpp"
#include "convert/format.hpp"

namespace ckpt {

/// Where another verb makes a conversion its own: parts of tensors, and forms that only hold such. References outlive
/// the conversion.
struct ConversionHooks {
  std::vector<std::string> parameters{};                 ///< of the verb, beside the request's: they are in the id
  std::function<Result<const Format*>()> choose_target;  ///< one with lay_out_parts, which is then called
  std::function<Result<>(const Map& map)> check;         ///< before anything is selected
  std::function<Result<>(const Map& map, Selection& selection)> cut;  ///< sets Selected::part
  std::function<void(const Selection& selection, const Skeleton& skeleton)> laid_out;
};

}  // namespace ckpt
