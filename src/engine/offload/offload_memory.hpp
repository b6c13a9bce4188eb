#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/run/buffer_pool.hpp"
#include "format/result.hpp"

namespace ckpt::offload {

struct Tensor;

/// A buffer's worth of a tensor: bytes [index * buffer_bytes, ...) of its file.
struct Part {
  enum class State : std::uint8_t {
    absent,     ///< only on disk: no buffer
    reading,    ///< queued or in flight
    clean,      ///< the buffer has the same bytes as the disk
    filling,    ///< being copied into by the caller
    dirty,      ///< its write is queued or in flight
    unwritten,  ///< its write failed: the buffer holds the only copy
  } state = State::absent;
  bool ahead = false;          ///< read ahead, not yet requested: evicted last
  bool pinned = false;         ///< the caller copies from or to it: not evictable
  std::uint64_t last_use = 0;  ///< put, asked for, or had; see Memory::use
  BufferPool::Buffer buffer{};

 private:
  friend class Memory;
  enum class Listed : std::uint8_t { no, used, ahead } listed_ = Listed::no;
  std::list<std::pair<Tensor*, std::size_t>>::iterator place_{};  // valid while listed
};

/// A tensor's file; touched by the store's thread alone.
struct SwapFile {
  std::string path{};
  FileHandle handle{};
  bool created = false;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t last_use = 0;
  std::size_t in_flight = 0;
};

struct Tensor {
  std::string name{};
  std::uint64_t bytes = 0;
  std::vector<Part> parts{};
  std::size_t under_way = 0;       ///< parts that are reading or dirty
  std::optional<Error> failure{};  ///< of the last transfer that failed
  std::optional<Error> lost{};     ///< written bytes may be missing: absent parts cannot be returned
  SwapFile file{};
};

/// Tracks which parts hold buffers, and chooses one to evict. The owner's lock guards it and all Parts.
class Memory {
 public:
  explicit Memory(BufferPool& pool) : pool_(pool) {}

  /// A free buffer, else that of the least recently used clean part. Parts read ahead are evicted only for `demand`,
  /// the last requested one first, because it is needed last.
  std::optional<BufferPool::Buffer> take(bool demand);
  /// The reserved buffer that `take` never returns: tensors on disk can be read even if all others hold unwritable
  /// data. Nothing if it is in use.
  std::optional<BufferPool::Buffer> take_reserve();
  /// Whether the reserve is out: the next part that can be dropped must be.
  bool reserve_is_out() const { return buffers_ > limit(); }
  /// Buffers that tensors may hold.
  std::size_t limit() const { return pool_.buffer_count() - 1; }
  /// Marks the part as the most recently used; takes effect with `settle`.
  void use(Part& part) { part.last_use = ++clock_; }
  /// Puts a clean, unpinned part where `take` finds it, by its last use. Others are only taken off the lists.
  void update_lists(Tensor& tensor, std::size_t index);
  /// Protects the part from eviction.
  void pin(Part& part);
  /// Gives the buffer back; the part is absent.
  void drop(Part& part);

  std::size_t peak_buffers() const { return peak_buffers_; }
  std::size_t buffers() const { return buffers_; }
  std::size_t buffer_bytes() const { return pool_.buffer_bytes(); }
  std::string page_kind() const { return pool_.page_kind(); }
  /// A buffer that `take` gave and no part holds goes back.
  void give_back(BufferPool::Buffer buffer);

 private:
  void unlist(Part& part);
  BufferPool::Buffer give_up(std::list<std::pair<Tensor*, std::size_t>>::iterator victim);

  BufferPool& pool_;
  std::list<std::pair<Tensor*, std::size_t>> used_;   // clean parts, the longest unused first
  std::list<std::pair<Tensor*, std::size_t>> ahead_;  // clean parts read ahead, the first asked for first
  std::uint64_t clock_ = 0;
  std::size_t buffers_ = 0;
  std::size_t peak_buffers_ = 0;
};

}  // namespace ckpt::offload
