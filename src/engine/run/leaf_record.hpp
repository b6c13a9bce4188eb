#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/io.hpp"
#include "format/hash.hpp"
#include "format/model/cast.hpp"
#include "format/result.hpp"

/// Which leaves of an unfinished target are finished, for the run that resumes after a kill: a table next to the
/// partial, with one slot per leaf (docs/store-files.md). It is trusted only after the leaf itself was read and hashed,
/// so it is never synced: a lost slot costs that leaf only.
namespace ckpt {

/// The record of a finished leaf. Without a hash it is unfinished.
struct RecordedLeaf {
  Hash128 hash{};
  CastCounts casts{};             ///< of its values
  std::uint64_t crc_checked = 0;  ///< checksums of the source compared for it
  /// The reader of its source: a number for each process that worked on the partial. A checksum over bytes of several
  /// leaves was compared before the last of them was finished if they all have one reader.
  std::uint32_t reader = 0;

  bool is_finished() const { return hash != Hash128{}; }
};

/// The path of a partial's record: next to it, with ".partial-" in the name.
std::string record_path(std::string_view partial);
/// Whether a path is that of a record; of which partial.
bool is_record(std::string_view path, std::string& partial);

/// Identifies a record: this conversion, divided into these leaves, in this partial (an --overwrite may leave the
/// replaced target under the partial's name).
struct RecordKey {
  std::string id{};          ///< of the conversion
  Hash128 plan{};            ///< of everything else that the leaves' bytes depend on
  std::uint64_t inode = 0;   ///< of the partial
  std::uint64_t leaves = 0;  ///< slots
};

/// Bytes of a record.
std::uint64_t record_bytes(std::uint64_t leaves);
/// Makes a record in which no leaf is finished, with its space. An existing record is replaced.
Result<> make_record(Io& io, const std::string& path, const RecordKey& key);
/// Its slots, by leaf; empty if there is no record of this key.
Result<std::vector<RecordedLeaf>> read_record(Io& io, const std::string& path, const RecordKey& key);
/// Removes a record, which need not exist.
Result<> remove_record(Io& io, const std::string& path);

/// A worker's hand on the record: slots are written one `every` at most, those of neighbours together, as ranks on
/// several nodes share the file. One thread.
class LeafRecorder {
 public:
  /// `path`: "" where nothing is recorded. `io` outlives this.
  LeafRecorder(Io& io, std::string path, std::chrono::milliseconds every);
  /// The leaf's bytes have been written.
  Result<> finished(std::uint64_t leaf, const RecordedLeaf& what);
  /// Writes what waits.
  Result<> flush();
  Result<> close();

 private:
  Io& io_;
  std::string path_;
  std::chrono::milliseconds every_;
  FileHandle file_{};
  std::chrono::steady_clock::time_point last_flush_{};
  std::map<std::uint64_t, RecordedLeaf> waiting_;
};

}  // namespace ckpt
