#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "convert/dcp/item.hpp"
#include "convert/dcp/ranges.hpp"
#include "convert/stored_type.hpp"
#include "format/model/model.hpp"
#include "format/torch/dcp_metadata.hpp"

namespace ckpt::dcp {

/// The chunks of a DCP directory. Boxes come from `.metadata`; the location of an item's bytes is stored inside the
/// item, and is read on first use, together with the items that follow it in its file; a compressed item has to be
/// decoded from begin to end for that. 48 bytes per item of up to two dimensions below 2^32: 20 for its place, 16 for
/// its box, 12 for the header.
class ItemIndex final : public ChunkIndex {
 public:
  /// types          one per entry; entries are the tensors of the map, in the same order
  /// decoded_bytes  if items are compressed, one per item: its decoded
  ///                size, 0 if not yet known (for tensors only); otherwise
  ///                empty
  ItemIndex(Metadata metadata, std::vector<StoredType> types, RangeReader reader,
            std::optional<Codec> codec = std::nullopt, std::vector<std::uint64_t> decoded_bytes = {});

  /// errors  corrupt or checksum, naming tensor, file and offset: an item that is damaged or disagrees with `.metadata`
  ///         in dtype or shape; unsupported: one that is not a plain tensor; errors of Io
  Result<> chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const override;
  /// Reads nothing.
  Result<> regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const override;

 private:
  /// Filled in on first use; one thread at a time.
  struct Lazy {
    HeldRanges ends;  ///< of the decoded item that is being opened
    RangeReader reader;
    ItemOpener opener{};
    std::vector<std::uint32_t> data_delta{};  ///< from the item's begin to its first element; 0: not yet read
    std::vector<std::uint32_t> crc{};         ///< of the whole, dense storage; 0: none
    std::unordered_map<std::uint64_t, Locator> unusual{};  ///< where data_delta is kUnusual
    std::vector<std::uint64_t> decoded_bytes{};            ///< bytes that the item decodes to; 0: not yet read
  };

  std::vector<std::uint64_t> find(std::size_t tensor, Extent elements) const;
  Result<> resolve(std::span<const std::uint64_t> needed) const;
  Result<> open_all(std::span<const std::uint64_t> items, bool skip_damaged) const;
  Result<> open_compressed(std::uint64_t item) const;
  Result<> check_item(std::uint64_t item, const OpenedItem& opened) const;
  Error disagreement(std::uint64_t item, std::string reason, Errc code = Errc::corrupt) const;
  Locator locator(const Entry& entry, const StoredType& type, std::uint64_t item) const;
  Chunk chunk(const Entry& entry, const StoredType& type, std::uint64_t item) const;
  std::size_t entry_of(std::uint64_t item) const;
  Extent item_bytes(std::uint64_t item) const;
  std::uint64_t dense_bytes(const Entry& entry, const StoredType& type, std::uint64_t item) const;
  std::uint64_t blob_bytes(std::uint64_t item) const;

  Metadata metadata_;
  std::optional<Codec> codec_;
  std::vector<StoredType> types_;        // one per entry
  std::vector<std::uint64_t> max_span_;  // one per entry: most elements from an item's first to its last, row-major
  std::vector<std::uint32_t> by_place_;  // items of tensors by file and offset
  mutable Lazy lazy_;
};

}  // namespace ckpt::dcp
