#include "api/run/replica_load.hpp"

#include <fmt/format.h>

#include <atomic>
#include <thread>
#include <utility>

#include "engine/comm/heartbeat.hpp"
#include "engine/io/exceptions_to_result.hpp"
#include "loading/exchange.hpp"

namespace ckpt {
namespace {

constexpr auto kReadNap = std::chrono::milliseconds(1);  // between beats that wait for other ranks

}  // namespace

Result<ReplicaGroups> ReplicaLoad::groups(const Model& model) {
  if (comm_.ranks() == 1) return ReplicaGroups();
  const bool reads_itself = options_.replicas == Replicas::read || !comm_.has_messages() ||
                            (options_.replicas == Replicas::automatic && reading_is_faster_);
  const std::uint64_t word = model.hash.words()[0];
  std::uint64_t words[3] = {word, ~word, reads_itself ? 1U : 0U};
  CKPT_CHECK(comm_.max(words, deadline()));
  if (words[0] != ~words[1] || words[2] != 0) return ReplicaGroups();
  return ReplicaGroups(model, comm_.rank(), comm_.ranks());
}

/// Reads while the other ranks read: however unequal their shares are, a slow rank does not count as lost. Collective;
/// local failures are this rank's own, those of communication are peer_failed.
Result<ReadReport> ReplicaLoad::read_beside(const Read& read, Checkpoint::ReadOptions options) {
  Heartbeat heartbeat(comm_, options_.patience);
  std::atomic<bool> stop{false};
  Result<bool> beat = false;
  options.stop = &stop;
  options.pulse = [&] {
    if (beat) beat = heartbeat.beat(0, false);
    if (!beat || heartbeat.peer_failed()) stop.store(true);
  };
  auto report = exceptions_to_result([&] { return read(options); });
  const int code = report || report.error().code == Errc::interrupted ? 0 : static_cast<int>(report.error().code);
  for (bool over = false; !over;) {
    if (beat) beat = heartbeat.beat(code, true);
    if (!beat) return fail(std::move(beat).error());
    over = *beat;
    if (!over) std::this_thread::sleep_for(kReadNap);
  }
  return report;
}

/// Receives what other ranks have read for this rank, and measures whether it was worth it. Collective.
Result<> ReplicaLoad::exchange_parts(const DividedLoad& load, ReadReport& report, std::chrono::nanoseconds read_time) {
  CKPT_TRY(const std::uint64_t exchange_ns, exchange(comm_, options_.patience, load));
  report.received_bytes = load.received_bytes();
  report.needed_bytes += report.received_bytes;
  const std::uint64_t mib = report.read_bytes >> 20;
  std::uint64_t most[3] = {mib == 0 ? 0 : static_cast<std::uint64_t>(read_time.count()) / mib, report.received_bytes,
                           exchange_ns};
  CKPT_CHECK(comm_.max(most, deadline()));
  const ExchangeCost cost{.read_ns_a_mib = most[0], .received_bytes = most[1], .exchange_ns = most[2]};
  reading_is_faster_ = ckpt::reading_is_faster(cost);
  if (comm_.is_root() && reading_is_faster_ && options_.replicas == Replicas::automatic && options_.log) {
    options_.log(fmt::format("each rank now reads its own replicas: exchanging {} MiB took {} ms, longer than reading",
                             cost.received_bytes >> 20, cost.exchange_ns / 1'000'000));
  }
  return {};
}

Result<ReplicaLoad::Outcome> ReplicaLoad::load(const Checkpoint& checkpoint, std::span<const NamedRead> reads,
                                               const ReplicaGroups& groups, const Checkpoint::ReadOptions& options,
                                               Io& io, BufferPool& pool) {
  auto wanted = exceptions_to_result([&] { return checkpoint.requests(reads, options); });
  auto divided = exceptions_to_result([&]() -> Result<DividedLoad> {
    if (!wanted) return fail(wanted.error());
    return DividedLoad::plan(checkpoint.map(), wanted->parts, groups);
  });
  CKPT_TRY(const bool exchanges, DividedLoad::prove(comm_, deadline(), groups, divided ? &*divided : nullptr));
  std::chrono::nanoseconds read_time{0};
  auto report = read_beside(
      [&](const Checkpoint::ReadOptions& with) -> Result<ReadReport> {
        if (!divided) return fail(divided.error());
        const auto start = std::chrono::steady_clock::now();
        LoadPlan plan = divided->reads(checkpoint.map(), checkpoint.leaves(), {.whole_leaves = with.whole_leaves});
        auto done = checkpoint.read(wanted->parts, std::move(plan), io, pool, with);
        read_time = std::chrono::steady_clock::now() - start;
        return done;
      },
      options);
  // A rank stopped because another failed adds nothing to that reason.
  const bool only_stopped = !report && report.error().code == Errc::interrupted;
  Outcome outcome{.verdict = agree(comm_, deadline(), report || only_stopped ? Result<>() : fail(report.error()))};
  if (outcome.verdict && only_stopped) outcome.verdict = fail(report.error());
  if (!outcome.verdict) return outcome;
  if (exchanges) CKPT_CHECK(exchange_parts(*divided, *report, read_time));
  outcome.report = {.load = *report, .missing = std::move(wanted->missing)};
  return outcome;
}

}  // namespace ckpt
