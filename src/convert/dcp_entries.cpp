#include "convert/dcp_entries.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <utility>
#include <variant>

#include "format/little_endian.hpp"
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
