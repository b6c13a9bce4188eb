#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/run/buffer_pool.hpp"
#include "engine/run/fetch.hpp"
#include "engine/run/leaf_record.hpp"
#include "engine/run/plan.hpp"

/// State of a worker for a leaf that it makes, and for a read that leaves wait for. For worker.cpp only.
namespace ckpt {

// A tag is the address of the owner of the request: a Part with the low bit set, or a Job.
constexpr std::uint64_t kReadTag = 1;

struct Job {
  std::uint64_t position = 0;
  LeafJob leaf{};
  std::vector<Fetch> fetches{};  // of the copies, then of the checks
  std::size_t first_check = 0;   // the fetches from here on wait until the copies are carried out
  std::size_t next_fetch = 0;
  std::size_t open_fetches = 0;
  BufferPool::Buffer buffer{};
  std::byte* data = nullptr;  // the leaf: in `buffer`, or inside a read buffer that is passed through
  bool pass_through = false;
  RecordedLeaf done{};
  bool hashed = false;        // staging has computed the hash already
  std::uint64_t covered = 0;  // bytes that copies and literals fill; the rest is zero

  /// A fetch that may be begun now.
  bool has_fetch() const { return next_fetch < fetches.size() && (next_fetch != first_check || open_fetches == 0); }
};

struct Reading {
  struct Part {
    Reading* reading = nullptr;
    std::uint32_t segment = 0;
  };
  struct Client {
    Job* job = nullptr;
    const Fetch* fetch = nullptr;
  };
  std::vector<Client> clients{};  // whose copies wait for it; the first one began it
  std::vector<Segment> segments{};
  BufferPool::Buffer buffer{};
  std::vector<Part> parts{};  // one per segment; their addresses are tags
  std::size_t open_segments = 0;

  /// The segment that holds all bytes of another one.
  const Segment* covering(const Segment& wanted) const {
    for (const Segment& segment : segments) {
      if (segment.file == wanted.file && segment.sparse == wanted.sparse && segment.compressed == wanted.compressed &&
          segment.begin <= wanted.begin && wanted.needed_end <= segment.needed_end) {
        return &segment;
      }
    }
    return nullptr;
  }
  bool is_done() const { return clients.empty(); }
  bool covers(const Fetch& fetch) const {
    return std::all_of(fetch.segments.begin(), fetch.segments.end(), [&](const Segment& s) { return covering(s); });
  }
};

}  // namespace ckpt
