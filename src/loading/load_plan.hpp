#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/run/plan.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt {

constexpr std::uint32_t kNoRow = 0xffffffff;

/// A part of a tensor that is wanted in memory, dense and row-major (a flat chunk: its elements one after another).
struct PartRead {
  std::uint32_t tensor = 0;  ///< index into Map::tensors
  Chunk chunk{};
  std::byte* out = nullptr;  ///< owned by the caller; must hold the chunk in the tensor's dtype
  /// Of the model: the part is all, or a piece of, this rank's part of the tensor by the model; else kNoRow.
  std::uint32_t row = kNoRow;
};

/// The stored hashes of a source file's leaves; empty if there are none.
using LeavesOf = std::function<std::span<const Hash128>(std::uint32_t file)>;

/// The reads of a load, in the order of the source: leaves that are needed whole (or nearly) are read whole, so that
/// their hashes can be compared; of others only the needed part.
class LoadPlan {
 public:
  /// One leaf of the run: a whole leaf of a source file, or the needed extents of one, laid end to end.
  struct Unit {
    std::uint32_t file = 0;
    std::uint64_t leaf = 0;  ///< of the source file
    bool whole = false;
    std::size_t first_scatter = 0;  ///< into scatters()
    std::size_t end_scatter = 0;
    std::vector<Extent> extents{};  ///< bytes of the source file, sorted; a single one for a whole leaf
  };
  /// A copy from the unit's bytes to its request's memory; it reads from one of the unit's extents.
  struct Scatter {
    Copy copy{};  ///< target_offset counts from the request's memory
    std::uint32_t request = 0;
    std::uint64_t leaf = 0;  ///< of the source file
  };
  struct Options {
    bool whole_leaves = false;  ///< read every leaf that has a hash whole, at any cost
  };

  /// errors  uncovered, naming tensor and region; corrupt: sizes that overflow; unsupported: compressed data. `map` and
  ///         `requests` outlive it
  static Result<LoadPlan> make(const Map& map, std::span<const PartRead> requests, const LeavesOf& leaves,
                               const Options& options);

  /// The first half of make: everything that `requests` read from the files, sorted by (file, leaf, offset, request).
  /// One request's scatters do not depend on the others.
  static Result<std::vector<Scatter>> collect(const Map& map, std::span<const PartRead> requests);
  /// The second half, for some of them, in that order.
  static LoadPlan of(const Map& map, std::vector<Scatter> scatters, const LeavesOf& leaves, const Options& options);

  const std::vector<Unit>& units() const { return units_; }
  const std::vector<Scatter>& scatters() const { return scatters_; }
  std::uint64_t needed_bytes() const { return needed_bytes_; }
  std::uint64_t read_bytes() const { return read_bytes_; }
  /// Targets of the run: files that exist nowhere, one leaf a unit, in the order of units().
  std::vector<TargetFile> take_targets() { return std::move(targets_); }

 private:
  void make_units(const Map& map, const LeavesOf& leaves, const Options& options);
  void add_target(const Unit& unit);

  std::vector<Scatter> scatters_{};
  std::vector<Unit> units_{};
  std::vector<TargetFile> targets_{};
  std::uint64_t needed_bytes_ = 0;
  std::uint64_t read_bytes_ = 0;
};

}  // namespace ckpt
