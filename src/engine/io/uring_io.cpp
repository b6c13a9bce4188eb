#include "engine/io/uring_io.hpp"

#include <fmt/format.h>
#include <liburing.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "engine/io/posix_io.hpp"
#include "engine/io/system_error.hpp"

namespace ckpt {
namespace {

constexpr unsigned kMaxTries = 10'000;

/// The system's own ids of threads are given again once one has ended; its rings still belong to it.
std::uint64_t this_thread_number() {
  static std::atomic<std::uint64_t> next{0};
  thread_local const std::uint64_t number = next.fetch_add(1);
  return number;
}

/// A ring and the thread it belongs to: with SINGLE_ISSUER only its maker may use it.
class Ring {
 public:
  /// Flags best first: 6.1 runs completions only when we ask for them, 6.0 and 5.19 at least do not interrupt us.
  static Result<std::unique_ptr<Ring>> open(unsigned entries) {
    constexpr std::array<unsigned, 4> kFlags = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN,
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN, IORING_SETUP_COOP_TASKRUN, 0U};
    int reason = EINVAL;
    for (const unsigned flags : kFlags) {
      auto made = std::unique_ptr<Ring>(new Ring);
      const int returned = ::io_uring_queue_init(entries, &made->ring_, flags);
      if (returned == 0) {
        made->open_ = true;
        // RW_CUR_POS came with 5.6, as did the read and write operations; NODROP keeps completions that overflow.
        constexpr unsigned kNeeded = IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS;
        if ((made->ring_.features & kNeeded) == kNeeded) return made;
        return fail(Errc::unsupported, "io_uring: set up: the kernel is older than 5.6");
      }
      reason = -returned;
      if (reason != EINVAL) break;  // refused altogether, not for its flags
    }
    const bool lacks_descriptors = reason == EMFILE || reason == ENFILE;
    return fail(lacks_descriptors ? Errc::io : Errc::unsupported, "io_uring: set up: " + system_reason(reason));
  }
  ~Ring() {
    if (open_) ::io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  io_uring* get() { return &ring_; }
  bool belongs_here() const { return thread_ == this_thread_number(); }
  bool defers() const { return (ring_.flags & IORING_SETUP_DEFER_TASKRUN) != 0; }

 private:
  Ring() = default;
  io_uring ring_{};
  bool open_ = false;
  std::uint64_t thread_ = this_thread_number();
};

class UringIo final : public PosixIo {
 public:
  UringIo(std::size_t queue_depth, HeldDirectories held, std::unique_ptr<Ring> ring)
      : PosixIo(queue_depth, std::move(held)), ring_(std::move(ring)) {
    slots_.resize(queue_depth);
    free_slots_.reserve(queue_depth);
    for (std::size_t i = queue_depth; i > 0; --i) free_slots_.push_back(i - 1);
  }
  ~UringIo() override {
    // Buffers may be freed as soon as this returns: wait until the kernel no longer uses any of them.
    std::array<Completion, 16> dropped;
    while (in_flight() > 0) {
      if (!reap(dropped, true)) break;
    }
  }
  UringIo(const UringIo&) = delete;
  UringIo& operator=(const UringIo&) = delete;

  std::string_view name() const override { return "io_uring"; }
  Result<std::unique_ptr<Io>> new_instance() const override { return make(queue_depth(), held()); }
  static Result<std::unique_ptr<Io>> make(std::size_t queue_depth, HeldDirectories held) {
    CKPT_TRY(auto ring, Ring::open(static_cast<unsigned>(queue_depth)));
    return std::unique_ptr<Io>(std::make_unique<UringIo>(queue_depth, std::move(held), std::move(ring)));
  }

  Result<> submit(const Request& request) override {
    CKPT_CHECK(claim_ring());
    CKPT_TRY(Transfer transfer, admit(request));
    const std::size_t slot = free_slots_.back();
    slots_[slot] = std::move(transfer);
    if (auto started = start(slot); !started) {
      retire(request);
      return started;
    }
    free_slots_.pop_back();
    return {};
  }

