#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "catalog/index/database.hpp"
#include "catalog/scan/entry.hpp"
#include "format/result.hpp"

namespace ckpt::catalog {

/// How people name a checkpoint of a store:
///   RUN@1000        the step; of several saves of it the newest generation
///   RUN@latest      the newest by generation that is neither superseded nor known to be damaged; RUN@latest~2: two
///                   before that
///   RUN@best        by the only metric there is, or RUN@best:METRIC; the lowest, or highest with RUN@best:METRIC:max
///   RUN@TAG         the only one with this tag
///   RUN@step-000001000.g7   by the name of its directory
///   3f2a91          the beginning of its id, at least 6 digits
/// RUN may be left out where the store has one run.
bool looks_like_name(std::string_view text);

/// Finds it.
/// errors  not_found: with the nearest known one; usage: several, all named (ten of them), or not such a name
Result<Entry> find_checkpoint(Database& database, const std::string& name);

/// The order of `@best` if the name does not give it: by the store's policy for a run.
struct BestMetric {
  std::string metric{};
  bool higher = false;
};
Result<Entry> find_checkpoint(Database& database, const std::string& name, const std::optional<BestMetric>& best);

}  // namespace ckpt::catalog
