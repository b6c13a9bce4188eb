#include "engine/run/buffer_pool.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cassert>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/io/system_error.hpp"
#include "format/checked.hpp"

namespace ckpt {
namespace {

// The kernel's huge page on x86-64 and most of arm64. A request from 4 KiB pages needs one segment a page, and disks
// take about 254 segments: 1 MiB requests are split there and every segment is paid for.
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// How long a stop may go unnoticed while waiting for a buffer.
constexpr auto kStopPoll = std::chrono::milliseconds(10);

enum class Pages : std::uint8_t { hugetlb, transparent, small };

/// Anonymous memory at a multiple of kHugePageBytes.
struct Slab {
  std::byte* data = nullptr;
  std::size_t bytes = 0;  // a multiple of kHugePageBytes
  Pages asked = Pages::small;
};

Result<Slab> map_slab(std::size_t bytes) {
  constexpr int kProtection = PROT_READ | PROT_WRITE;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
  // Reserved pages are taken at once or not at all: a later fault cannot fail for the lack of them.
  void* huge = ::mmap(nullptr, bytes, kProtection, kFlags | MAP_HUGETLB, -1, 0);
  if (huge != MAP_FAILED) return Slab{.data = static_cast<std::byte*>(huge), .bytes = bytes, .asked = Pages::hugetlb};

  const std::size_t mapped_bytes = bytes + kHugePageBytes;
  void* mapped = ::mmap(nullptr, mapped_bytes, kProtection, kFlags, -1, 0);
  if (mapped == MAP_FAILED) {
    Error error = system_error(errno, "buffer pool", fmt::format("map {} bytes", bytes));
    error.code = Errc::memory;
    error.file.clear();
    return fail(std::move(error));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(mapped);
  const std::size_t before = round_up(address, kHugePageBytes) - address;
  const std::size_t after = mapped_bytes - before - bytes;
  auto* data = static_cast<std::byte*>(mapped) + before;
  if (before > 0) ::munmap(mapped, before);
  if (after > 0) ::munmap(data + bytes, after);
  const bool advised = ::madvise(data, bytes, MADV_HUGEPAGE) == 0;
  return Slab{.data = data, .bytes = bytes, .asked = advised ? Pages::transparent : Pages::small};
}

/// What the system has provided so far, from /proc/self/smaps: resident bytes of the mapping that starts at `data`, and
/// how many of them are in huge pages. Zero if unknown.
struct Resident {
  std::uint64_t bytes = 0;
  std::uint64_t huge_bytes = 0;
};

Resident resident_in(const std::byte* data) {
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Closer> file(std::fopen("/proc/self/smaps", "re"));
  Resident found;
  if (!file) return found;
  bool inside = false;
  char line[512];
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::uint64_t kib = 0;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      if (inside) break;
      const auto address = reinterpret_cast<std::uintptr_t>(data);
      inside = begin <= address && address < end;
    } else if (inside && std::sscanf(line, "Rss: %" SCNu64 " kB", &kib) == 1) {
      found.bytes = kib * 1024;
    } else if (inside && std::sscanf(line, "AnonHugePages: %" SCNu64 " kB", &kib) == 1) {
      found.huge_bytes = kib * 1024;
    }
  }
  return found;
}

}  // namespace

struct BufferPool::Impl {
  Options options;
  Slab slab;
  mutable std::mutex mutex;
  std::condition_variable freed;
  std::vector<std::byte*> free;  // guarded by mutex; the last one was used last: its pages are warm
  std::size_t left = 0;          // to the kernel; guarded by mutex
};

