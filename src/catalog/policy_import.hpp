#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "catalog/policy.hpp"

namespace ckpt::catalog {

/// Options of another system, by their own names: {"save_total_limit", "3"}.
using ForeignOptions = std::vector<std::pair<std::string, std::string>>;

struct ImportedPolicy {
  Policy policy{};
  std::vector<std::string> differences{};  ///< decisions that will differ, one sentence each
};

/// The systems, by the names that --import-policy takes.
std::span<const std::string> foreign_systems();

/// The nearest policy to the behaviour of a system with these options (its defaults for those not given), and the
/// differences. Systems and their sources:
///   orbax      CheckpointManagerOptions, v0 names and preservation policies
///   lightning  ModelCheckpoint
///   hf         TrainingArguments
///   tf         tf.train.CheckpointManager
///   megatron   save_retain_interval; most_recent_k of Megatron-Bridge
///   veloc      max_versions, scratch_versions
///   scr        SCR_PREFIX_SIZE
///   restic     forget --keep-*
///   borg       prune --keep-*
/// errors   usage: an unknown system or option (with the nearest known one), a value that it does not take, or options
///          with which the system keeps nothing
Result<ImportedPolicy> import_policy(std::string_view system, const ForeignOptions& options);

}  // namespace ckpt::catalog
