#include "convert/torch/item_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "format/torch/torch_object.hpp"

namespace ckpt::torch {
namespace {

constexpr std::uint64_t kMostItemRanks = std::uint64_t{1} << 20;
constexpr std::string_view kItemSuffix = ".pt";

tl::unexpected<Error> bad_index(std::string_view reason) {
  return fail(Errc::corrupt, fmt::format("metadata.pkl: {}", reason));
}

/// Files listed one by one, instead of by item name and rank.
bool names_files(const pickle::Graph& graph, pickle::NodeId item) {
  const auto ranks = as_mapping(graph, graph.find(item, "rank_to_layout_info"));
  return ranks &&
         std::ranges::any_of(*ranks, [&](const auto& rank) { return graph.kind(rank.second) != pickle::Kind::none; });
}

}  // namespace

bool begins_item_index(std::string_view head) {
  return head.find("nested_path_to_metadata") != std::string_view::npos;
}

Result<ItemIndex> parse_item_index(std::span<const std::byte> data, const pickle::Budget& budget) {
  CKPT_TRY(const pickle::Graph graph, pickle::parse(data, budget));
  ItemIndex out;
  const auto world = as_integer(graph, graph.find(graph.root(), "world_size"));
  if (!world || *world < 1 || static_cast<std::uint64_t>(*world) > kMostItemRanks)
    return bad_index("its world_size is not a number of ranks");
  out.world_size = static_cast<std::uint64_t>(*world);
  const auto items = as_mapping(graph, graph.find(graph.root(), "metadata"));
  if (!items) return bad_index("it has no items");
  for (const auto& [key, item] : *items) {
    const auto name = as_text(graph, key);
    if (!name || name->empty()) return bad_index("the name of an item is not text");
    if (names_files(graph, item))
      return fail(
          Errc::unsupported,
          fmt::format("metadata.pkl: files of the item {} use custom paths or a custom serialisation, which are "
                      "not yet read",
                      *name));
    out.items.push_back(*name);
  }
  return out;
}

Result<std::vector<RankFile>> select_item_files(const std::string& root, const std::vector<DirEntry>& entries,
                                                const ItemIndex& index) {
  std::vector<RankFile> files;
  std::set<std::string> there;
  for (const DirEntry& entry : entries) {
    if (entry.kind != FileInfo::Kind::file || !entry.name.ends_with(kItemSuffix)) continue;
    auto file = as_numbered_file(entry.name);
    if (!file || file->rank >= index.world_size) continue;
    // Exactly ITEM_RANK.pt: an item's own name may end in anything.
    const std::string ending = fmt::format("_{}{}", file->rank, kItemSuffix);
    if (!entry.name.ends_with(ending)) continue;
    file->item = entry.name.substr(0, entry.name.size() - ending.size());
    file->file_set = file->stem = file->item;
    file->world = index.world_size;
    there.insert(file->item);
    files.push_back(*std::move(file));
  }
  for (const std::string& item : index.items) {
    if (there.contains(item)) continue;
    const std::string name = item + "_0" + std::string(kItemSuffix);
    return fail({.code = Errc::incomplete,
                 .message = fmt::format("{}: all {} files of the item {} are missing, first {}", root, index.world_size,
                                        item, name),
                 .file = join_path(root, name),
                 .hint = "copy them from the nodes that wrote them into this directory"});
  }
  return order_rank_files(root, std::move(files));
}

}  // namespace ckpt::torch
