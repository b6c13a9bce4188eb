#include "convert/dcp/items_apart.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/io/io.hpp"

namespace ckpt::dcp {
namespace {

/// The key of the entry that an item belongs to. If that entry was dropped, the key of the previous one.
const std::string& key_of(const Metadata& metadata, std::uint64_t item) {
  const auto after = std::upper_bound(metadata.entries.begin(), metadata.entries.end(), item,
                                      [](std::uint64_t i, const Entry& entry) { return i < entry.first_item; });
  return after == metadata.entries.begin() ? metadata.entries.front().fqn : std::prev(after)->fqn;
}

}  // namespace

Result<> check_items_apart(const Metadata& metadata, const std::string& root) {
  if (metadata.entries.empty()) return {};
  // By file, and within each as they come, which is mostly the order of their offsets.
  std::vector<std::uint64_t> ends(metadata.files.size() + 1, 0);
  for (const std::uint32_t file : metadata.item_file) ++ends[file + 1];
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  std::vector<std::uint64_t> next(ends.begin(), ends.end() - 1);
  std::vector<std::uint64_t> order(metadata.item_file.size());
  for (std::uint64_t item = 0; item < order.size(); ++item) order[next[metadata.item_file[item]]++] = item;

  const auto by_offset = [&](std::uint64_t a, std::uint64_t b) {
    return metadata.item_offset[a] < metadata.item_offset[b];
  };
  for (std::size_t file = 0; file < metadata.files.size(); ++file) {
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(ends[file]);
    const auto end = order.begin() + static_cast<std::ptrdiff_t>(ends[file + 1]);
    if (!std::is_sorted(begin, end, by_offset)) std::sort(begin, end, by_offset);
    const auto overlap = std::adjacent_find(begin, end, [&](std::uint64_t a, std::uint64_t b) {
      return metadata.item_length[a] > metadata.item_offset[b] - metadata.item_offset[a];
    });
    if (overlap == end) continue;
    const std::string path = join_path(root, metadata.files[file].path);
    const std::uint64_t offset = metadata.item_offset[*std::next(overlap)];
    const std::string& first = key_of(metadata, *overlap);
    const std::string& second = key_of(metadata, *std::next(overlap));
    return fail(Error{.code = Errc::corrupt,
                      .message = path + ": according to .metadata, the same bytes hold parts of " + first + " and of " +
                                 second + ", from byte " + std::to_string(offset),
                      .file = path,
                      .offset = offset,
                      .tensor = second,
                      .hint = ".metadata is damaged or belongs to another save: use an earlier checkpoint"});
  }
  return {};
}

}  // namespace ckpt::dcp
