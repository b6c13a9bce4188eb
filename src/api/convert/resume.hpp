#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "engine/publish/publish.hpp"
#include "engine/run/crc_joiner.hpp"
#include "engine/run/plan.hpp"
#include "engine/run/run.hpp"

/// Resumes a killed conversion of the same id.
namespace ckpt {

/// For Publication::Options::resumable: a hash of everything besides the conversion's id on which a leaf of the plan
/// and its report depend. `checks_crc`: as in RunOptions.
Hash128 resume_hash(const Plan& plan, bool checks_crc);

/// The finished leaves of a killed run that are right.
struct Resumed {
  std::vector<RecordedLeaf> leaves{};  ///< on rank 0, by leaf; no hash: to be made; empty: nothing to resume
  std::uint64_t leaf_count = 0;        ///< resumed; on all ranks, as the next
  std::uint64_t bytes = 0;
  std::uint32_t reader = 0;       ///< this rank's, for RunOptions
  std::uint64_t read_bytes = 0;   ///< of the source, again; of this rank
  std::uint64_t crc_checked = 0;  ///< by that; of this rank

  /// Fills in the skipped leaves, on rank 0.
  void add_to(RunReport& report) const;
};

/// The context of a resumed run.
struct TakeUp {
  const Publication* publication = nullptr;  ///< rank 0's; the others have none
  std::string target_root;
  std::string source_root;
  /// Of this rank's run; null where checksums are not compared.
  CrcJoiner* crcs = nullptr;
  /// Of this rank's run, for the plan's targets: takes the parts of late fields' ranges in finished leaves.
  LateFields* late = nullptr;
};

/// For an entry with a checksum that the plan needs in part, at most this much more is read: the padding at the end of
/// a partition, not the gigabytes around one tensor.
constexpr std::uint64_t kMostReadForChecksum = kLeafBytes;

/// Not collective, after the run, on the rank whose joiner has everything: reads padding of the source's entries within
/// kMostReadForChecksum, and adds the results to the report.
/// errors  checksum
Result<> read_padding(Session& session, const Plan& plan, const RunOptions& options, RunReport& report);

/// Collective, between the publication's begin and the run: reads and hashes the leaves that the record calls finished,
/// on all ranks, and removes matching ones from their plans. Of those, it reads from the source again, and hashes, the
/// ones with a part of a checksummed entry that was not read by one reader alone, so that with the run's own reads, and
/// read_padding, every entry is compared.
/// errors  checksum: an entry does not match its checksum, or the source differs from the target
Result<Resumed> take_up(Session& session, Plan& plan, const TakeUp& how);

/// What a failed conversion leaves: all finished leaves if the same command may succeed (it was stopped, or ranks were
/// lost), with a hint; else nothing. `publication` may be null, on ranks other than 0.
Error keep_for_resume(Publication* publication, Error error);

/// Names leftovers of other conversions to this target and, if nothing is to be written, that of this
/// one.
Result<std::vector<Finding>> find_leftovers(Io& io, const std::string& target, const std::string& id, bool dry_run);

}  // namespace ckpt
