#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/run/plan.hpp"

namespace ckpt {

/// Names what a run is about to read or write, by the bytes that are finished: workers take leaves in target order.
class ProgressNames {
 public:
  explicit ProgressNames(const Plan& plan);
  /// The tensor at that byte of the target, else the file; "" behind the end.
  std::string at(std::uint64_t done_bytes) const;

 private:
  const Plan& plan_;
  std::vector<std::uint64_t> ends_{};  ///< of the target files, one behind the other
};

}  // namespace ckpt
