#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "catalog/index/database.hpp"
#include "catalog/retain.hpp"
#include "catalog/scan/entry.hpp"
#include "format/result.hpp"

namespace ckpt::catalog {

/// How people name a checkpoint of a store:
///   RUN@1000        the step; of several saves of it the newest generation
///   RUN@latest      the newest that is neither superseded nor known to be damaged, by generation, or by step in a run
///                   that also holds another tool's; RUN@latest~2: two before that
///   RUN@best        by the only metric there is, or RUN@best:METRIC; the lowest, or highest with RUN@best:METRIC:max;
///                   of those that are not superseded
///   RUN@TAG         the only one with this tag
///   RUN@1000.g7     a save of the step by its generation
///   RUN@step-000001000.g7   by the name of its directory
///   3f2a91          the beginning of its id, at least 6 digits
/// RUN may be left out where the store has one run.
bool looks_like_name(std::string_view text);

/// Where its '@' is, between the run and the rest, or npos: RUN/DIRECTORY has none, though a run's name may.
std::size_t find_separator(std::string_view name);

/// Whether RUN@TAG could mean only the tag: not a step, a generation, a directory of ours, "latest", "best", and without
/// "@", "/" and control characters.
bool is_tag(std::string_view text);

/// Finds it. The name of a directory counts before a tag.
/// errors  not_found: with the nearest known one; usage: several, all named (ten of them), or not such a name
Result<Entry> find_checkpoint(Database& database, const std::string& name);

/// The name of a checkpoint in every output: "llama0@5250". If the run holds a newer save of this step, the generation
/// is part of it: "llama0@5250.g21". A checkpoint of another tool whose step another one has: directory_name.
class ShortNames {
 public:
  ShortNames() = default;
  /// `entries`: all checkpoints of the runs concerned, in any order.
  explicit ShortNames(std::span<const Entry> entries);
  void add(const Entry& entry);
  std::string of(const Entry& entry) const;
  /// With the generation, or the directory of another tool's, in any case.
  std::string full(const Entry& entry) const;

 private:
  struct Save {
    std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::string> order{};  ///< CommitOrder with its own id
    std::string directory{};
  };
  std::map<std::pair<std::string, std::uint64_t>, Save> newest_{};  // by run and step
};
/// By its directory: "llama0@DIRECTORY", or "llama0/DIRECTORY" where the former may mean something else ("llama0@100").
std::string directory_name(std::string_view run, std::string_view directory);
/// The same of the newest save of a step.
std::string short_name(std::string_view run, std::uint64_t step);

/// The order of `@best` if the name does not give it: by the store's policy for a run; without one, is_higher_better.
struct BestMetric {
  std::string metric{};
  bool higher = false;
};
/// What names depend on besides the catalog, asked for where a name needs it.
struct Naming {
  std::function<std::optional<BestMetric>(const std::string& run)> best{};
  std::function<Result<std::vector<SeriesBirth>>(const std::string& run)> births{};  ///< series of what was deleted
};
Result<Entry> find_checkpoint(Database& database, const std::string& name, const Naming& naming);

}  // namespace ckpt::catalog
