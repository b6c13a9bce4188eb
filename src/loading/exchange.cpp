#include "loading/exchange.hpp"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "engine/comm/heartbeat.hpp"
#include "engine/comm/message.hpp"
#include "engine/run/fetch.hpp"

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t kMessageBytes = std::uint64_t{4} << 20;
constexpr std::size_t kInFlight = 2;  // in each direction: one is in flight while the other is packed or unpacked
constexpr auto kBeat = std::chrono::milliseconds(1);
constexpr unsigned kSpins = 200;
constexpr auto kExchangeNap = std::chrono::microseconds(100);
// Less says nothing about the rates.
constexpr std::uint64_t kLeastMeasured = std::uint64_t{16} << 20;

/// The copy between a request's memory and a message, if its elements are contiguous.
Copy dense(const Copy& copy, bool to_message) {
  const std::uint32_t unit = unit_bytes(copy.to);
  Copy out{.from = copy.to, .through = copy.to, .to = copy.to, .unit = unit, .dims = copy.dims};
  (to_message ? out.source_offset : out.target_offset) = copy.target_offset;
  std::uint64_t stride = unit;
  for (std::size_t d = out.dims.size(); d-- > 0;) {
    Copy::Dim& dim = out.dims[d];
    dim.source_stride = to_message ? dim.target_stride : stride;
    if (to_message) dim.target_stride = stride;
    stride *= dim.count;
  }
  return out;
}

/// One direction of a round: data to, or from, one rank.
class Stream {
 public:
  Stream(Comm& comm, const DividedLoad& load, bool sends) : comm_(comm), load_(load), sends_(sends) {
    for (const LoadPlan::Scatter& scatter : load.scatters()) room_ = std::max(room_, target_volume(scatter.copy));
  }

  void begin(int peer) {
    peer_ = peer;
    scatters_ = sends_ ? load_.sent_to(peer) : load_.received_from(peer);
    next_ = 0;
  }
  bool is_over() const { return next_ == scatters_.size() && in_flight_ == 0; }

  /// True where something was started or has ended.
  Result<bool> advance() {
    bool moved = false;
    if (in_flight_ > 0) {
      CKPT_TRY(const bool done, slots_[oldest_].message->test());
      if (done) {
        if (!sends_) carry(slots_[oldest_]);
        oldest_ = (oldest_ + 1) % kInFlight;
        --in_flight_;
        moved = true;
      }
    }
    if (in_flight_ < kInFlight && next_ < scatters_.size()) {
      CKPT_CHECK(start(slots_[(oldest_ + in_flight_) % kInFlight]));
      ++in_flight_;
      moved = true;
    }
    return moved;
  }

 private:
  /// Some of the scatters, in one message.
  struct Slot {
    std::unique_ptr<Message> message{};
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  const LoadPlan::Scatter& scatter(std::size_t i) const { return load_.scatters()[scatters_[i]]; }

  Result<> start(Slot& slot) {
    if (!slot.message) slot.message = std::make_unique<Message>(comm_, static_cast<std::size_t>(room_));
    slot.begin = next_;
    std::uint64_t bytes = 0;
    for (; next_ < scatters_.size(); ++next_) {
      const std::uint64_t more = target_volume(scatter(next_).copy);
      if (bytes > 0 && bytes + more > kMessageBytes) break;  // equal on both sides
      bytes += more;
    }
    slot.end = next_;
    if (!sends_) return slot.message->receive(static_cast<std::size_t>(bytes), peer_);
    carry(slot);
    return slot.message->send(static_cast<std::size_t>(bytes), peer_);
  }

  /// Between the message and the memory.
  void carry(const Slot& slot) const {
    CastCounts counts;
    std::byte* at = slot.message->room().data();
    for (std::size_t i = slot.begin; i < slot.end; ++i) {
      const Copy& copy = scatter(i).copy;
      std::byte* out = load_.requests()[scatter(i).request].out;
      carry_out(dense(copy, sends_), sends_ ? out : at, 0, sends_ ? at : out, counts);
      at += target_volume(copy);
    }
  }

  Comm& comm_;
  const DividedLoad& load_;
  const bool sends_;
  int peer_ = 0;
  std::uint64_t room_ = kMessageBytes;
  std::vector<std::uint32_t> scatters_{};
  std::size_t next_ = 0;  // of scatters_
  Slot slots_[kInFlight];
  std::size_t oldest_ = 0;
  std::size_t in_flight_ = 0;
};

}  // namespace

Result<std::uint64_t> exchange(Comm& comm, std::chrono::milliseconds patience, const DividedLoad& load) {
  const int ranks = comm.ranks();
  const int rank = comm.rank();
  Heartbeat heartbeat(comm, patience);
  Stream out(comm, load, true);
  Stream in(comm, load, false);
  const auto start = Clock::now();
  auto last_moved = comm.now();
  auto last_beat = last_moved - kBeat;
  std::uint64_t took_ns = 0;
  unsigned idle_turns = 0;
  for (int round = 0;;) {
    while (round < ranks && out.is_over() && in.is_over()) {
      if (++round == ranks) {
        took_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
        break;
      }
      out.begin((rank + round) % ranks);
      in.begin((rank + ranks - round) % ranks);
    }
    const bool done = round == ranks;
    bool moved = false;
    if (!done) {
      CKPT_TRY(const bool sent, out.advance());
      CKPT_TRY(const bool received, in.advance());
      moved = sent || received;
    }
    const auto now = comm.now();
    if (moved) last_moved = now;
    if (now - last_beat >= kBeat) {
      const auto idle = std::chrono::duration_cast<std::chrono::milliseconds>(now - last_moved);
      CKPT_TRY(const bool over, heartbeat.beat(0, done, idle));
      if (over) return took_ns;
      if (heartbeat.least_idle() > patience) {
        comm.give_up();
        return fail(Errc::peer_failed, "exchange: no data moved between any ranks for too long");
      }
      last_beat = now;
    }
    idle_turns = moved ? 0 : idle_turns + 1;
    if (idle_turns > kSpins || done) {
      std::this_thread::sleep_for(kExchangeNap);
    } else if (idle_turns > 0) {
      std::this_thread::yield();
    }
  }
}

bool reading_is_faster(const ExchangeCost& cost) {
  if (cost.read_ns_a_mib == 0 || cost.received_bytes < kLeastMeasured) return false;
  const double mib = static_cast<double>(cost.received_bytes) / static_cast<double>(1 << 20);
  return static_cast<double>(cost.read_ns_a_mib) * mib < static_cast<double>(cost.exchange_ns);
}

}  // namespace ckpt
