#include "convert/dcp_entries.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include "format/little_endian.hpp"
#include "format/model/training_groups.hpp"
#include "format/torch/dcp_item.hpp"
#include "format/torch/flatten_state.hpp"
#include "format/torch/tensor_pickle.hpp"

namespace ckpt::dcp {
namespace {

/// An element type of the model as torch's.
struct TorchType {
  std::string dtype;
  Shape shape;
  StoredType type;
};

Result<TorchType> torch_type(const Tensor& tensor) {
  CKPT_TRY(torch::TorchForm form, torch::torch_form(tensor.name, tensor.dtype, tensor.true_dtype, tensor.shape));
  TorchType out{.dtype = std::string(form.dtype), .shape = std::move(form.shape), .type = {.dtype = tensor.dtype}};
  if (form.is_complex) out.type.form = StoredType::Form::complex_pair;
  if (tensor.dtype == Dtype::f4) out.type.form = StoredType::Form::packed_pair;
  return out;
}

}  // namespace

Result<> EntrySet::take(StateEntry entry) {
  if (!keys_.insert(entry.fqn).second)
    return fail(Error{.code = Errc::usage,
                      .message = fmt::format("{}: two entries would have the key '{}'", request_.target, entry.fqn),
                      .tensor = entry.fqn});
  entries_.push_back(std::move(entry));
  return {};
}

Result<> EntrySet::add_tensor(std::uint32_t index, const Tensor& tensor, std::string key, Path path) {
  CKPT_TRY(TorchType type, torch_type(tensor));
  return take({.fqn = std::move(key),
               .path = std::move(path),
               .tensor = index,
               .dtype = std::move(type.dtype),
               .shape = std::move(type.shape),
               .type = type.type});
}

Result<> EntrySet::add_scalar(std::uint32_t index, const Tensor& tensor, Path path) {
  CKPT_TRY(TorchType type, torch_type(tensor));
  std::string fqn = dotted(path);
  return take({.fqn = std::move(fqn),
               .path = std::move(path),
               .from = StateEntry::From::scalar,
               .tensor = index,
               .dtype = std::move(type.dtype),
               .type = type.type});
}

Result<> EntrySet::add_number(float value, Path path) {
  std::string bytes;
  append_little_endian(bytes, std::bit_cast<std::uint32_t>(value), sizeof value);
  std::string fqn = dotted(path);
  return take({.fqn = std::move(fqn),
               .path = std::move(path),
               .from = StateEntry::From::literal,
               .dtype = "float32",
               .type = {.dtype = Dtype::f32},
               .bytes = std::move(bytes)});
}

Result<> EntrySet::add_item(std::uint32_t index, std::uint64_t bytes, std::string key, Path path) {
  return take({.fqn = std::move(key),
               .path = std::move(path),
               .from = StateEntry::From::item,
               .tensor = index,
               .shape = {bytes}});
}

void EntrySet::add_leaves(std::span<const TreeLeaf> values) {
  std::vector<TreeLeaf> leaves;
  for (const StateEntry& entry : entries_)
    leaves.push_back({entry.path, std::make_shared<const Value>(Value{TensorRef{.name = entry.fqn}})});
  for (const TreeLeaf& value : values) {
    // An attribute of a module's state dict, not an entry: torch does not save it.
    if (!value.path.empty() && value.path.back() == PathPart("_metadata")) continue;
    leaves.push_back(value);
  }
  const auto tree = build_tree(leaves);
  if (!tree) return;
  for (const torch::FlatValue& leaf : torch::flatten_state({}, std::make_shared<const Value>(*tree))) {
    const auto* option = leaf.path.empty() ? nullptr : std::get_if<std::string>(&leaf.path.back());
    add_value(leaf.path, option == nullptr ? *leaf.value : as_group_option(*option, *leaf.value));
  }
}

std::vector<StateEntry> EntrySet::take_entries() {
  std::map<Path, std::set<PathPart>> below;  // parts by their container
  for (StateEntry& entry : entries_) {
    if (dotted(entry.path) != entry.fqn) entry.path = {entry.fqn};
    for (auto part = entry.path.begin(); part != entry.path.end(); ++part)
      below[Path(entry.path.begin(), part)].insert(*part);
  }
  const auto is_list = [&](const Path& container) {
    const std::set<PathPart>& parts = below.at(container);
    const auto last = static_cast<std::int64_t>(parts.size()) - 1;
    return !container.empty() && *parts.begin() == PathPart(std::int64_t{0}) && *parts.rbegin() == PathPart(last);
  };
  for (StateEntry& entry : entries_) {
    const Path path = entry.path;
    for (std::size_t i = 0; i < path.size(); ++i) {
      const Path container(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(i));
      if (std::holds_alternative<std::int64_t>(path[i]) && !is_list(container)) entry.path[i] = part_text(path[i]);
    }
  }
  return std::move(entries_);
}

void EntrySet::add_value(const Path& path, const Value& value) {
  const ValuePtr borrowed(&value, [](const Value*) {});  // outlives the leaves
  for (torch::FlatValue& leaf : torch::flatten_state(path, borrowed)) {
    if (std::holds_alternative<TensorRef>(leaf.value->v)) continue;  // a separate entry, or left out
    auto bytes = object_pickle(*leaf.value);
    std::string key = dotted(leaf.path);
    if (!bytes || !keys_.insert(key).second) {
      lost_objects_.push_back(dotted_escaped(leaf.path));
      continue;
    }
    entries_.push_back({.fqn = std::move(key),
                        .path = std::move(leaf.path),
                        .from = StateEntry::From::object,
                        .bytes = *std::move(bytes)});
  }
}

}  // namespace ckpt::dcp
