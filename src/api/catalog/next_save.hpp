#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "catalog/interval_policy.hpp"
#include "catalog/scan/entry.hpp"
#include "catalog/scan/run_history.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

/// Whether a run should save now, for trainers that do not link the library: `ckpt next-save`. The same answer as
/// should_save in a job, computed from the store.
namespace ckpt {

using catalog::IntervalRules;

struct NextSaveRequest {
  std::string store;
  std::string run;
  std::optional<std::uint64_t> step{};   ///< that has just ended; nothing: only time rules apply
  std::optional<IntervalRules> rules{};  ///< replaces [interval] of STORE/ckpt.toml
  std::optional<double> mtbf_s{};        ///< replaces values of the rules
  std::optional<double> restart_s{};
  std::optional<double> step_s{};       ///< replaces values measured from the run's saves
  std::optional<double> time_left_s{};  ///< until the job's time limit
  catalog::Time now{};
};

struct NextSaveReport {
  IntervalRules rules{};
  std::string source{};                  ///< "ckpt.toml", "the command line"
  std::optional<catalog::Entry> last{};  ///< measured from: the newest save; where `step` is lower, of those up to it
  bool rolled_back = false;              ///< there are later steps than the one that is asked about
  catalog::RunHistory history{};
  catalog::MeasuredCosts measured{};  ///< with the failure rate that was used
  catalog::NextSave next{};
  std::optional<catalog::Time> due_at{};  ///< by the rules of time
  std::uint64_t unusable = 0;             ///< checkpoints of the run, where none can be used
  std::vector<std::string> warnings{};
};

/// errors  usage: no rules, neither in the request nor in the file; of parse_policy_file; not_found: the store
Result<NextSaveReport> next_save(Io& io, const NextSaveRequest& request);

}  // namespace ckpt