Result<std::unique_ptr<BufferPool>> BufferPool::open(Options options) {
  if (options.buffer_bytes == 0 || options.buffer_bytes % kAlignment != 0 || options.buffer_count == 0) {
    return fail(Errc::internal,
                fmt::format("buffer pool: {} buffers of {} bytes", options.buffer_count, options.buffer_bytes));
  }
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(options.buffer_bytes, options.buffer_count, &bytes) || bytes > SIZE_MAX / 2) {
    return fail(Errc::memory, fmt::format("buffer pool: {} buffers of {} bytes do not fit in memory",
                                          options.buffer_count, options.buffer_bytes));
  }
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  CKPT_TRY(impl->slab, map_slab(round_up(bytes, kHugePageBytes)));
  impl->free.reserve(options.buffer_count);
  // Handed out from the lowest address, so that few buffers in use touch few pages.
  for (std::size_t i = options.buffer_count; i > 0; --i) {
    impl->free.push_back(impl->slab.data + (i - 1) * options.buffer_bytes);
  }
  return std::unique_ptr<BufferPool>(new BufferPool(std::move(impl)));
}

BufferPool::BufferPool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

BufferPool::~BufferPool() {
  assert(impl_->free.size() + impl_->left == impl_->options.buffer_count && "a buffer outlives its pool");
  if (impl_->left == 0) ::munmap(impl_->slab.data, impl_->slab.bytes);
}

std::optional<BufferPool::Buffer> BufferPool::try_acquire() {
  const std::lock_guard held(impl_->mutex);
  if (impl_->free.empty()) return std::nullopt;
  Buffer buffer;
  buffer.pool_ = this;
  buffer.data_ = impl_->free.back();
  buffer.size_ = impl_->options.buffer_bytes;
  impl_->free.pop_back();
  return buffer;
}

std::optional<BufferPool::Buffer> BufferPool::acquire(const std::atomic<bool>& stop) {
  for (;;) {
    if (stop.load()) return std::nullopt;
    if (auto buffer = try_acquire()) return buffer;
    std::unique_lock held(impl_->mutex);
    if (impl_->left == impl_->options.buffer_count) return std::nullopt;
    impl_->freed.wait_for(held, kStopPoll, [this] { return !impl_->free.empty(); });
  }
}

void BufferPool::give_back(std::byte* data, bool left) {
  {
    const std::lock_guard held(impl_->mutex);
    if (left) {
      ++impl_->left;
    } else {
      impl_->free.push_back(data);
    }
  }
  impl_->freed.notify_one();
}

void BufferPool::warm() {
  for (std::size_t at = 0; at < impl_->slab.bytes; at += kAlignment) {
    // Volatile: the store must happen, as it maps the page.
    *reinterpret_cast<volatile std::byte*>(impl_->slab.data + at) = std::byte{0};
  }
}

std::size_t BufferPool::buffer_bytes() const {
  return impl_->options.buffer_bytes;
}

std::size_t BufferPool::buffer_count() const {
  const std::lock_guard held(impl_->mutex);
  return impl_->options.buffer_count - impl_->left;
}

std::string BufferPool::page_kind() const {
  if (impl_->slab.asked == Pages::hugetlb) return "hugetlb";
  // Advice is not a promise: the kernel may be configured without huge pages, or find none. The result counts.
  const Resident resident = resident_in(impl_->slab.data);
  const bool huge = resident.bytes == 0 ? impl_->slab.asked == Pages::transparent
                                        : resident.huge_bytes >= resident.bytes - resident.bytes / 2;
  return huge ? "transparent huge pages" : "4 KiB pages";
}

std::uint64_t BufferPool::hugetlb_bytes() const {
  return impl_->slab.asked == Pages::hugetlb ? impl_->slab.bytes : 0;
}

BufferPool::Buffer::Buffer(Buffer&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      left_(std::exchange(other.left_, false)) {}

BufferPool::Buffer& BufferPool::Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    reset();
    pool_ = std::exchange(other.pool_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    left_ = std::exchange(other.left_, false);
  }
  return *this;
}

BufferPool::Buffer::~Buffer() {
  reset();
}

void BufferPool::Buffer::reset() {
  if (pool_ != nullptr) pool_->give_back(data_, left_);
  pool_ = nullptr;
  data_ = nullptr;
  size_ = 0;
  left_ = false;
}

}  // namespace ckpt
