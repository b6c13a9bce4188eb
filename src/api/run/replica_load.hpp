#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "api/run/checkpoint.hpp"
#include "engine/comm/comm.hpp"
#include "engine/io/io.hpp"
#include "engine/run/buffer_pool.hpp"
#include "format/universal/declared_model.hpp"
#include "format/universal/replica_groups.hpp"
#include "loading/divided_load.hpp"

namespace ckpt {

/// How a load reads replicated data.
enum class Replicas : std::uint8_t {
  automatic,  ///< divided and exchanged, until a load has shown that reading is faster
  read,       ///< by each rank for itself
  exchange,   ///< divided among those ranks, each of which sends its share to the others
};

/// How all ranks read from one checkpoint: replicated data that all its holders request is read by one of them. Which
/// checkpoint is decided elsewhere. One thread.
class ReplicaLoad {
 public:
  struct Options {
    std::chrono::milliseconds patience{60'000};
    Replicas replicas = Replicas::automatic;
    std::function<void(const std::string&)> log{};
  };
  ReplicaLoad(Comm& comm, Options options) : comm_(comm), options_(std::move(options)) {}

  /// The groups of ranks with the same data, if all ranks agree and none chose to read by itself; else none.
  /// Collective.
  Result<ReplicaGroups> groups(const Model& model);

  struct Outcome {
    Result<> verdict{};  ///< of the checkpoint, on all ranks: nothing was exchanged if one could not read its part
    Checkpoint::Report report{};
  };
  /// Collective.
  /// errors  of communication
  Result<Outcome> load(const Checkpoint& checkpoint, std::span<const NamedRead> reads, const ReplicaGroups& groups,
                       const Checkpoint::ReadOptions& options, Io& io, BufferPool& pool);

 private:
  using Read = std::function<Result<ReadReport>(const Checkpoint::ReadOptions&)>;
  Deadline deadline() const { return comm_.now() + options_.patience; }
  Result<ReadReport> read_beside(const Read& read, Checkpoint::ReadOptions options);
  Result<> exchange_parts(const DividedLoad& load, ReadReport& report, std::chrono::nanoseconds read_time);

  Comm& comm_;
  const Options options_;
  bool reading_is_faster_ = false;  // than exchanging: the same on all ranks
};

}  // namespace ckpt
