#include "cli/output/tree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/output/console.hpp"
#include "cli/output/table.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::cli {
namespace {

/// A part of the names: a branch with parts below it, or a tensor. Both if a tensor's name is the beginning of others'.
struct Node {
  std::string_view part;
  const ListedTensor* tensor = nullptr;
  std::vector<Node> below{};
  std::uint64_t tensors = 0;  ///< tied names count as nothing
  std::uint64_t bytes = 0;
  std::size_t shape_hash = 0;  ///< equal for branches with the same names, dtypes and shapes below them
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

void mix(std::size_t& hash, std::size_t value) {
  hash ^= value + 0x9e3779b97f4a7c15U + (hash << 6U) + (hash >> 2U);
}

void finish(Node& node) {
  if (node.tensor != nullptr) {
    const ListedTensor& tensor = *node.tensor;
    const bool is_tied = !tensor.alias_of.empty();
    node.tensors = is_tied ? 0 : 1;
    node.bytes = is_tied ? 0 : tensor.bytes;
    mix(node.shape_hash, std::hash<std::string>{}(is_tied ? tensor.alias_of : tensor.dtype));
    for (const std::uint64_t size : tensor.shape) mix(node.shape_hash, size);
  }
  for (Node& one : node.below) {
    finish(one);
    node.tensors += one.tensors;
    node.bytes += one.bytes;
    mix(node.shape_hash, std::hash<std::string_view>{}(one.part));
    mix(node.shape_hash, one.shape_hash);
  }
}

Node make_tree(const std::vector<ListedTensor>& tensors) {
  std::vector<std::pair<std::vector<std::string_view>, const ListedTensor*>> leaves;
  for (const ListedTensor& tensor : tensors) leaves.emplace_back(split_name(tensor.name), &tensor);
  std::ranges::stable_sort(leaves, [](const auto& a, const auto& b) {
    return std::ranges::lexicographical_compare(a.first, b.first, natural_less);
  });
  Node root;
  for (const auto& [parts, tensor] : leaves) {
    Node* at = &root;
    for (const std::string_view part : parts) {
      if (at->below.empty() || at->below.back().part != part) at->below.push_back({.part = part});
      at = &at->below.back();
    }
    at->tensor = tensor;
  }
  finish(root);
  return root;
}

struct Row {
  std::string name;
  std::string size;
  std::string rest;
};

std::string indented(std::size_t level, std::string_view part) {
  return std::string(2 * level, ' ') + printable(part);
}

Row tensor_row(const Node& node, std::size_t level, SizeStyle sizes) {
  const ListedTensor& tensor = *node.tensor;
  Row out{.name = indented(level, node.part),
          .rest = fmt::format("{} [{}]", tensor.dtype, fmt::join(tensor.shape, ", "))};
  if (tensor.alias_of.empty())
    out.size = format_size(tensor.bytes, sizes);
  else
    out.rest += fmt::format("  same as {}", printable(tensor.alias_of));
  return out;
}

std::optional<std::uint64_t> number_of(const Node& node) {
  return parse_number<std::uint64_t>(node.part);
}

/// One past the last of the consecutive numbers from `begin` on whose branches are equal.
std::size_t equal_until(const std::vector<Node>& nodes, std::size_t begin) {
  std::size_t end = begin + 1;
  auto number = number_of(nodes[begin]);
  if (!number || nodes[begin].below.empty()) return end;
  for (; end < nodes.size(); ++end) {
    const auto next = number_of(nodes[end]);
    if (next != *number + 1 || nodes[end].shape_hash != nodes[begin].shape_hash) break;
    number = next;
  }
  return end;
}

struct Drawing {
  std::size_t depth;
  SizeStyle sizes;
  bool fold;
  std::vector<Row> rows{};

  void draw(const std::vector<Node>& nodes, std::size_t level) {
    if (level >= depth) return;
    for (std::size_t i = 0; i < nodes.size();) {
      const Node& node = nodes[i];
      const std::size_t end = fold ? equal_until(nodes, i) : i + 1;
      if (node.tensor != nullptr) rows.push_back(tensor_row(node, level, sizes));
      if (end - i > 1) {
        const std::uint64_t count = end - i;
        rows.push_back({.name = indented(level, fmt::format("{}-{}  ×{}", node.part, nodes[end - 1].part, count)),
                        .size = format_size(node.bytes * count, sizes),
                        .rest = fmt::format("{}, {} each", format_counted(node.tensors * count, "tensor"),
                                            format_size(node.bytes, sizes))});
      } else if (!node.below.empty()) {
        std::uint64_t tensors = 0;
        std::uint64_t bytes = 0;
        for (const Node& one : node.below) {
          tensors += one.tensors;
          bytes += one.bytes;
        }
        rows.push_back({.name = indented(level, node.part),
                        .size = format_size(bytes, sizes),
                        .rest = format_counted(tensors, "tensor")});
      }
      draw(node.below, level + 1);
      i = end;
    }
  }
};

}  // namespace

std::string draw_tree(const std::vector<ListedTensor>& tensors, std::size_t depth, SizeStyle sizes, bool fold) {
  const Node root = make_tree(tensors);
  Drawing drawing{.depth = depth, .sizes = sizes, .fold = fold};
  drawing.draw(root.below, 0);
  std::size_t names = 0;
  std::size_t numbers = 0;
  for (const Row& row : drawing.rows) {
    names = std::max(names, std::min(text_width(row.name), kWidestColumn));
    numbers = std::max(numbers, row.size.size());
  }
  std::string out;
  for (const Row& row : drawing.rows)
    out += row.name + std::string(names - std::min(names, text_width(row.name)) + 2 + numbers - row.size.size(), ' ') +
           row.size + "  " + row.rest + "\n";
  return out;
}

}  // namespace ckpt::cli
