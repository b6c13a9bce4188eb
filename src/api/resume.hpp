#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "engine/plan.hpp"
#include "engine/publish.hpp"
#include "engine/run.hpp"

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

  /// Fills in what the run left out, on rank 0.
  void add_to(RunReport& report) const;
};

/// Collective, between the publication's begin and the run: reads and hashes what the record calls finished, on all
/// ranks, and leaves out of their plans what is right. `publication` is rank 0's; the others pass null.
Result<Resumed> take_up(Session& session, Plan& plan, const Publication* publication, const std::string& root);

/// What a conversion that fails leaves: where the same command may well succeed (it was stopped, or ranks were lost)
/// all that is finished, and the hint says so; else nothing. `publication` may be null, on ranks other than 0.
Error leave_for_next(Publication* publication, Error error);

/// Names what other conversions to this target have left beside it and, where nothing is to be written, what this one
/// has.
Result<std::vector<Finding>> find_left_overs(Io& io, const std::string& target, const std::string& id, bool dry_run);

}  // namespace ckpt
