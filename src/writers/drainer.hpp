#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/run/buffer_pool.hpp"
#include "writers/background.hpp"
#include "writers/drain.hpp"

namespace ckpt {

/// One thread that drains checkpoints, one after another in the order given, and then thins out the local tier. Its
/// memory is a few leaves. It talks to no other rank.
class Drainer {
 public:
  static Result<std::unique_ptr<Drainer>> open(Io& io, DrainOptions options);
  ~Drainer() { finish(); }
  Drainer(const Drainer&) = delete;
  Drainer& operator=(const Drainer&) = delete;

  /// `done` gets the name in the run's directory, on the thread of this.
  void add(std::string name, std::function<void(Result<std::string> name, double seconds)> done);
  /// Several nodes: one step of a drain, or its end. Executed in the given order.
  using Step =
      std::function<void(Io& io, BufferPool& pool, const DrainOptions& options, const std::atomic<bool>& stop)>;
  void add_step(Step step);
  /// Thins out the local tier, after the last step.
  void add_retire();
  /// Generations below this are taken in the run's directory, as far as is known here. Any thread.
  std::uint64_t least_generation() const { return least_generation_.load(); }
  /// Interrupts the running drain and drops waiting ones: the local tier still holds them. Nothing is added afterwards.
  void finish();
  /// Messages for users, returned once.
  std::vector<std::string> take_notes();

 private:
  explicit Drainer(DrainOptions options) : options_(std::move(options)) {}
  Result<std::string> drain_one(Io& io, const std::string& name);
  void retire(Io& io);
  void note(std::string text);

  const DrainOptions options_;
  std::unique_ptr<BufferPool> pool_{};
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> least_generation_{1};
  std::set<std::string> kept_{};  // copies of which was said that they stay; the thread's
  std::mutex mutex_{};
  std::vector<std::string> notes_{};      // guarded by mutex_
  std::unique_ptr<Background> thread_{};  // last: its tasks use all of the above
};

}  // namespace ckpt
