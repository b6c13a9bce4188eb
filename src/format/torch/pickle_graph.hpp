#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/torch/pickle.hpp"

namespace ckpt::pickle {

/// Runs of values in blocks of 1 << kShift: a run is contiguous, nothing that is full ever moves, and growing never
/// needs twice the memory. Indices are stable; pointers are not while the first block grows.
template <class T, unsigned kShift>
class Runs {
 public:
  static constexpr std::size_t kBlock = std::size_t{1} << kShift;
  static constexpr std::size_t kMaxRun = kBlock / 8;  ///< longest run: bounds the unused rest of a block

  /// Index of the first value of the new run; run.size() <= kMaxRun.
  std::uint32_t append(std::span<const T> run) {
    if (used_ + run.size() > capacity_) grow(run.size());
    const std::size_t index = (blocks_.size() - 1) * kBlock + used_;
    std::copy(run.begin(), run.end(), blocks_.back().get() + used_);
    used_ += run.size();
    return static_cast<std::uint32_t>(index);
  }
  const T* at(std::uint32_t index) const { return blocks_[index >> kShift].get() + (index & (kBlock - 1)); }
  T* at(std::uint32_t index) { return blocks_[index >> kShift].get() + (index & (kBlock - 1)); }
  /// One past the last index.
  std::size_t end() const { return blocks_.empty() ? 0 : (blocks_.size() - 1) * kBlock + used_; }
  std::uint64_t bytes() const { return blocks_.empty() ? 0 : ((blocks_.size() - 1) * kBlock + capacity_) * sizeof(T); }
  /// True when the next block could not be addressed by 32 bits.
  bool exhausted() const { return blocks_.size() >= (std::size_t{1} << (32 - kShift)) - 1; }

 private:
  void grow(std::size_t wanted) {
    if (blocks_.empty()) {
      capacity_ = std::max<std::size_t>(kBlock >> 6, kMaxRun);
      blocks_.push_back(std::make_unique_for_overwrite<T[]>(capacity_));
    } else if (capacity_ < kBlock && used_ + wanted <= kBlock) {  // only the first block is ever short
      auto larger = std::make_unique_for_overwrite<T[]>(kBlock);
      std::copy_n(blocks_.back().get(), used_, larger.get());
      blocks_.back() = std::move(larger);
      capacity_ = kBlock;
    } else {
      blocks_.push_back(std::make_unique_for_overwrite<T[]>(kBlock));
      capacity_ = kBlock;
      used_ = 0;
    }
  }

  std::vector<std::unique_ptr<T[]>> blocks_;
  std::size_t used_ = 0;      // of the last block
  std::size_t capacity_ = 0;  // of the last block
};

/// One value, 16 bytes. What `a`, `b` and `extra` hold depends on the kind:
///   integer, real            a, b: the low and high half of the 64 bits
///   boolean                  a
///   text, bytes, big_integer, global   a: first character, b: length; extra 1: a is an index into long_texts
///   list, tuple, set, dict   a: first item, b: count; extra 1: a is an index into long_items
///   call                     a: callee, b: arguments; extra: 1 + index into call_parts, 0 = none
///   persistent               a: the id's value
struct Node {
  std::uint32_t offset;
  std::uint32_t a;
  std::uint32_t b;
  std::uint32_t kind_and_extra;  ///< kind in the low 4 bits

  Kind kind() const { return static_cast<Kind>(kind_and_extra & 15u); }
  std::uint32_t extra() const { return kind_and_extra >> 4; }
  void set_extra(std::uint32_t extra) { kind_and_extra = (kind_and_extra & 15u) | (extra << 4); }
};
static_assert(sizeof(Node) == 16);
constexpr std::uint64_t kMostNodes = (std::uint64_t{1} << 28) - 2;  ///< what `extra` can address

/// Additions after a call: BUILD state, and items by APPEND(S), ADDITEMS or SETITEM(S).
struct CallParts {
  enum class Items : std::uint32_t { none, appended, pairs };
  NodeId state = kNone;
  std::uint32_t begin = 0;
  std::uint32_t count : 29 = 0;  // of a run, so at most Runs::kMaxRun
  std::uint32_t is_long : 1 = 0;
  Items items : 2 = Items::none;
};
static_assert(sizeof(CallParts) == 12);

struct Graph::Impl {
  Runs<Node, 12> nodes;
  Runs<NodeId, 14> items;
  Runs<char, 16> texts;
  Runs<CallParts, 12> call_parts;
  std::vector<std::vector<NodeId>> long_items;
  std::vector<std::string> long_texts;
  std::uint64_t long_bytes = 0;  ///< memory of the two vectors above
  std::uint64_t long_text_bytes = 0;
  std::vector<NodeId> new_objects;  ///< calls by NEWOBJ, ascending
  NodeId root = kNone;

  const Node& node(NodeId id) const { return *nodes.at(id); }
  Node& node(NodeId id) { return *nodes.at(id); }
  std::string_view text_of(const Node& node) const;
  std::span<const NodeId> items_of(const Node& node) const;
  const CallParts* parts_of(const Node& node) const;
  std::uint64_t bytes() const {
    return nodes.bytes() + items.bytes() + texts.bytes() + call_parts.bytes() + long_bytes +
           new_objects.capacity() * sizeof(NodeId);
  }
};

/// True when the nodes below `root` nest no deeper than `max_depth`. A cycle is not depth. Memory: 2 bytes a node.
bool nests_within(const Graph::Impl& graph, NodeId root, std::uint32_t max_depth);

/// refused: a global that runs code (see parse); `module` and `name` as in the pickle.
Result<> check_global(std::string_view module, std::string_view name);

/// A two's complement little-endian integer as decimal text with sign.
std::string decimal_of(std::span<const std::byte> little_endian);
/// True for UTF-8; lone surrogates (which Python writes with "surrogatepass") are let through.
bool is_text(std::string_view bytes);
/// The text of protocol 0's UNICODE (raw-unicode-escape) or STRING (quoted repr) argument; nothing if malformed.
bool decode_unicode_line(std::string_view line, std::string& out);
bool decode_string_line(std::string_view line, std::string& out);
/// Appends a code point as UTF-8 (surrogates too).
void append_utf8(std::string& out, std::uint32_t code_point);

}  // namespace ckpt::pickle
