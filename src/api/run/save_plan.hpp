#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "catalog/curve.hpp"
#include "catalog/interval.hpp"
#include "catalog/model_bytes.hpp"
#include "format/result.hpp"

/// How often to save, its cost and its needs: `ckpt plan`. Measures and reads nothing.
namespace ckpt {

struct SavePlanRequest {
  double parameters = 0;
  std::string precision = "mixed";      ///< catalog::state_preset
  std::optional<double> state_bytes{};  ///< saved, a parameter; instead of the preset's
  catalog::Sharding sharding{};
  double bandwidth = 0;             ///< bytes a second of the storage, for all ranks together
  std::optional<double> stall_s{};  ///< of an asynchronous save; nothing: only blocking saves are planned
  double local_bandwidth = 0;       ///< of the nodes' own disks together; 0: no tiers are planned
  double node_loss = 0.5;           ///< part of the failures that take a node's disk along, for tiers
  double restart_s = 0;             ///< detect, restart, load
  double mtbf_s = 0;                ///< of the whole job; 0: unknown
  double mtbf_low_s = 0;            ///< its 10 % and 90 % quantiles; 0: half and twice of it
  double mtbf_high_s = 0;
  double trash_s = 86'400;          ///< how long deleted checkpoints stay in the trash
  double rework_s = 0;              ///< work that may be lost; 0 = no limit given
  double step_s = 0;                ///< 0 = unknown
  std::vector<std::string> keep{};  ///< values of --keep
  std::optional<catalog::RankMemory> rank_memory{};
  std::uint64_t gpus = 0;  ///< of the job; 0: as many as ranks, if there are several
};

/// One way to save: "blocking", "async", or "tiers": asynchronous to the nodes' own disks, with every k-th save drained
/// to the storage.
struct SaveChoice {
  std::string name{};
  catalog::Costs costs{};
  double young_s = 0;
  double daly_s = 0;
  double best_s = 0;
  catalog::BaseRule base{};
  double chosen_s = 0;      ///< best_s, or the base rule's where nothing is known of failures; never below the drain
  std::string reason{};     ///< what decides: "failure rate", "drain", "overhead cap", "rework"
  std::uint64_t steps = 0;  ///< chosen_s in whole steps; 0: the time of a step is unknown
  double overhead = 0;      ///< at chosen_s: stalls, of running time
  double lost = 0;          ///< at chosen_s: 1 - goodput; only with a failure rate
  double lost_base = 0;     ///< the same at the base rule's
  double loss_at_failure_s = 0;
  double lost_low = 0;             ///< `lost` at the 90 % quantile of the MTBF
  double lost_high = 0;            ///< and at the 10 % one
  std::uint64_t remote_every = 0;  ///< of tiers: every k-th save is drained; their `lost` is of first order
  double host_bytes = 0;           ///< of a rank: memory of a save in flight, besides its buffers
};

/// How the choices change if a number is different.
struct Sensitivity {
  std::string name{};                 ///< "bandwidth x 1/2"
  std::vector<SaveChoice> choices{};  ///< as in the plan
};

/// The requirements of a model of common size, with the precision and the sharding of the request.
struct ModelSize {
  std::string name{};  ///< "7B"
  double parameters = 0;
  catalog::DiskBytes disk{};
  std::vector<catalog::MemoryBytes> memory{};
  std::optional<std::size_t> fits{};  ///< the first row of `memory` that fits rank_memory
};

struct SavePlan {
  catalog::DiskBytes disk{};
  double write_s = 0;
  std::vector<SaveChoice> choices{};    ///< blocking first
  double bandwidth_wanted = 0;          ///< for a blocking save that meets rework_s within 5 %; 0 = no limit given
  std::optional<std::uint64_t> kept{};  ///< checkpoints at most; nothing: without a bound, or no --keep
  bool unbounded = false;               ///< a rule of --keep has no limit
  std::vector<catalog::MemoryBytes> memory{};
  std::optional<std::size_t> fits{};  ///< the first row of `memory` that fits rank_memory
  std::vector<ModelSize> models{};    ///< 7B, 13B, 70B, 175B, and that of the request, the smallest first
  std::size_t chosen = 0;     ///< of `choices`: that which loses least (of two nearly equal ones the first); without a
                              ///< failure rate, that stalls least
  std::string explanation{};  ///< the reason for the choice, and what determines its interval
  std::string limit{};        ///< what determines its interval
  std::uint64_t gpus = 0;     ///< of the job; 0 = not known
  std::vector<Sensitivity> sensitivity{};  ///< only with a failure rate
  double bytes_a_day = 0;                  ///< written, at the chosen interval
  std::uint64_t trashed = 0;               ///< checkpoints in the trash at most, at the chosen interval
  double peak_bytes = 0;                   ///< kept, in the trash and being written; 0: not known, or without a bound
  std::vector<std::string> warnings{};
};

/// errors   usage: no parameters, no bandwidth, an unknown preset, a rule that cannot be read
Result<SavePlan> plan_saves(const SavePlanRequest& request);

/// The share of time that a choice loses: `lost`, or without a failure rate that of its stalls.
double lost_share(const SaveChoice& choice);
/// The same in GPU hours a day; 0 where the GPUs are not known.
double gpu_hours_a_day(const SavePlan& plan, const SaveChoice& choice);

/// The greatest number of checkpoints in the trash, if a prune after each save deletes one and purges those older than
/// `trash_s`.
std::uint64_t most_in_trash(double trash_s, double between_saves_s);

/// The curve of one choice, from a third of its shortest interval to ten times the longest; and its intervals by name.
std::vector<catalog::CurvePoint> curve_of(const SaveChoice& choice, std::size_t count);
std::vector<catalog::CurveMark> marks_of(const SaveChoice& choice);

}  // namespace ckpt
