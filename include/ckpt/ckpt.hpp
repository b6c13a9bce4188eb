#pragma once

// libckpt for C++20: a header over the C interface. ckpt/ckpt.h documents each function: what it does, whether it is
// collective, its failures. Here handles release themselves, failures are values, and callbacks may be lambdas. Nothing
// throws except std::bad_alloc. See examples/minimal.cpp.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/ckpt.h"
#include "ckpt/model.hpp"
#include "ckpt/result.hpp"

namespace ckpt {
inline namespace v1 {

/// A save after commit: it is written in the background.
class Pending {
 public:
  /// Waits until the checkpoint is durable on all ranks; 11 on timeout. Collective.
  Result<> wait(std::chrono::milliseconds timeout) { return detail::check(ckpt_wait(pending_.get(), timeout.count())); }
  /// True when the save has ended; an error if it failed. Local.
  Result<bool> poll() {
    int done = 0;
    if (const int code = ckpt_poll(pending_.get(), &done)) return detail::failure(code);
    return done != 0;
  }
  /// The callback gets the outcome once, 0 or a failure: see ckpt_on_durable for the thread and what it may do.
  Result<> on_durable(std::function<void(int code)> callback) {
    return set_callback(&ckpt_on_durable, std::move(callback));
  }
  /// The same three for drained: the save is in the run directory. Without a local directory, drained means durable.
  Result<> wait_drained(std::chrono::milliseconds timeout) {
    return detail::check(ckpt_wait_drained(pending_.get(), timeout.count()));
  }
  Result<bool> poll_drained() {
    int done = 0;
    if (const int code = ckpt_poll_drained(pending_.get(), &done)) return detail::failure(code);
    return done != 0;
  }
  Result<> on_drained(std::function<void(int code)> callback) {
    return set_callback(&ckpt_on_drained, std::move(callback));
  }
  /// The name of the checkpoint in its directory once it is durable, else "".
  std::string name() const { return ckpt_pending_name(pending_.get()); }
  ckpt_stats stats() const {
    ckpt_stats stats{};
    stats.size = sizeof stats;
    static_cast<void>(ckpt_pending_stats(pending_.get(), &stats));
    return stats;
  }

 private:
  friend class Save;
  explicit Pending(ckpt_pending* pending) : pending_(pending) {}
  Result<> set_callback(int (*on)(ckpt_pending*, void (*)(void*, int), void*), std::function<void(int code)> callback) {
    auto kept = std::make_unique<std::function<void(int)>>(std::move(callback));
    const int code = on(
        pending_.get(),
        [](void* user, int outcome) {
          const std::unique_ptr<std::function<void(int)>> mine(static_cast<std::function<void(int)>*>(user));
          (*mine)(outcome);
        },
        kept.get());
    if (code == 0) static_cast<void>(kept.release());  // the call releases it
    return detail::check(code);
  }
  std::unique_ptr<ckpt_pending, detail::Release<ckpt_pending_free>> pending_;
};

/// Which samples of an epoch are consumed, and which rank reads the rest. Local; see ckpt_position_begin.
class Position {
 public:
  struct Shard {
    std::string name;
    std::uint64_t samples = 0;
  };
  struct Epoch {
    std::uint64_t epoch = 0;
    std::uint64_t seed = 0;
    std::uint64_t samples = 0;       ///< of the epoch; ignored if there are shards
    std::uint64_t global_batch = 1;  ///< samples of one step on all ranks
    std::uint64_t world = 1;         ///< data-parallel ranks
    std::vector<Shard> shards{};
  };
  static Result<Position> begin(const Epoch& epoch) {
    std::vector<ckpt_shard> shards;
    for (const Shard& shard : epoch.shards) shards.push_back({shard.name.c_str(), shard.samples});
    const ckpt_epoch c{sizeof(ckpt_epoch),
                       epoch.epoch,
                       epoch.seed,
                       epoch.samples,
                       epoch.global_batch,
                       epoch.world,
                       shards.empty() ? nullptr : shards.data(),
                       shards.size()};
    ckpt_position* position = nullptr;
    if (const int code = ckpt_position_begin(&c, &position)) return detail::failure(code);
    return Position(position);
  }
  /// The samples that a data-parallel rank reads `step` steps after this position.
  Result<std::vector<ckpt_range>> share(std::uint64_t rank, std::uint64_t step = 0) const {
    std::uint64_t count = 0;
    if (const int code = ckpt_position_share(position_.get(), rank, step, nullptr, &count))
      return detail::failure(code);
    std::vector<ckpt_range> ranges(static_cast<std::size_t>(count));
    return detail::check(ckpt_position_share(position_.get(), rank, step, ranges.data(), &count)).map([&] {
      return ranges;
    });
  }
  Result<> advance(std::uint64_t steps = 1) { return detail::check(ckpt_position_advance(position_.get(), steps)); }
  ckpt_position_state state() const {
    ckpt_position_state state{};
    state.size = sizeof state;
    static_cast<void>(ckpt_position_get(position_.get(), &state));
    return state;
  }
  const ckpt_position* c() const { return position_.get(); }

 private:
  friend class Run;
  explicit Position(ckpt_position* position) : position_(position) {}
  std::unique_ptr<ckpt_position, detail::Release<ckpt_position_free>> position_;
};

/// The identity of a random number generator: see ckpt_stream.
struct Stream {
  std::string name;
  std::string coordinates{};  ///< "dp=3,tp=0"; "": all ranks share it
  std::string algorithm;      ///< "torch.cuda", "numpy.mt19937", or a name of the trainer's
  ckpt_stream c(void* state, std::size_t bytes) const {
    return {sizeof(ckpt_stream), name.c_str(), coordinates.c_str(), algorithm.c_str(), state, bytes};
  }
};

/// A save between begin and commit. Destroy it on all ranks to drop the save.
class Save {
 public:
  using Fill = std::function<int(void* out, std::uint64_t offset, std::uint64_t bytes)>;  ///< see ckpt_fill

  /// Text stored with the checkpoint, from rank 0.
  Result<> set(const std::string& key, const std::string& text) {
    return detail::check(ckpt_set(save_.get(), key.c_str(), text.c_str()));
  }
  /// A number that `ckpt list`, `--where` and the policy's `best` can use, from rank 0.
  Result<> metric(const std::string& name, double value) {
    return detail::check(ckpt_metric(save_.get(), name.c_str(), value));
  }
  /// Adds this rank's part of a model tensor, dense and row-major. The memory must not change until commit returns.
  /// Checks name and size at once.
  Result<> add(const std::string& name, std::span<const std::byte> part) {
    return detail::check(ckpt_add(save_.get(), name.c_str(), part.data(), part.size()));
  }
  template <class Element>
  Result<> add(const std::string& name, const std::vector<Element>& part) {
    return add(name, std::as_bytes(std::span(part)));
  }
  template <class Element>
  Result<> add(const std::string& name,
               const std::vector<Element>&& part) = delete;  // destroyed before commit copies it
  /// The same for memory that only the caller can read, such as device memory.
  Result<> add(const std::string& name, std::uint64_t bytes, Fill fill) {
    fills_.push_back(std::make_unique<Fill>(std::move(fill)));
    return detail::check(ckpt_add_fill(
        save_.get(), name.c_str(), bytes,
        [](void* user, void* out, std::uint64_t offset, std::uint64_t size) {
          return (*static_cast<Fill*>(user))(out, offset, size);
        },
        fills_.back().get()));
  }
  /// Adds a box of a tensor that is not in the model: see ckpt_add_part.
  Result<> add(const Tensor& tensor, std::span<const std::uint64_t> offset, std::span<const std::uint64_t> extent,
               std::span<const std::byte> part) {
    const ckpt_tensor declared = tensor.c();
    const auto numbers = [&](std::span<const std::uint64_t> of) {
      return of.size() == tensor.shape.size() ? of.data() : nullptr;  // else refused
    };
    return detail::check(
        ckpt_add_part(save_.get(), &declared, numbers(offset), numbers(extent), part.data(), part.size()));
  }
  /// Adds opaque bytes. They must not change until commit returns.
  Result<> blob(const std::string& name, std::span<const std::byte> bytes) {
    return detail::check(ckpt_add_blob(save_.get(), name.c_str(), bytes.data(), bytes.size()));
  }
  Result<> position(const Position& position) { return detail::check(ckpt_add_position(save_.get(), position.c())); }
  /// Adds a copy of the generator's state.
  Result<> stream(const Stream& stream, std::span<const std::byte> state) {
    const ckpt_stream c = stream.c(const_cast<std::byte*>(state.data()), state.size());
    return detail::check(ckpt_add_stream(save_.get(), &c));
  }
  /// Copies everything and returns; the caller may then change its memory. Call nothing else on this object afterwards.
  /// Fails if an add failed on any rank, and without staging memory also if the save failed. Collective.
  Result<Pending> commit() {
    ckpt_pending* pending = nullptr;
    const int code = ckpt_commit(save_.release(), &pending);
    if (code != 0) return detail::failure(code);
    return Pending(pending);
  }

 private:
  friend class Run;
  explicit Save(ckpt_save* save) : save_(save) {}
  std::unique_ptr<ckpt_save, detail::Release<ckpt_save_drop>> save_;
  std::vector<std::unique_ptr<Fill>> fills_{};
};

namespace detail {

inline ckpt_read c_read(const std::string& name, std::span<const std::uint64_t> offset,
                        std::span<const std::uint64_t> extent, std::span<std::byte> out) {
  // An offset without an extent is refused, and so are two of different length.
  const bool unlike = !offset.empty() && !extent.empty() && offset.size() != extent.size();
  return {sizeof(ckpt_read),
          name.c_str(),
          offset.empty() || unlike ? nullptr : offset.data(),
          extent.empty() ? nullptr : extent.data(),
          static_cast<std::uint32_t>(extent.size()),
          out.data(),
          out.size()};
}

}  // namespace detail

/// A part to read.
struct Read {
  std::string name;
  std::vector<std::uint64_t> offset{};  ///< with `extent` a box, in elements; both empty: this rank's part by the
                                        ///< run's model, else the whole tensor
  std::vector<std::uint64_t> extent{};
  std::span<std::byte> out{};  ///< the caller's memory: dense, row-major, exactly the size of the part

  ckpt_read c() const { return detail::c_read(name, offset, extent, out); }
  static std::vector<ckpt_read> c(std::span<const Read> reads) {
    std::vector<ckpt_read> all;
    for (const Read& read : reads) all.push_back(read.c());
    return all;
  }
};

/// A committed checkpoint, open for reading.
class Checkpoint {
 public:
  /// Opens any checkpoint by path, in any format that ckpt reads.
  static Result<Checkpoint> open(const std::string& path) {
    ckpt_checkpoint* checkpoint = nullptr;
    if (const int code = ckpt_checkpoint_open(path.c_str(), nullptr, &checkpoint)) return detail::failure(code);
    return Checkpoint(checkpoint);
  }
  std::uint64_t step() const { return ckpt_checkpoint_step(checkpoint_.get()); }
  std::string path() const { return ckpt_checkpoint_path(checkpoint_.get()); }
  /// One JSON document of what the checkpoint holds: see ckpt_checkpoint_json. Local.
  Result<std::string> json() const {
    const char* text = nullptr;
    if (const int code = ckpt_checkpoint_json(checkpoint_.get(), &text)) return detail::failure(code);
    return std::string(text);
  }
  /// Reads many parts in file order, and only the bytes that they need. Local.
  Result<ckpt_load_report> read(std::span<const Read> reads) {
    ckpt_load_report report{};
    report.size = sizeof report;
    const std::vector<ckpt_read> c = Read::c(reads);
    if (const int code = ckpt_read_plan(checkpoint_.get(), c.data(), c.size(), &report)) return detail::failure(code);
    return report;
  }
  /// Reads one part into `out`. Local.
  Result<> read_into(const std::string& name, std::span<const std::uint64_t> offset,
                     std::span<const std::uint64_t> extent, std::span<std::byte> out) {
    const ckpt_read read = detail::c_read(name, offset, extent, out);
    return detail::check(ckpt_read_plan(checkpoint_.get(), &read, 1, nullptr));
  }

 private:
  friend class Run;
  explicit Checkpoint(ckpt_checkpoint* checkpoint) : checkpoint_(checkpoint) {}
  std::unique_ptr<ckpt_checkpoint, detail::Release<ckpt_checkpoint_free>> checkpoint_;
};

/// The checkpoints of one run, on one rank. close() and the destructor wait, on all ranks, for saves in flight; only
/// close() returns the worst failure that was not yet reported.
class Run {
 public:
  /// See ckpt_options for each; the defaults are those of C.
  struct Options {
    std::optional<ckpt_comm_table> comm{};  ///< ckpt::mpi(MPI_COMM_WORLD); none: one rank
    std::uint64_t staging_memory = 0;       ///< bytes; 0: commit returns when the checkpoint is durable, or has failed
    std::uint32_t copy_threads = 0;         ///< 0: 2
    std::uint32_t write_threads = 0;        ///< 0: 1
    std::chrono::milliseconds patience{60'000};       ///< how long to wait for other ranks
    std::string io = "auto";                          ///< or "uring", "threads"
    std::uint64_t every_steps = 0;                    ///< save every N steps; 0: no rule
    std::chrono::duration<double> every{0};           ///< save when this much time has passed; 0: no rule
    std::chrono::duration<double> time_limit{0};      ///< of the job: stop early enough for a last save; 0: none
    bool catch_signals = false;                       ///< SIGTERM and SIGUSR1 set stop_requested
    bool verify_all = false;                          ///< loads compare every byte read with its hash
    std::int32_t replicas = CKPT_REPLICAS_AUTOMATIC;  ///< how loads read replicated parts
    bool optimal = false;                             ///< save at the interval that loses the least time
    double max_overhead = 0;                          ///< 0 to 1; 0: no cap
    std::chrono::duration<double> mtbf{0};            ///< mean time between failures of the job; 0: unknown
    std::chrono::duration<double> restart{0};         ///< time lost at a failure before training continues
    std::string policy_store{};  ///< its ckpt.toml decides when to save, instead of every_steps to restart
    std::string framework{};
    std::string framework_version{};
    std::function<void(std::string_view text)> log{};  ///< none: the first failed save is printed to stderr
    std::string local_directory{};                     ///< durable here first, then drained to the run directory
    std::uint64_t drain_bytes_per_second = 0;          ///< 0: no limit
    std::uint64_t local_keep = 0;                      ///< drained copies that stay there; 0: 2
  };

  Run(Run&&) = default;
  Run& operator=(Run&& other) noexcept {
    run_ = std::move(other.run_);  // closes the old run, which may still write to its log
    log_ = std::move(other.log_);
    return *this;
  }

  /// Opens or creates a run. Collective.
  static Result<Run> open(const std::string& run_directory, Options options) {
    Run run;
    run.log_ = std::make_unique<std::function<void(std::string_view)>>(std::move(options.log));
    ckpt_options c{};
    c.size = sizeof c;
    c.comm = options.comm ? &*options.comm : nullptr;
    c.staging_memory = options.staging_memory;
    c.copy_threads = options.copy_threads;
    c.write_threads = options.write_threads;
    c.patience_ms = options.patience.count();
    c.io = options.io.c_str();
    c.every_steps = options.every_steps;
    c.every_seconds = options.every.count();
    c.time_limit_s = options.time_limit.count();
    c.catch_signals = options.catch_signals ? 1 : 0;
    c.verify_all = options.verify_all ? 1 : 0;
    c.replicas = options.replicas;
    c.optimal = options.optimal ? 1 : 0;
    c.max_overhead = options.max_overhead;
    c.mtbf_s = options.mtbf.count();
    c.restart_s = options.restart.count();
    c.policy_store = options.policy_store.empty() ? nullptr : options.policy_store.c_str();
    c.framework = options.framework.c_str();
    c.framework_version = options.framework_version.c_str();
    c.local_directory = options.local_directory.empty() ? nullptr : options.local_directory.c_str();
    c.drain_bytes_per_second = options.drain_bytes_per_second;
    c.local_keep = options.local_keep;
    if (*run.log_) {
      c.log = [](void* user, const char* text) { (*static_cast<std::function<void(std::string_view)>*>(user))(text); };
      c.log_user = run.log_.get();
    }
    ckpt_run* handle = nullptr;
    if (const int code = ckpt_run_open(run_directory.c_str(), &c, &handle)) return detail::failure(code);
    run.run_.reset(handle);
    return run;
  }

  static Result<Run> open(const std::string& run_directory) { return open(run_directory, Options{}); }

  /// True if this step should be saved. Call it every step, on all ranks. Collective.
  Result<bool> should_save(std::uint64_t step) {
    int answer = 0;
    if (const int code = ckpt_should_save(run_.get(), step, &answer)) return detail::failure(code);
    return answer != 0;
  }
  /// True if a signal or the time limit asked a rank to stop, and all ranks know it. Local.
  bool stop_requested() const { return ckpt_stop_requested(run_.get()) != 0; }
  /// True if a rank is lost: every later collective fails at once. Local.
  bool ranks_lost() const { return ckpt_ranks_lost(run_.get()) != 0; }
  /// Sets the model of later saves and loads; the run keeps a copy. Local.
  Result<> set_model(const Model& model) { return detail::check(ckpt_run_set_model(run_.get(), model.c())); }
  /// Begins the save of a step. Collective.
  Result<Save> begin(std::uint64_t step) {
    ckpt_save* save = nullptr;
    if (const int code = ckpt_begin(run_.get(), step, &save)) return detail::failure(code);
    return Save(save);
  }
  /// The position stored in the loaded checkpoint, with the remaining samples divided among `world` ranks. Local.
  Result<Position> restore_position(std::uint64_t world) {
    ckpt_position* position = nullptr;
    if (const int code = ckpt_restore_position(run_.get(), world, &position)) return detail::failure(code);
    return Position(position);
  }
  /// Fills `state` from the loaded checkpoint and returns true; if it does not have this stream, returns false and
  /// begins `state` with a seed of 16 bytes derived from `seed`. Local.
  Result<bool> restore_stream(const Stream& stream, std::span<std::byte> state, std::uint64_t seed) {
    std::uint64_t bytes = 0;
    int restored = 0;
    const ckpt_stream c = stream.c(state.data(), state.size());
    if (const int code = ckpt_restore_stream(run_.get(), &c, seed, &bytes, &restored)) return detail::failure(code);
    return restored != 0;
  }
  /// Loads from the newest checkpoint that verifies; 10 if there is none. With `partial`, names that the checkpoint
  /// lacks are counted instead of refused. Collective.
  Result<ckpt_load_report> load(std::span<const Read> reads, bool partial = false) {
    ckpt_load_report report{};
    report.size = sizeof report;
    const std::vector<ckpt_read> c = Read::c(reads);
    const int code = ckpt_load(run_.get(), c.data(), c.size(), partial ? CKPT_PARTIAL : CKPT_STRICT, &report);
    if (code != 0) return detail::failure(code);
    return report;
  }
  /// The same from the newest save of one step: see ckpt_load_step. Collective.
  Result<ckpt_load_report> load_step(std::uint64_t step, std::span<const Read> reads, bool partial = false) {
    ckpt_load_report report{};
    report.size = sizeof report;
    const std::vector<ckpt_read> c = Read::c(reads);
    const int mode = partial ? CKPT_PARTIAL : CKPT_STRICT;
    if (const int code = ckpt_load_step(run_.get(), step, c.data(), c.size(), mode, &report))
      return detail::failure(code);
    return report;
  }
  /// The steps of which the run has checkpoints, the newest save first. Collective.
  Result<std::vector<std::uint64_t>> steps() {
    std::vector<std::uint64_t> out;
    for (;;) {
      std::uint64_t count = out.size();
      if (const int code = ckpt_run_steps(run_.get(), out.data(), &count)) return detail::failure(code);
      const bool all = count <= out.size();
      out.resize(count);
      if (all) return out;
    }
  }
  /// Opens the newest checkpoint whose structure is complete; 10 if there is none. Collective.
  Result<Checkpoint> latest_usable() {
    ckpt_checkpoint* checkpoint = nullptr;
    if (const int code = ckpt_latest_usable(run_.get(), &checkpoint)) return detail::failure(code);
    return Checkpoint(checkpoint);
  }
  /// The same of the newest save of one step, superseded or not. Collective.
  Result<Checkpoint> step_usable(std::uint64_t step) {
    ckpt_checkpoint* checkpoint = nullptr;
    if (const int code = ckpt_step_usable(run_.get(), step, &checkpoint)) return detail::failure(code);
    return Checkpoint(checkpoint);
  }
  /// The caller has read its state from the last checkpoint of latest_usable or step_usable, which only look: its saves
  /// continue from there, as after load and load_step. Collective.
  Result<> loaded(const Checkpoint& checkpoint) {
    return detail::check(ckpt_loaded(run_.get(), checkpoint.checkpoint_.get()));
  }
  /// Waits for saves and drains, and returns the worst outcome that was not yet reported. Collective.
  Result<> close() { return detail::check(ckpt_run_close(run_.release())); }

 private:
  Run() = default;
  std::unique_ptr<std::function<void(std::string_view)>> log_{};
  std::unique_ptr<ckpt_run, detail::Release<ckpt_run_close>> run_{};
};

}  // namespace v1
}  // namespace ckpt
