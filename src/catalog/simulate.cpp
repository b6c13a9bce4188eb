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
      note_moment(step);
      if (schedule_.until - step < schedule_.interval) break;
    }
    finish();
    return out_;
  }

 private:
  struct Retired {
    Time deleted;
    std::uint64_t weights_bytes;
    std::uint64_t optimizer_bytes;
    std::uint64_t bytes() const { return plus(weights_bytes, optimizer_bytes); }
  };

  Result<> check() const {
    if (schedule_.interval == 0 || schedule_.until < schedule_.interval)
      return fail(Errc::usage, "expected an interval of at least 1 step, and at least one save until the end");
    if (schedule_.until / schedule_.interval > kMostSimulatedSaves)
      return fail(Errc::usage,
                  fmt::format("{} saves, more than {}", schedule_.until / schedule_.interval, kMostSimulatedSaves));
    const std::int64_t step_ms = std::max<std::int64_t>(schedule_.step_time.count(), 1);
    const std::int64_t most = std::numeric_limits<std::int64_t>::max() / 4 / step_ms;
    if (schedule_.until > static_cast<std::uint64_t>(most)) return fail(Errc::usage, "more time than can be counted");
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
    purge();
    reuse(one);
    live_.push_back(std::move(one));
    std::uint64_t bytes = 0;
    for (const Checkpoint& each : live_) bytes = plus(bytes, each.bytes);
    for (const Retired& each : trash_) bytes = plus(bytes, each.bytes());
    for (const Retired& each : recycled_) bytes = plus(bytes, each.bytes());
    if (bytes <= out_.peak_bytes) return;
    out_.peak_bytes = bytes;
    out_.peak_step = step;
  }

  /// Expired sets are purged, or wait for the next save if they are among the newest allowed.
  void purge() {
    for (; !trash_.empty() && trash_.front().deleted + policy_.trash.ttl <= now_; trash_.pop_front())
      recycled_.push_front(trash_.front());
    make_way();
  }

  void make_way() {
    std::ranges::stable_sort(recycled_, {}, &Retired::deleted);
    while (recycled_.size() > policy_.trash.recycle) recycled_.pop_front();
  }

  /// A save reuses waiting sets, the oldest first.
  void reuse(const Checkpoint& one) {
    std::uint64_t weights = one.bytes - one.optimizer_bytes;
    std::uint64_t optimizer = one.optimizer_bytes;
    const auto take = [&](std::uint64_t& there, std::uint64_t& wanted) {
      const std::uint64_t taken = std::min(there, wanted);
      there -= taken;
      wanted -= taken;
      out_.reused_bytes = plus(out_.reused_bytes, taken);
    };
    for (Retired& each : recycled_) {
      take(each.weights_bytes, weights);
      take(each.optimizer_bytes, optimizer);
    }
    std::erase_if(recycled_, [](const Retired& each) { return each.bytes() == 0; });
  }

  Result<> prune() {
    CKPT_TRY(const Retention plan, retain(live_, policy_, {.now = now_, .approved = true}));
    std::vector<Checkpoint> left;
    std::vector<Retired> going;  // oldest first
    for (std::size_t i = 0; i < live_.size(); ++i) {
      const Decision& decision = plan.decisions[i];
      if (decision.bytes_freed != 0) {
        const std::uint64_t optimizer = std::min(live_[i].optimizer_bytes, decision.bytes_freed);
        going.push_back({now_, decision.bytes_freed - optimizer, optimizer});
      }
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
    for (std::size_t i = 0; i < going.size(); ++i)
      (going.size() - i <= policy_.trash.recycle ? recycled_ : trash_).push_back(going[i]);
    make_way();
    measure_losses();
    return {};
  }

  /// At every tenth of the saves.
  void note_moment(std::uint64_t step) {
    const std::uint64_t saves = schedule_.until / schedule_.interval;
    const std::uint64_t tenth = out_.saves * kMoments / saves;
    if (tenth == (out_.saves - 1) * kMoments / saves) return;
    SimulatedMoment& moment = out_.moments.emplace_back(SimulatedMoment{.step = step});
    for (const Checkpoint& one : live_) {
      const bool weights_only = schedule_.optimizer_bytes != 0 && one.optimizer_bytes == 0;
      moment.kept.push_back({.step = one.step, .weights_only = weights_only});
      moment.bytes = plus(moment.bytes, one.bytes);
    }
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
  std::deque<Retired> trash_{};     ///< next to be purged first
  std::deque<Retired> recycled_{};  ///< wait for the next save, oldest first
  Simulation out_{};
};

}  // namespace

Result<Simulation> simulate(const Policy& policy, const Schedule& schedule) {
  return Simulator(policy, schedule).run();
}

}  // namespace ckpt::catalog
