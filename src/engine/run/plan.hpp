#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/model/model.hpp"

namespace ckpt {

/// The unit that is hashed, written, divided among ranks and resumed.
constexpr std::uint64_t kLeafBytes = std::uint64_t{4} << 20;

/// A range of a target file and where its bytes come from. Exactly one of the three sources is used.
struct Placement {
  std::uint64_t offset = 0;  ///< bytes from the start of the target file
  std::uint64_t bytes = 0;
  enum class From : std::uint8_t {
    tensor,   ///< elements of a source tensor: `tensor`, `chunk`, `dtype`
    literal,  ///< `literal`
    raw,      ///< `raw_offset` of the source file `raw_file`, unchanged
  } from = From::tensor;
  std::uint32_t tensor = 0;      ///< index into the source map's tensors
  std::optional<Chunk> chunk{};  ///< the part; none: the whole tensor
  Dtype dtype = Dtype::f32;      ///< as written; differs from the source's where values are cast
  std::string literal{};
  std::uint32_t raw_file = 0;
  std::uint64_t raw_offset = 0;
  std::optional<Crc> raw_crc{};  ///< of the entry that the raw range is a part of
  /// Another tensor of the source, of the same shape, that should equal this one rounded to its type: read together
  /// with it and compared. Not for packed types.
  std::optional<std::uint32_t> twin{};
};

/// A field of a target file whose value is known when the data has passed: the CRC-32 of a range of the same file, in 4
/// bytes, little-endian. No range holds a late field.
///
/// Leaves are hashed with the field as zero ("masked"): a leaf's hash does not depend on it, also when the leaf is read
/// again, and its value is compared separately.
struct LateField {
  static constexpr std::uint64_t kBytes = 4;
  std::uint64_t offset = 0;  ///< bytes from the start of the target file
  Extent covers{};           ///< with the same meaning; not empty
};

/// A file to be made. Placements are sorted by offset, do not overlap, and tensors' offsets are multiples of their
/// element size; bytes that no placement covers are zero.
struct TargetFile {
  std::string path;  ///< relative to the target's root; "" = the root is the file
  std::uint64_t bytes = 0;
  std::vector<Placement> placements{};
  std::vector<LateField> late{};  ///< by offset, without overlaps; placements cover them with zeros, or not at all
  std::uint32_t file_class = 0;   ///< universal: 0 weights, 1 optim, 2 blobs, 3 objects
  std::uint32_t writer = 0;
  std::uint32_t volume = 0;
  std::uint64_t header_bytes = 0;  ///< of a safetensors file: 8 + header length; else 0
  std::uint64_t leaf_count() const { return (bytes + kLeafBytes - 1) / kLeafBytes; }
};

/// One strided n-D copy from a source file to a leaf: the join of a source chunk and a target placement.
struct Copy {
  struct Dim {
    std::uint64_t count = 0;
    std::uint64_t source_stride = 0;  ///< bytes
    std::uint64_t target_stride = 0;  ///< bytes
  };
  std::uint32_t source_file = 0;
  std::uint64_t source_offset = 0;  ///< bytes, of the first element
  std::uint64_t target_offset = 0;  ///< bytes from the start of the leaf
  Dtype from = Dtype::u8;           ///< as stored
  Dtype through = Dtype::u8;        ///< the tensor's own: a derived weight is rounded to it first
  Dtype to = Dtype::u8;             ///< dtype written; of a check: dtype in which both sides are compared
  Dtype held = Dtype::u8;           ///< of a check: dtype in the leaf
  std::uint32_t unit = 1;           ///< bytes of the innermost element in the source
  bool big_endian = false;
  bool of_twin = false;      ///< a check: of Placement::twin
  std::uint32_t tensor = 0;  ///< for messages; kNoTensor for raw ranges
  std::vector<Dim> dims{};   ///< outermost first; empty = one element
  /// Of a leaf whose siblings need the same rows of the source: bytes of a row, and of it those before the first element;
  /// the number of the first row, where the siblings begin in others. Dimensions with steps of at least a row are those of
  /// rows. 0: none needs them.
  std::uint32_t row_bytes = 0;
  std::uint32_t row_before = 0;
  std::uint64_t row_first = 0;
  std::optional<Crc> crc{};
  std::optional<Compressed> compressed{};  ///< then `source_offset` and `crc` count from the first decoded byte
};
constexpr std::uint32_t kNoTensor = 0xffffffff;
constexpr std::uint64_t kMostSiblings = 16;  ///< leaves that wait for the same rows, for which a worker gets buffers

/// The work for one leaf.
struct LeafJob {
  std::uint32_t file = 0;  ///< index into Plan::targets()
  std::uint64_t leaf = 0;
  std::uint64_t bytes = 0;  ///< of this leaf
  std::vector<Copy> copies{};
  std::vector<Copy> checks{};  ///< not executed, but compared with the result of the copies
  bool follows = false;        ///< some copies need only data that the leaves before it read, and end where those do
  std::size_t siblings = 1;    ///< leaves, this one and those around it, that need the same rows
  bool transposed = false;     ///< the siblings are of this file
  struct Literal {
    std::uint64_t target_offset = 0;  ///< from the start of the leaf
    std::string_view bytes;           ///< owned by the plan
  };
  std::vector<Literal> literals{};
};

/// The join of a source map and target files. Pure: holds no descriptor and moves no byte. Copies are produced leaf
/// by leaf, so its size does not depend on the number of chunks. `source` must outlive it.
class Plan {
 public:
  struct Totals {
    std::uint64_t source_bytes = 0;  ///< needed, before over-reading
    std::uint64_t target_bytes = 0;
    std::uint64_t leaves = 0;
    std::uint64_t placements = 0;
    std::uint64_t most_placements = 0;  ///< of a leaf
  };
  struct Options {
    bool check_replicas = false;  ///< if several places hold the same chunk, the others are compared with the first
  };
  /// internal: placements overlap, are unaligned, or pass the end of their file; or late fields do.
  static Result<Plan> make(const Map& source, std::vector<TargetFile> targets, Options options);
  static Result<Plan> make(const Map& source, std::vector<TargetFile> targets) {
    return make(source, std::move(targets), Options{});
  }