  Result<std::size_t> reap(std::span<Completion> out, bool wait) override {
    if (out.empty() || in_flight() == 0) return 0;
    CKPT_CHECK(claim_ring());
    for (;;) {
      CKPT_TRY(const std::size_t count, take_finished(out));
      if (count > 0) return count;
      if (wait) {
        CKPT_CHECK(enter([this] { return ::io_uring_submit_and_wait(ring_->get(), 1); }));
        continue;
      }
      // Deferred completions appear only when the kernel is entered.
      if (!ring_->defers()) return 0;
      CKPT_CHECK(enter([this] { return ::io_uring_get_events(ring_->get()); }));
      return take_finished(out);
    }
  }

 private:
  /// A ring is its thread's own. An Io that was opened in one thread and handed to another gets a new ring.
  Result<> claim_ring() {
    if (broken_) return fail(Errc::io, "io_uring: stopped after an earlier failure");
    if (ring_->belongs_here()) return {};
    if (in_flight() != 0) return fail(Errc::internal, "io_uring: used by two threads");
    CKPT_TRY(ring_, Ring::open(static_cast<unsigned>(queue_depth())));
    return {};
  }

  /// Hands the next step of a transfer to the kernel.
  Result<> start(std::size_t slot) {
    // At most queue_depth() steps exist and each is submitted at once, so the submission queue always has room.
    io_uring_sqe* entry = ::io_uring_get_sqe(ring_->get());
    if (entry == nullptr) return fail(Errc::internal, "io_uring: the submission queue is full");
    const Transfer& transfer = slots_[slot];
    const Transfer::Step step = transfer.next();
    const auto bytes = static_cast<unsigned>(step.bytes);
    if (transfer.request().op == Request::Op::read) {
      ::io_uring_prep_read(entry, transfer.descriptor(), step.data, bytes, step.offset);
    } else {
      ::io_uring_prep_write(entry, transfer.descriptor(), step.data, bytes, step.offset);
    }
    ::io_uring_sqe_set_data64(entry, slot);
    return enter([this] { return ::io_uring_submit(ring_->get()); });
  }

  /// Enters the kernel until it takes the call. EBUSY is a full completion queue: it holds twice the requests that
  /// can be in flight, so entering again to flush it is enough.
  template <class Call>
  Result<> enter(Call call) {
    int returned = call();
    // EAGAIN: the kernel is short of memory; retry for some seconds.
    for (unsigned tries = 0; returned < 0 && tries < kMaxTries; returned = call()) {
      if (returned == -EAGAIN) {
        ++tries;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else if (returned == -EBUSY) {
        ++tries;
        ::io_uring_get_events(ring_->get());
      } else if (returned != -EINTR) {
        break;
      }
    }
    if (returned >= 0) return {};
    broken_ = true;  // an entry that was not taken would be sent with the next one
    return fail(Errc::io, "io_uring: enter: " + system_reason(-returned));
  }

  /// Moves finished transfers to `out` and submits unfinished ones again.
  Result<std::size_t> take_finished(std::span<Completion> out) {
    std::size_t count = 0;
    io_uring_cqe* entry = nullptr;
    while (count < out.size() && ::io_uring_peek_cqe(ring_->get(), &entry) == 0) {
      const auto slot = static_cast<std::size_t>(::io_uring_cqe_get_data64(entry));
      const int returned = entry->res;
      ::io_uring_cqe_seen(ring_->get(), entry);
      if (!slots_[slot].advance(returned)) {
        auto started = start(slot);
        if (started) continue;
        if (count == 0) return fail(std::move(started).error());
        break;  // the ring is broken: the next call reports it, these are complete even so
      }
      retire(slots_[slot].request());
      out[count++] = std::move(slots_[slot]).completion();
      free_slots_.push_back(slot);
    }
    return count;
  }

  std::unique_ptr<Ring> ring_;
  bool broken_ = false;
  std::vector<Transfer> slots_;  // by user_data of the entry in flight
  std::vector<std::size_t> free_slots_;
};

}  // namespace

Result<std::unique_ptr<Io>> open_uring_io(std::size_t queue_depth) {
  return UringIo::make(queue_depth, HeldDirectories());
}

}  // namespace ckpt
