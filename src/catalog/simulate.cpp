#include "catalog/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <vector>

#include "catalog/retain.hpp"

namespace ckpt::catalog {
namespace {

/// Of sums that only inform.
std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? UINT64_MAX : out;
}

class Simulator {
 public:
  Simulator(const Policy& policy, const Schedule& schedule) : policy_(policy), schedule_(schedule) {}

  Result<Simulation> run() {
    CKPT_CHECK(check());
    for (std::uint64_t step = schedule_.interval;; step += schedule_.interval) {
      save(step);
      CKPT_CHECK(prune());
      if (schedule_.until - step < schedule_.interval) break;
    }
    finish();
    return out_;
  }

 private:
  struct Trashed {
    Time purge_at;
    std::uint64_t bytes;
  };

  Result<> check() const {
    if (schedule_.interval == 0 || schedule_.until < schedule_.interval)
      return fail(Errc::usage, "simulate: an interval of at least 1 step, and at least one save until the end");
    if (schedule_.until / schedule_.interval > kMostSimulatedSaves)
      return fail(Errc::usage, fmt::format("simulate: {} saves, more than {}", schedule_.until / schedule_.interval,
                                           kMostSimulatedSaves));
    const std::int64_t step_ms = std::max<std::int64_t>(schedule_.step_time.count(), 1);
    const std::int64_t most = std::numeric_limits<std::int64_t>::max() / 4 / step_ms;
    if (schedule_.until > static_cast<std::uint64_t>(most))
      return fail(Errc::usage, "simulate: more time than can be counted");
    return {};
  }

  void save(std::uint64_t step) {
    ++out_.saves;
    now_ = Time(schedule_.step_time * static_cast<std::int64_t>(step));
    Checkpoint one;
    one.id = fmt::format("{:032x}", step);
    one.run = "simulated";
    one.step = step;
    one.generation = out_.saves;
    one.created = now_;
    one.state = State::verified;
    one.bytes = schedule_.bytes;
    one.optimizer_bytes = std::min(schedule_.optimizer_bytes, schedule_.bytes);
    live_.push_back(std::move(one));
    while (!trash_.empty() && trash_.front().purge_at <= now_) trash_.pop_front();
    std::uint64_t bytes = 0;
    for (const Checkpoint& each : live_) bytes = plus(bytes, each.bytes);
    for (const Trashed& each : trash_) bytes = plus(bytes, each.bytes);
    if (bytes <= out_.peak_bytes) return;
    out_.peak_bytes = bytes;
    out_.peak_step = step;
  }

  Result<> prune() {
    CKPT_TRY(const Retention plan, retain(live_, policy_, {.now = now_, .approved = true}));
    std::vector<Checkpoint> left;
    for (std::size_t i = 0; i < live_.size(); ++i) {
      const Decision& decision = plan.decisions[i];
      if (decision.bytes_freed != 0) trash_.push_back({now_ + policy_.trash.ttl, decision.bytes_freed});
      if (decision.action == Action::trash) {
        ++out_.trashed;
        continue;
      }
      if (decision.action == Action::demote) {
        ++out_.demoted;
        live_[i].bytes -= decision.bytes_freed;
        live_[i].optimizer_bytes = 0;
      }
      left.push_back(std::move(live_[i]));
    }
    live_ = std::move(left);
    measure_losses();
    return {};
  }

  /// live_ stays in the order of steps.
  void measure_losses() {
    for (std::size_t i = 0; i < live_.size(); ++i) {
      const std::uint64_t step = live_[i].step;
      const std::uint64_t before = step - (i == 0 ? 0 : live_[i - 1].step);  // or from the beginning
      const std::uint64_t after = i + 1 == live_.size() ? UINT64_MAX : live_[i + 1].step - step;
      const std::uint64_t loss = std::min(before, after);
      if (loss <= out_.worst_loss) continue;
      out_.worst_loss = loss;
      out_.worst_loss_step = step;
    }
    if (live_.empty()) return;
    const std::uint64_t older = live_.size() < 2 ? 0 : live_[live_.size() - 2].step;
    out_.worst_rework = std::max(out_.worst_rework, plus(live_.back().step - older, schedule_.interval));
  }

  void finish() {
    out_.kept = live_.size();
    std::uint64_t before = 0;
    for (const Checkpoint& one : live_) {
      out_.kept_bytes = plus(out_.kept_bytes, one.bytes);
      if (one.step - before > out_.worst_gap) {
        out_.worst_gap = one.step - before;
        out_.worst_gap_begin = before;
      }
      before = one.step;
    }
  }

  const Policy& policy_;
  const Schedule& schedule_;
  Time now_{};
  std::vector<Checkpoint> live_{};  ///< oldest first
  std::deque<Trashed> trash_{};     ///< next to be purged first
  Simulation out_{};
};

}  // namespace

Result<Simulation> simulate(const Policy& policy, const Schedule& schedule) {
  return Simulator(policy, schedule).run();
}

}  // namespace ckpt::catalog