  const Map& source() const { return *source_; }
  const std::vector<TargetFile>& targets() const { return targets_; }
  const Totals& totals() const { return totals_; }
  /// Leaf number `index` of all leaves, target files in order. `uncovered` if no chunk holds an element.
  Result<LeafJob> leaf(std::uint64_t index) const;
  /// Leaves that exist already are skipped; `finished` has one entry per leaf. Before the plan is run.
  void skip_leaves(const std::vector<bool>& finished);
  std::uint64_t left_out_bytes() const { return left_out_bytes_; }

  /// Index of the first leaf of a target file.
  std::uint64_t first_leaf(std::size_t file) const { return first_leaf_[file]; }
  /// Leaves to process.
  std::uint64_t positions() const { return ordered_ ? order_.size() : totals_.leaves; }
  /// The leaf to process as number `position` of all: target order, but a leaf with values derived from data of other
  /// leaves follows directly after those, and leaves that need the same rows of the source follow each other.
  std::uint64_t leaf_at(std::uint64_t position) const {
    return ordered_ ? order_[static_cast<std::size_t>(position)] : position;
  }
  /// Whether some leaves need only data that others read, or decode: then it pays to keep that data for a while.
  bool shares_reads() const { return !leads_.empty() || siblings_ > 1 || source_->compressed; }
  /// The most leaves that need the same rows of the source; 1: none do.
  std::size_t siblings() const { return siblings_; }
  /// How many leaves from a position on are to be processed together; 0 inside of such a group.
  std::size_t together(std::uint64_t position) const;

 private:
  /// The source of a derived tensor: its copies are cut where the derived tensor's leaves end.
  struct Lead {
    std::uint64_t first_leaf = 0;  // of its file
    std::uint64_t offset = 0;      // bytes in that file
    std::uint64_t unit = 1;        // bytes an element
    std::uint64_t byte_of(std::uint64_t element) const { return offset + element * unit; }
  };
  void find_leads();
  Result<> order_siblings();
  Result<> find_transposed_leaves();
  void order_leaves();
  Result<> join(const Placement& placement, std::uint64_t begin, std::uint64_t end, std::uint64_t leaf_offset,
                LeafJob& job) const;

  const Map* source_ = nullptr;
  Options options_{};
  std::vector<TargetFile> targets_;
  std::vector<std::uint64_t> first_leaf_;
  std::unordered_map<std::uint32_t, Lead> leads_;  // by derived tensor
  std::vector<std::vector<std::size_t>> groups_;   // of files whose leaves are siblings, by number
  std::vector<std::size_t> group_of_;              // of each file, or kAlone; empty where there are no groups
  static constexpr std::size_t kAlone = SIZE_MAX;
  std::vector<Extent> transposed_;  // ranges of leaves that need the same rows, in order
  const Extent* transposed_with(std::uint64_t leaf) const;
  std::size_t siblings_ = 1;
  std::vector<std::uint64_t> order_;  // where `ordered_`; else target order
  bool ordered_ = false;
  std::uint64_t left_out_bytes_ = 0;
  Totals totals_;
};

}  // namespace ckpt
