#include "engine/io/thread_io.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/io/posix_io.hpp"
#include "engine/io/system_error.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kMaxWorkers = 8;  // a disk is busy with 4 or more requests of 512 KiB up; more only switch

class ThreadIo final : public PosixIo {
 public:
  ThreadIo(std::size_t queue_depth, HeldDirectories held) : PosixIo(queue_depth, std::move(held)) {}

  std::string_view name() const override { return "threads"; }
  Result<std::unique_ptr<Io>> new_instance() const override {
    return std::unique_ptr<Io>(std::make_unique<ThreadIo>(queue_depth(), held()));
  }

  Result<> submit(const Request& request) override {
    CKPT_TRY(Transfer transfer, admit(request));
    if (auto started = start_workers(); !started) {
      retire(request);
      return started;
    }
    {
      const std::lock_guard held(mutex_);
      waiting_.push_back(std::move(transfer));
    }
    work_.notify_one();
    return {};
  }

  Result<std::size_t> reap(std::span<Completion> out, bool wait) override {
    if (out.empty() || in_flight() == 0) return 0;
    std::size_t count = 0;
    std::unique_lock held(mutex_);
    if (wait) done_.wait(held, [this] { return !finished_.empty(); });
    for (; count < out.size() && !finished_.empty(); ++count) {
      retire(finished_.front().request());
      out[count] = std::move(finished_.front()).completion();
      finished_.pop_front();
    }
    return count;
  }

 private:
  Result<> start_workers() {
    if (!workers_.empty()) return {};
    const std::size_t count = std::min(queue_depth(), kMaxWorkers);
    workers_.reserve(count);
    try {
      while (workers_.size() < count) {
        workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
      }
    } catch (const std::system_error&) {
      // Fewer threads than requested still execute everything.
      if (workers_.empty()) return fail(system_error(EAGAIN, "thread pool", "start a thread"));
    }
    return {};
  }

  void work(const std::stop_token& stop) {
    std::unique_lock held(mutex_);
    while (work_.wait(held, stop, [this] { return !waiting_.empty(); })) {
      if (stop.stop_requested()) return;  // no thread will reap requests that still wait
      Transfer transfer = std::move(waiting_.front());
      waiting_.pop_front();
      held.unlock();
      carry_out(transfer);
      held.lock();
      finished_.push_back(std::move(transfer));
      done_.notify_one();
    }
  }

  static void carry_out(Transfer& transfer) {
    for (bool over = false; !over;) {
      const Transfer::Step step = transfer.next();
      const auto at = static_cast<off_t>(step.offset);  // checked when it was admitted
      const ssize_t moved = transfer.request().op == Request::Op::read
                                ? ::pread(transfer.descriptor(), step.data, step.bytes, at)
                                : ::pwrite(transfer.descriptor(), step.data, step.bytes, at);
      over = transfer.advance(moved < 0 ? -errno : moved);
    }
  }

  std::mutex mutex_;
  std::condition_variable_any work_;
  std::condition_variable_any done_;
  std::deque<Transfer> waiting_;       // guarded by mutex_; both together hold at most queue_depth()
  std::deque<Transfer> finished_;      // guarded by mutex_
  std::vector<std::jthread> workers_;  // last member: joined before the members they use are destroyed
};

}  // namespace

std::unique_ptr<Io> make_thread_io(std::size_t queue_depth) {
  return std::make_unique<ThreadIo>(queue_depth, HeldDirectories());
}

}  // namespace ckpt
