#include "api/doctor/disk_speed.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/run/buffer_pool.hpp"

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPiece = std::size_t{4} << 20;
constexpr std::size_t kInFlight = 8;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// One file, transferred from end to end.
class Measurement {
 public:
  Measurement(Io& io, std::uint64_t pieces, const std::atomic<bool>* stop) : io_(io), pieces_(pieces), stop_(stop) {}

  Result<> open_buffers() {
    CKPT_TRY(pool_, BufferPool::open({.buffer_bytes = kPiece, .buffer_count = kInFlight}));
    pool_->warm();
    std::uint64_t mixed = 0x9e3779b97f4a7c15;
    for (std::size_t i = 0; i < kInFlight; ++i) {
      auto buffer = pool_->try_acquire();
      if (!buffer) return fail(Errc::internal, "bench: the buffer pool has too few buffers");
      // All blocks differ, so compression and deduplication have no effect.
      for (std::size_t at = 0; at < kPiece; at += sizeof mixed) {
        mixed ^= mixed << 13;
        mixed ^= mixed >> 7;
        mixed ^= mixed << 17;
        std::memcpy(buffer->data() + at, &mixed, sizeof mixed);
      }
      buffers_.push_back(*std::move(buffer));
    }
    return {};
  }

  Result<> transfer(FileHandle file, Request::Op op) {
    std::uint64_t begun = 0;
    std::vector<std::size_t> idle;
    for (std::size_t i = 0; i < buffers_.size(); ++i) idle.push_back(i);
    std::size_t in_flight = 0;
    Result<> verdict;
    while (in_flight > 0 || (verdict && begun < pieces_)) {
      if (verdict && stop_ != nullptr && *stop_) verdict = fail(Errc::interrupted, "bench: interrupted");
      while (verdict && begun < pieces_ && !idle.empty()) {
        const std::size_t at = idle.back();
        verdict = io_.submit({.op = op,
                              .file = file,
                              .offset = begun * kPiece,
                              .data = buffers_[at].data(),
                              .bytes = kPiece,
                              .tag = at});
        if (!verdict) break;
        idle.pop_back();
        ++begun;
        ++in_flight;
      }
      std::array<Completion, kInFlight> done;
      const auto reaped = io_.reap(done, true);
      if (!reaped) {
        for (BufferPool::Buffer& buffer : buffers_) buffer.leave_to_kernel();
        return fail(reaped.error());
      }
      const std::size_t count = *reaped;
      in_flight -= count;
      for (std::size_t i = 0; i < count; ++i) {
        idle.push_back(static_cast<std::size_t>(done[i].tag));
        if (!done[i].bytes && verdict) verdict = fail(std::move(done[i].bytes).error());
      }
    }
    return verdict;
  }

 private:
  Io& io_;
  std::uint64_t pieces_;
  const std::atomic<bool>* stop_;
  std::unique_ptr<BufferPool> pool_;
  std::vector<BufferPool::Buffer> buffers_;
};

Result<> write_file(Io& io, Measurement& measurement, const std::string& path, DiskSpeed& out) {
  CKPT_TRY(const FileHandle file, io.open(path, {.mode = OpenOptions::Mode::write_new, .direct = true}));
  out.direct = io.is_direct(file);
  auto verdict = io.allocate(file, out.bytes);
  const auto begin = Clock::now();
  if (verdict) verdict = measurement.transfer(file, Request::Op::write);
  const auto written = Clock::now();
  if (verdict) verdict = io.sync(file);
  out.sync_s = seconds_since(written);
  out.write_s = seconds_since(begin);
  auto closed = io.close(file);
  return verdict ? closed : verdict;
}

Result<> read_file(Io& io, Measurement& measurement, const std::string& path, DiskSpeed& out) {
  CKPT_TRY(const FileHandle file, io.open(path, {.mode = OpenOptions::Mode::read, .direct = true}));
  const auto begin = Clock::now();
  auto verdict = measurement.transfer(file, Request::Op::read);
  out.read_s = seconds_since(begin);
  auto closed = io.close(file);
  return verdict ? closed : verdict;
}

}  // namespace

Result<DiskSpeed> measure_disk(Io& io, const std::string& directory, std::uint64_t bytes,
                               const std::atomic<bool>* stop) {
  const std::uint64_t pieces = std::max<std::uint64_t>(1, bytes / kPiece + (bytes % kPiece != 0 ? 1 : 0));
  DiskSpeed out{.bytes = pieces * kPiece};
  Measurement measurement(io, pieces, stop);
  CKPT_CHECK(measurement.open_buffers());
  const std::string path = join_path(directory, fmt::format(".ckpt-doctor-{}.bench", ::getpid()));
  auto verdict = write_file(io, measurement, path, out);
  if (verdict) verdict = read_file(io, measurement, path, out);
  auto removed = io.unlink(path);
  if (!verdict) return fail(std::move(verdict).error());
  CKPT_CHECK(std::move(removed));
  return out;
}

}  // namespace ckpt
