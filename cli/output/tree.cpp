#include "cli/output/tree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "cli/output/console.hpp"
#include "cli/output/table.hpp"

namespace ckpt::cli {
namespace {

struct Leaf {
  std::vector<std::string_view> parts;
  const ListedTensor* tensor;
};

std::vector<std::string_view> split_name(std::string_view name) {
  std::vector<std::string_view> out;
  while (out.size() + 1 < kDeepestTree) {
    const std::size_t dot = name.find('.');
    if (dot == std::string_view::npos) break;
    out.push_back(name.substr(0, dot));
    name.remove_prefix(dot + 1);
  }
  out.push_back(name);
  return out;
}

struct Sum {
  std::size_t end;  ///< one past the last leaf of the branch
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
};

/// The leaves from `begin` on that share their first `levels` parts.
Sum sum_branch(const std::vector<Leaf>& leaves, std::size_t begin, std::size_t levels) {
  const auto& first = leaves[begin].parts;
  Sum out{.end = begin};
  for (; out.end < leaves.size(); ++out.end) {
    const Leaf& leaf = leaves[out.end];
    if (leaf.parts.size() < levels ||
        !std::equal(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(levels), leaf.parts.begin()))
      break;
    if (!leaf.tensor->alias_of.empty()) continue;
    ++out.tensors;
    out.bytes += leaf.tensor->bytes;
  }
  return out;
}

struct Row {
  std::string name;
  std::string size;
  std::string rest;
};

Row leaf_row(const Leaf& leaf, std::size_t level, SizeStyle sizes) {
  const ListedTensor& tensor = *leaf.tensor;
  Row out{.name = std::string(2 * level, ' ') + printable(leaf.parts[level]),
          .rest = fmt::format("{} [{}]", tensor.dtype, fmt::join(tensor.shape, ", "))};
  if (tensor.alias_of.empty())
    out.size = format_size(tensor.bytes, sizes);
  else
    out.rest += fmt::format("  same as {}", printable(tensor.alias_of));
  return out;
}

}  // namespace

std::string draw_tree(const std::vector<ListedTensor>& tensors, std::size_t depth, SizeStyle sizes) {
  std::vector<Leaf> leaves;
  for (const ListedTensor& tensor : tensors) leaves.push_back({split_name(tensor.name), &tensor});
  std::ranges::stable_sort(leaves, [](const Leaf& a, const Leaf& b) {
    return std::ranges::lexicographical_compare(a.parts, b.parts, natural_less);
  });
  std::vector<Row> rows;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto& parts = leaves[i].parts;
    std::size_t level = 0;  // branches that the leaf before has already shown
    if (i > 0) {
      const auto& before = leaves[i - 1].parts;
      while (level + 1 < parts.size() && level + 1 < before.size() && parts[level] == before[level]) ++level;
    }
    for (; level + 1 < parts.size() && level < depth; ++level) {
      const Sum sum = sum_branch(leaves, i, level + 1);
      rows.push_back({.name = std::string(2 * level, ' ') + printable(parts[level]),
                      .size = format_size(sum.bytes, sizes),
                      .rest = format_counted(sum.tensors, "tensor")});
    }
    if (parts.size() <= depth) rows.push_back(leaf_row(leaves[i], parts.size() - 1, sizes));
  }
  std::size_t names = 0;
  std::size_t numbers = 0;
  for (const Row& row : rows) {
    names = std::max(names, text_width(row.name));
    numbers = std::max(numbers, row.size.size());
  }
  std::string out;
  for (const Row& row : rows)
    out += row.name + std::string(names - text_width(row.name) + 2 + numbers - row.size.size(), ' ') + row.size + "  " +
           row.rest + "\n";
  return out;
}

}  // namespace ckpt::cli
