#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/model/box.hpp"
#include "format/model/model.hpp"

namespace ckpt {

/// Combines the checksums that a source format gives for byte ranges from the pieces in which a run happens to read
/// them, in any order and by any thread, so that an entry longer than a read is checked without being read again.
/// Bounded: entries beyond kMostEntries or kMostPieces are not followed, and count as unread. Thread-safe.
class CrcJoiner {
 public:
  static constexpr std::size_t kMostEntries = std::size_t{1} << 16;
  static constexpr std::size_t kMostPieces = std::size_t{1} << 18;

  /// An entry: where its checksum was met first.
  struct Entry {
    std::uint32_t file = 0;  ///< index into Map::files
    Crc crc{};
    std::uint32_t tensor = 0;  ///< index into Map::tensors; kNoTensor if the bytes belong to no tensor
    /// The begin of the compressed bytes in the file, if `crc` covers decoded bytes; nothing if it covers the file's
    /// own.
    std::optional<std::uint64_t> stream{};
  };
  /// An entry of which some bytes were read and others not.
  struct Open {
    Entry entry{};
    std::vector<Extent> missing{};  ///< of the file, or of the entry's stream
    std::uint64_t missing_bytes() const;
  };

  /// The parts of `bytes` (of the file, inside the entry) that were not taken before; the caller must settle them.
  std::vector<Extent> take(const Entry& entry, Extent bytes);
  struct Verdict {
    bool right = false;
    std::uint32_t computed = 0;
  };
  /// Takes the checksum of a part that `take` gave. When that completes the entry: whether it is the stored one.
  std::optional<Verdict> add(const Entry& entry, Extent bytes, std::uint32_t value);

  /// The entry was already compared: its bytes are ignored.
  void skip(const Entry& entry);

  /// Entries that are not complete, in the order of their files and places, and how many more were not followed.
  std::vector<Open> open() const;
  std::uint64_t unread() const;

  /// The partial entries, for a joiner that joins those of several ranks.
  std::string unfinished() const;
  /// Adds the state of another joiner of the same source; `complete` is called for each completed entry.
  void absorb(std::string_view unfinished, const std::function<void(const Entry&, const Verdict&)>& complete);

 private:
  struct Piece {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint32_t value = 0;
    bool settled = false;
  };
  struct Followed {
    Entry entry{};
    std::vector<Piece> pieces{};  // sorted, neighbours that are settled are one
    bool is_done() const;
  };
  struct Key {
    std::uint32_t file = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::optional<std::uint64_t> stream{};
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  static Key key_of(const Entry& entry) { return {entry.file, entry.crc.begin, entry.crc.end, entry.stream}; }
  bool make_room();

  mutable std::mutex mutex_;
  std::unordered_map<Key, Followed, KeyHash> entries_;  // guarded by mutex_
  std::size_t pieces_ = 0;                              // guarded by mutex_
  std::uint64_t not_followed_ = 0;                      // guarded by mutex_; parts that were turned away
};

}  // namespace ckpt
