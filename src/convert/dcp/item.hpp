#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "convert/dcp/ranges.hpp"
#include "convert/torch_archive.hpp"

namespace ckpt::dcp {

/// The contents of an item's zip stream: the pickle's graph and, if its top object is a plain tensor, that view and the
/// location of its storage (as the only one in `archive.storages`).
struct OpenedItem {
  TorchArchive archive;
  std::shared_ptr<const torch::TensorView> view{};
};

/// Opens items from ranges that were read before. Items of equal type and shape have equal pickles, so the last few
/// are kept parsed. One thread at a time.
class ItemOpener {
 public:
  /// The first reads of an item: head and tail, which in torch's layout hold everything but the tensor.
  static void add_first_ranges(std::uint32_t file, Extent item, std::vector<Range>& out);

  /// item     the item's range in the file
  /// missing  set if the bytes in memory are not enough, and nothing is returned: read them, call again
  /// errors   as open_torch_archive, with file and offset; each round asks for bytes further on, at most kRounds times
  Result<std::optional<OpenedItem>> open(const HeldRanges& held, std::uint32_t file, Extent item,
                                         std::optional<Extent>& missing);
  static constexpr int kRounds = 16;

 private:
  struct Parsed {
    pickle::Graph graph;
    std::shared_ptr<const torch::TensorView> view;
  };
  Result<Parsed> parse(std::span<const std::byte> data);
  std::unordered_map<std::string, Parsed> parsed_;  // by the pickle's bytes
};

/// Called once for each item, by its place in `items`; an error that it returns stops the walk.
using ItemVisitor = std::function<Result<>(std::size_t item, Result<OpenedItem> opened)>;

/// Opens many items with few reads, a few MiB at a time; missing parts of heads and tails are read in further rounds.
/// During `visit` the reader holds at least the item's first bytes. Items should be sorted by file and offset.
/// errors   of the reads, and those that `visit` returns; a damaged item goes to `visit`
Result<> open_items(RangeReader& reader, ItemOpener& opener, std::span<const Range> items, const ItemVisitor& visit);

}  // namespace ckpt::dcp
