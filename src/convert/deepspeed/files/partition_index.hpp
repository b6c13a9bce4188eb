#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "format/model/cut.hpp"
#include "format/model/model.hpp"

namespace ckpt::deepspeed {

/// A dense run of elements in one file.
struct Run {
  std::uint64_t offset = 0;  ///< of the first element, bytes from the start of the file
  std::uint64_t elements = 0;
  std::uint32_t file = 0;
  Dtype dtype = Dtype::f32;
  bool big_endian = false;
  std::optional<Crc> crc{};
};

/// Computes the locations of a tensor's elements from the cut rules: it holds one run for each rank, group and slot,
/// and one record per tensor, however many ranks a tensor spans.
class PartitionIndex final : public ChunkIndex {
 public:
  /// A flat array that ranks hold in parts: the run of each rank. Returns its number.
  std::uint32_t add_array(std::vector<Run> ranks);

  /// The next tensor (numbers run from 0 in the order of these calls) is stored whole in one place.
  void add_whole(Shape shape, Locator where);
  /// The next tensor is the elements [begin, begin + volume(shape)) of a flat group whose ranks hold `array`.
  struct InGroup {
    std::uint32_t array = 0;
    cut::FlatGroup group{};
    std::uint64_t begin = 0;
  };
  void add_in_group(Shape shape, const InGroup& place);
  /// The next tensor is cut separately; its part is at element `begin` of each rank's run of `array`.
  struct Partitioned {
    std::uint32_t array = 0;
    cut::Partition cut{};
    std::uint64_t begin = 0;
  };
  void add_partitioned(Shape shape, const Partitioned& place);

  /// Elements [first, ...) of a separately cut tensor.
  struct InPartition {
    Partitioned of{};
    std::uint64_t first = 0;
  };
  /// The location of a run of elements: one place, a flat group, or separately cut parts.
  using Source = std::variant<Locator, InGroup, InPartition>;

  /// A part of a tensor that is stored separately; the elements of the source are those of the box in row-major order.
  /// Each of several copies holds all of it.
  struct Piece {
    Box box{};
    std::vector<Source> copies{};
  };
  /// The next tensor is joined from pieces that cover it once. If ranks hold copies that are cut differently, all are
  /// visited in the parts that all cuts together make: copies are equal, and can be compared.
  void add_pieces(Shape shape, std::vector<Piece> pieces);

  std::size_t tensor_count() const { return tensors_.size(); }
  Result<> chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const override;

 private:
  struct Record {
    Shape shape;
    std::variant<Locator, InGroup, Partitioned, std::vector<Piece>> place;
  };
  Result<> visit_part(const Record& record, const Run& run, Extent elements, std::uint64_t skip,
                      const ChunkVisitor& visit) const;

  /// Element `at` of a source, and how many consecutive elements are there.
  struct Stretch {
    Locator where{};
    std::uint64_t elements = 0;
  };
  Stretch stretch(const Source& source, std::uint64_t at, std::uint64_t count) const;
  Result<> visit_piece(const Record& record, const Piece& piece, Extent elements, const ChunkVisitor& visit) const;

  std::vector<Record> tensors_;
  std::vector<std::vector<Run>> arrays_;
};

}  // namespace ckpt::deepspeed
