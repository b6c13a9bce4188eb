#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/deepspeed/files/partition_index.hpp"
#include "convert/deepspeed/files/state_file.hpp"
#include "format/model/map_rules.hpp"

namespace ckpt::deepspeed {

/// True where `text` begins with a match of a pattern as universal_checkpoint_info holds them: literals, `.`, `\d`,
/// `\w`, escaped characters, each with `*`, `+` or `?`, and `^`, `$`. Takes time in proportion to pattern x text.
/// errors   unsupported: a pattern with anything else
/// source   Python's re.match, which DeepSpeed applies to them
Result<bool> matches_pattern(std::string_view pattern, std::string_view text);

/// The slice of a parameter on one tensor-parallel rank.
struct RankSlice {
  Shape shape{};
  std::vector<PartitionIndex::Source> copies{};  ///< each of the whole slice
};

/// A parameter joined from its ranks' slices.
struct Assembled {
  Shape shape{};
  std::vector<PartitionIndex::Piece> pieces{};
};

/// How the slices of tensor-parallel ranks form the full parameters, by the
/// checkpoint's own universal_checkpoint_info or by the user's rules: replicated, rows
/// (dimension 1), columns (dimension 0), or parts that are cut separately (fused query,
/// key and value).
/// source  deepspeed/checkpoint/ds_to_universal.py: merge_tp_slices
class SliceRules {
 public:
  /// Empty rules if the file has no universal_checkpoint_info. `user`: rules that take precedence, or null; outlives
  /// this.
  static Result<SliceRules> read(const StateFile& model_file, const MapRules* user);
  bool empty() const { return !known_; }
  bool operator==(const SliceRules&) const = default;
  /// The user's rule for joining a parameter's slices.
  std::optional<MapRules::Join> user_join(const std::string& name) const {
    return user_ == nullptr ? std::nullopt : user_->join(name);
  }

  /// ranks    one slice per tensor-parallel rank, in rank order; a single one is the whole parameter
  /// errors   unsupported, naming what is missing: no rule, or one that is not a placement; corrupt: shapes that do not
  ///          fit the rule; usage: that of the user
  Result<Assembled> assemble(const std::string& name, const std::vector<RankSlice>& ranks) const;

 private:
  struct SubParameters {
    std::vector<std::string> patterns{};
    std::vector<std::uint64_t> widths{};  ///< of the full parts; empty: `count` equal ones
    std::uint64_t count = 0;
    std::uint64_t dimension = 0;
    bool operator==(const SubParameters&) const = default;
  };
  using Widths = std::vector<std::vector<std::uint64_t>>;  ///< by part, then by rank

  Result<Widths> part_widths(const std::string& name, const SubParameters& rule,
                             const std::vector<RankSlice>& ranks) const;

  const MapRules* user_ = nullptr;
  bool known_ = false;
  std::vector<std::string> replicated_{};
  std::vector<std::string> averaged_{};
  std::vector<std::string> halves_{};
  std::vector<std::string> rows_{};
  std::vector<std::string> unsupported_{};
  std::vector<SubParameters> parts_{};
  std::vector<std::pair<std::string, Widths>> shard_widths_{};  ///< by pattern
};

}  // namespace ckpt::deepspeed
