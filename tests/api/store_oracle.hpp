#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "catalog/bucket.hpp"
#include "engine/io/io.hpp"
#include "support/memory_io.hpp"
#include "support/tiny_checkpoint.hpp"

/// What a store must hold, known from what was done to it and never asked of the code that is tested: it reads the
/// disk's bytes, manifests and the trash's records, and nothing else.
namespace ckpt::test {

inline const std::string kOracleStore = "/store";

/// A checkpoint that was committed once.
struct Known {
  std::string run{};
  std::string name{};
  std::uint64_t step = 0;
  std::uint64_t generation = 0;
  std::uint64_t series = 0;
  std::optional<std::uint64_t> series_from{};
  catalog::Time created{};
  std::string id{};
  Tree files{};  ///< as they were committed, without marks; of a damaged one as they are since

  // What was said of it.
  bool verified = false;
  bool known_damaged = false;  ///< a mark says that damage was found
  bool damaged = false;        ///< a file is cut short, and nobody knows
  bool unreadable = false;     ///< its manifest cannot be read just now
  bool marks_torn = false;     ///< nobody can tell what was said
  bool pinned_for_good = false;
  std::optional<catalog::Time> pinned_until{};
  std::unique_ptr<HeldLock> reader{};

  enum class Where : std::uint8_t { live, trash, gone } where = Where::live;
  bool demoted = false;        ///< its optimizer is not with it
  bool optimizer_kept = true;  ///< it is with it, or in the trash
  catalog::Time purge_at{};    ///< in the trash: until then it can be brought back
  catalog::Time optimizer_purge_at{};

  // Gone so far that no power loss brings it back: a record alone, written and not yet durable, may be undone.
  bool removal_began = false;
  bool optimizer_removal_began = false;

  bool is_pinned(catalog::Time now) const { return pinned_for_good || (pinned_until && now < *pinned_until); }
  std::string path() const { return kOracleStore + "/" + run + "/" + name; }
  std::string trash_path() const { return kOracleStore + "/.ckpt/trash/" + run + "/" + name; }
};

class StoreOracle {
 public:
  std::deque<Known> known{};  ///< in the order of their commits

  /// Which of them no prune may delete or demote, whatever its policy.
  std::set<const Known*> must_stay(catalog::Time now, catalog::Duration grace, bool include_damaged,
                                   const std::set<std::uint64_t>& drop_series) const;

  /// "" where each of them is whole in exactly one of the two places, or is gone or going with a record that says so
  /// and was neither protected before nor within its grace; else what is wrong. What is true now is then known.
  ///
  /// settled  false: a process has just died in the middle of a demotion, perhaps; its halves may wait
  /// stays    of must_stay, before
  std::string look(const MemoryDisk& disk, catalog::Time now, bool settled, const std::set<const Known*>& stays,
                   catalog::Duration grace);

 private:
  bool superseded(const Known& one) const;
};

/// The files below a directory, without marks and what their writing left.
Tree tree_below(const MemoryDisk& disk, const std::string& directory);

}  // namespace ckpt::test
