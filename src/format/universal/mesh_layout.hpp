#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/model/box.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"

/// Layouts of the universal format: FORMAT.md section 6. Numbers in, chunks out.
namespace ckpt::universal {

// Limits of every layout: they bound the cost of one query for one writer and one tensor, for any file.
constexpr std::uint64_t kMaxWriters = std::uint64_t{1} << 20;
constexpr std::size_t kMaxAxes = 16;
constexpr std::size_t kMaxCuts = 16;        ///< of one layout
constexpr std::size_t kMaxSegments = 1024;  ///< of one cut
constexpr std::size_t kMaxBoxes = 1024;     ///< that one writer holds of one tensor

/// Replicas share the writing of a chunk of at least this many bytes; a smaller one is written by one of them.
constexpr std::uint64_t kSharedChunkBytes = std::uint64_t{1} << 20;

struct Axis {
  std::string name;  ///< "tp", "pp", "dp", ...: unique in its mesh, not empty
  std::uint64_t size = 1;
  bool operator==(const Axis&) const = default;
};

/// The writers of a save as a grid. A writer's number is row-major over its coordinates, the first axis outermost.
struct Mesh {
  std::vector<Axis> axes{};

  /// errors   corrupt: an axis of size 0, or more than kMaxWriters
  Result<std::uint64_t> writer_count() const;
  /// One coordinate an axis. `writer` must be below writer_count().
  std::vector<std::uint64_t> coordinates(std::uint64_t writer) const;
  /// The inverse.
  std::uint64_t writer(const std::vector<std::uint64_t>& coordinates) const;
  bool operator==(const Mesh&) const = default;
};

/// Which part of a tensor each writer holds. Steps apply in this order: `at` (whether the writer is a holder), then
/// each of `cuts` to the rest left by the previous one, then `flat` to the row-major linearisation of that rest. Axes
/// that none of them names, and those of `at` with several indices, count replicas: writers with the same part.
struct Layout {
  enum class Kind : std::uint8_t {
    whole,       ///< one entry in the file of writer 0 that the row's `volume` names
    mesh,        ///< by `mesh`, `at`, `cuts`, `flat`
    irregular,   ///< as the files index/WWWWW.bin say: format/universal/index_file.hpp
    referenced,  ///< in files of other checkpoints, as the row's `chunks` say: format/universal/references.hpp
  };
  /// Only writers with one of these coordinates hold the tensor: pipeline stages, groups of experts.
  struct At {
    std::uint32_t axis = 0;
    std::vector<std::uint64_t> indices{};  ///< ascending, at least one; several are replicas (tied embeddings)
    bool operator==(const At&) const = default;
  };
  /// One dimension, divided among the writers along some axes.
  struct Cut {
    enum class Rule : std::uint8_t {
      ceil,    ///< cut::chunk: parts of ceil(length / parts)
      even,    ///< cut::even: parts that differ by at most one
      points,  ///< part k is [points[k], points[k + 1])
    };
    std::uint32_t dim = 0;
    std::vector<std::uint32_t> axes{};  ///< at least one; the part's number is row-major over them, first outermost
    Rule rule = Rule::ceil;
    /// For `points`: from 0 to the length of the dimension, ascending (equal neighbours: nothing), one more than parts.
    /// Only in the first cut of a dimension.
    std::vector<std::uint64_t> points{};
    /// Where not empty: the dimension is these lengths laid end to end, each divided by the rule on its own, so that a
    /// writer holds a range of every segment (fused QKV, gate and up). With `ceil` and `even`, and only in the first
    /// cut of a dimension.
    std::vector<std::uint64_t> segments{};
    bool operator==(const Cut&) const = default;
  };
  /// Elements of the linearised rest: part k holds [k * part - begin, (k + 1) * part - begin), as far as there are such
  /// elements. `begin` is in the tensor's row: the offset of the tensor in the flat group that is divided (0 if each
  /// tensor is divided separately). If a cut has segments it must be one of dimension 0, so that the rest is its boxes
  /// one after another.
  struct Flat {
    std::vector<std::uint32_t> axes{};  ///< at least one; the part's number is row-major over them
    std::uint64_t part = 0;             ///< elements of each part, at least 1
    bool operator==(const Flat&) const = default;
  };

  Kind kind = Kind::whole;
  Mesh mesh{};
  std::vector<At> at{};
  std::vector<Cut> cuts{};
  std::optional<Flat> flat{};
  bool operator==(const Layout&) const = default;
};

/// Checks a layout by itself: sizes, axes that exist and are used once, points and segments that ascend.
/// errors   corrupt: the message is the reason alone and names the member
Result<> check_layout(const Layout& layout);

/// Checks a layout that passed check_layout against a tensor: dimensions that exist, points and segments that end where
/// the dimension ends, flat parts that reach the end of the tensor. (Whether elements of packed dtypes that share a
/// byte stay together is checked when chunks are computed.)
///
/// begin    the row's
/// errors   corrupt, with the tensor
Result<> check_layout(const Layout& layout, const Tensor& tensor, std::uint64_t begin);

/// The same check for many tensors of one layout: the layout itself is checked once, however many points it has.
class LayoutFit {
 public:
  explicit LayoutFit(const Layout& layout);  ///< passed check_layout; must outlive this
  const Layout& layout() const { return layout_; }
  Result<> check(const Tensor& tensor, std::uint64_t begin) const;

 private:
  const Layout& layout_;
  std::vector<std::uint64_t> longest_{};  // with `flat`, of each cut: the part that holds most
};

/// The part of a tensor in a writer's memory: the boxes of its local array, row-major over the segments of each
/// dimension, or the flat pieces of them. The bytes of the local array are those of the chunks one after another,
/// unless a cut has segments of a dimension other than the first: then rows of the boxes alternate. A flat range that
/// covers its whole box is that box. Nothing for a writer beyond the mesh, or one that holds no element. For a tensor
/// without elements writer 0 holds one chunk, others none. Layout `whole` gives writer 0 all; `irregular` cannot be
/// queried.
///
/// layout   passed both checks
/// errors   corrupt: over kMaxBoxes, or elements of a packed dtype that share a byte would go to two writers; internal:
///          an irregular layout
Result<std::vector<Chunk>> held_chunks(const Layout& layout, const Tensor& tensor, std::uint64_t begin,
                                       std::uint64_t writer);

/// The chunks that this writer writes of those that it holds, by the owner rule; over all writers every element exactly
/// once. A chunk with R replicas and at least kSharedChunkBytes is divided: replica r writes the r-th part by cut::even
/// of its rows (the first dimension of the box longer than 1; of a flat range: its elements; in units of whole bytes);
/// else replica XXH64(name) mod R writes it all. Replica numbers are row-major over the axes that count replicas, in
/// mesh order. A chunk's number here is the volume of its file.
/// errors  as held_chunks
Result<std::vector<Chunk>> written_chunks(const Layout& layout, const Tensor& tensor, std::uint64_t begin,
                                          std::uint64_t writer);

}  // namespace ckpt::universal
