#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "engine/publish/publish.hpp"
#include "engine/run/crc_ledger.hpp"
#include "engine/run/plan.hpp"
#include "engine/run/run.hpp"

/// Going on where a conversion of the same id was killed.
namespace ckpt {

/// For Publication::Options::resumable: of everything that a leaf of the plan and what is told of it depend on beside
/// the conversion's id. `checks_crc`: as in RunOptions.
Hash128 resume_hash(const Plan& plan, bool checks_crc);

/// What a run that was killed had finished and is right.
struct Resumed {
  std::vector<RecordedLeaf> leaves{};  ///< on rank 0, by leaf, without a hash where it is to be made; empty = afresh
  std::uint64_t leaf_count = 0;        ///< taken over; on all ranks, as the next
  std::uint64_t bytes = 0;
  std::uint32_t reader = 0;       ///< this rank's, for RunOptions
  std::uint64_t read_bytes = 0;   ///< of the source, again; of this rank
  std::uint64_t crc_checked = 0;  ///< by that; of this rank

  /// Fills in what the run left out, on rank 0.
  void add_to(RunReport& report) const;
};

/// Where a run that goes on works.
struct TakeUp {
  const Publication* publication = nullptr;  ///< rank 0's; the others have none
  std::string target_root;
  std::string source_root;
  /// Of this rank's run; null where checksums are not compared.
  CrcLedger* crcs = nullptr;
  /// Of this rank's run, for the plan's targets: learns what finished leaves hold of the ranges of late fields.
  LateLedger* late = nullptr;
};

/// Of an entry with a checksum of which the plan needs a part, so much more is read for its sake: the padding at the
/// end of a partition, not the gigabytes around one tensor.
constexpr std::uint64_t kMostReadForChecksum = kLeafBytes;

/// Not collective, after the run, on the rank whose ledger has all: reads of the source's entries what no tensor needs,
/// within kMostReadForChecksum, and adds what it did to the report.
/// errors  checksum
Result<> read_padding(Session& session, const Plan& plan, const RunOptions& options, RunReport& report);

/// Collective, between the publication's begin and the run: reads and hashes what the record calls finished, on all
/// ranks, and leaves out of their plans what is right. Of those, it reads from the source again, and hashes, what holds
/// a part of a checksummed entry that no single reader had whole, so that with the run's own reads, and read_padding,
/// every entry is compared.
/// errors  checksum: an entry is not what its format says, or the source does not give what stands in the target
Result<Resumed> take_up(Session& session, Plan& plan, const TakeUp& how);

/// What a conversion that fails leaves: where the same command may well succeed (it was stopped, or ranks were lost)
/// all that is finished, and the hint says so; else nothing. `publication` may be null, on ranks other than 0.
Error leave_for_next(Publication* publication, Error error);

/// Names what other conversions to this target have left beside it and, where nothing is to be written, what this one
/// has.
Result<std::vector<Finding>> find_left_overs(Io& io, const std::string& target, const std::string& id, bool dry_run);

}  // namespace ckpt
