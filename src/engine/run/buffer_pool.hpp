#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "format/result.hpp"

namespace ckpt {

/// A fixed number of equal buffers carved from one slab of huge pages if the system provides them (MAP_HUGETLB, else
/// transparent, else small pages: see `page_kind`). Thread-safe. Buffers are aligned to kAlignment, and pages are
/// touched when a buffer is first used, so unused ones cost nothing.
class BufferPool {
 public:
  struct Options {
    std::size_t buffer_bytes = 0;  ///< a multiple of kAlignment
    std::size_t buffer_count = 0;
  };
  /// Returns its buffer to the pool when destroyed; must not outlive the pool.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer();
    std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }
    explicit operator bool() const { return data_ != nullptr; }
    void reset();
    /// The kernel may read or write it at an unknown later time: once reset it is never reused.
    void leave_to_kernel() { left_ = true; }

   private:
    friend class BufferPool;
    BufferPool* pool_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    bool left_ = false;
  };

  static Result<std::unique_ptr<BufferPool>> open(Options options);
  ~BufferPool();  ///< where buffers were left to the kernel the memory stays until the process ends
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  std::optional<Buffer> try_acquire();
  /// Waits for a buffer; nothing once `stop` is set, or if no buffer can become free.
  std::optional<Buffer> acquire(const std::atomic<bool>& stop);
  /// Touches every page, so that no later use waits for the system to give one. Only while no buffer is in use.
  void warm();
  std::size_t buffer_bytes() const;
  std::size_t buffer_count() const;  ///< without those left to the kernel
  /// "hugetlb", "transparent huge pages", "4 KiB pages".
  std::string page_kind() const;
  /// Bytes of the pool in hugetlb pages, which the system does not count as resident; 0 with other pages.
  std::uint64_t hugetlb_bytes() const;

 private:
  struct Impl;
  explicit BufferPool(std::unique_ptr<Impl> impl);
  void give_back(std::byte* data, bool left);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckpt
