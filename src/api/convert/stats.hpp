#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/verbs.hpp"

namespace ckpt {

/// ckpt stats.
struct StatsRequest {
  std::string path;
  std::string from{};
  std::vector<std::string> only{};  ///< as ConvertRequest::only; empty = all
};

/// The values of one tensor. Those of NaN and infinite elements count nowhere else.
struct TensorStats {
  std::string name;
  std::string dtype;
  Shape shape{};
  std::uint64_t elements = 0;
  std::uint64_t zeros = 0;
  std::uint64_t nan = 0;
  std::uint64_t infinite = 0;
  /// Of real numbers; nothing if there is no finite element.
  struct Moments {
    double min = 0;
    double max = 0;
    double mean = 0;
    double deviation = 0;  ///< of the population
  };
  std::optional<Moments> moments{};
  std::optional<double> norm{};  ///< Euclidean; nothing for packed types, whose values have no meaning by themselves
};

struct StatsReport {
  std::string format;
  std::vector<TensorStats> tensors{};  ///< in the source's order, without blobs
  std::uint64_t bytes = 0;             ///< of their values
  double seconds = 0;
  std::vector<Finding> findings{};
};

/// Reads each tensor once. The result does not depend on the number of threads. Not collective.
/// errors   not_found: no tensor that `only` asks for; those of opening and reading a checkpoint
Result<StatsReport> stats(Session& session, const StatsRequest& request);

}  // namespace ckpt
