#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/hash.hpp"
#include "format/model/box.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Compares the leaf hashes that a source format stores with the bytes that a run reads anyway, so that a conversion
/// does not read data a second time to verify it. Hashing a leaf needs its bytes in order: early pieces are kept, up to
/// `most_kept_bytes`. A leaf that is not read completely is not compared; if there are too many, the oldest are
/// dropped. A caller that needs every leaf reads those that were not compared. Thread-safe.
class LeafComparer {
 public:
  /// `map` outlives this.
  LeafComparer(const Map& map, std::uint64_t most_kept_bytes);
  ~LeafComparer();
  LeafComparer(const LeafComparer&) = delete;
  LeafComparer& operator=(const LeafComparer&) = delete;

  /// Bytes of a file as they were read; bytes past its end are ignored.
  void take(std::uint32_t file, Extent bytes, const std::byte* data);

  /// A leaf whose hash differs.
  struct Wrong {
    std::uint32_t file = 0;  ///< index into Map::files
    std::uint64_t leaf = 0;  ///< of the file
    Hash128 computed{};
  };
  std::optional<Wrong> wrong() const;
  /// By index into LeafHashes::leaves: compared, and right.
  std::vector<bool> compared() const;

 private:
  struct Open;
  using Slot = std::shared_ptr<Open>;
  using Piece = std::pair<std::uint64_t, std::vector<std::byte>>;  // its offset, and its bytes
  using Pieces = std::map<std::uint64_t, std::vector<std::byte>>;  // by offset
  void take_part(std::uint32_t file, std::uint64_t leaf, Extent leaf_bytes, Extent part, const std::byte* data);
  Slot slot_of(std::uint64_t number, Extent leaf_bytes);
  void keep(Open& open, Piece piece);
  std::optional<Piece> next_kept(Open& open);
  Pieces forget(std::uint64_t number);
  Pieces give_up(std::uint64_t number);
  void add(std::uint32_t file, std::uint64_t leaf, const Hash128& computed);
  bool is_compared(std::uint64_t number) const;

  const Map& map_;
  const std::uint64_t most_kept_bytes_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Slot> open_;    // guarded by mutex_; by index into LeafHashes::leaves
  std::uint64_t tickets_ = 0;                       // guarded by mutex_; increases with time
  std::map<std::uint64_t, std::uint64_t> opened_;   // guarded by mutex_; the leaves of open_ by when that was
  std::map<std::uint64_t, std::uint64_t> holding_;  // guarded by mutex_; those that keep pieces, by since when
  std::uint64_t kept_bytes_ = 0;                    // guarded by mutex_
  std::vector<bool> compared_;                      // guarded by mutex_
  std::vector<bool> given_up_;                      // guarded by mutex_
  std::optional<Wrong> wrong_;                      // guarded by mutex_; the first
};

/// The stored hash of a leaf and the computed one, as the failure of a run.
Error as_error(const LeafComparer::Wrong& wrong, const Map& map, const std::string& source_root);

}  // namespace ckpt
