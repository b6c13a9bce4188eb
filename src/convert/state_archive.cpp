#include "convert/state_archive.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "engine/io/io.hpp"
#include "format/checked.hpp"
#include "format/little_endian.hpp"
#include "format/text/parse_number.hpp"
#include "format/torch/archive_layout.hpp"
#include "format/torch/value_pickle.hpp"

namespace ckpt {
namespace {

// Names of the archive's own tensors begin with a byte that is in no UTF-8 text, and so in no name of a map.
constexpr char kOwn = '\xff';

template <class T>
ValuePtr make(T value) {
  auto out = std::make_shared<Value>();
  out->v = std::move(value);
  return out;
}

std::optional<std::size_t> own_index(const std::string& name) {
  if (name.empty() || name[0] != kOwn) return std::nullopt;
  return parse_number<std::size_t>(std::string_view(name).substr(1));
}

std::uint64_t bytes_each(Dtype dtype) {
  return dtype_bits(dtype) / 8;
}

}  // namespace

ValuePtr none_value() {
  return make(None{});
}
ValuePtr value_of(bool value) {
  return make(value);
}
ValuePtr value_of(std::int64_t value) {
  return make(value);
}
ValuePtr value_of(std::uint64_t value) {
  return make(static_cast<std::int64_t>(value));
}
ValuePtr value_of(double value) {
  return make(value);
}
ValuePtr value_of(std::string_view text) {
  return make(std::string(text));
}
ValuePtr list_of(std::vector<ValuePtr> items, List::Kind kind) {
  return make(List{.kind = kind, .items = std::move(items)});
}
ValuePtr size_of(const Shape& shape) {
  std::vector<ValuePtr> sizes;
  for (const std::uint64_t size : shape) sizes.push_back(value_of(size));
  return make(Opaque{.global = "torch.Size",
                     .args = list_of({list_of(std::move(sizes), List::Kind::tuple)}, List::Kind::tuple),
                     .state = nullptr});
}

void DictValue::set(std::string_view key, ValuePtr value) {
  const auto [at, is_new] = at_.emplace(key, dict_.items.size());
  if (is_new) {
    dict_.items.emplace_back(value_of(key), std::move(value));
  } else {
    dict_.items[at->second].second = std::move(value);
  }
}

ValuePtr DictValue::finish() && {
  return make(std::move(dict_));
}

ValuePtr StateArchive::add(Stored stored, TorchStorage storage) {
  stored.storage = storages_.size();
  storages_.push_back(std::move(storage));
  return reference(std::move(stored));
}

ValuePtr StateArchive::reference(Stored stored) {
  stored_.push_back(std::move(stored));
  return make(TensorRef{kOwn + std::to_string(stored_.size() - 1)});
}

Result<ValuePtr> StateArchive::whole(std::uint32_t tensor, Dtype dtype) {
  const Tensor& source = source_.tensors[tensor];
  const std::uint64_t key = std::uint64_t{tensor} << 8 | static_cast<std::uint64_t>(dtype);
  if (const auto found = whole_.find(key); found != whole_.end())
    return make(TensorRef{kOwn + std::to_string(found->second)});
  const std::string_view true_dtype = dtype == source.dtype ? std::string_view(source.true_dtype) : std::string_view();
  CKPT_TRY(torch::TorchForm form, torch::torch_form(source.name, dtype, true_dtype, source.shape));
  CKPT_TRY(const std::uint64_t bytes, tensor_bytes(dtype, source.shape));
  TorchStorage storage{.bytes = bytes};
  if (bytes != 0)
    storage.placements.push_back({.bytes = bytes, .from = Placement::From::tensor, .tensor = tensor, .dtype = dtype});
  whole_.emplace(key, stored_.size());
  return add({.dtype = form.dtype, .shape = std::move(form.shape)}, std::move(storage));
}

ValuePtr StateArchive::flat(std::uint64_t elements, Dtype dtype, std::span<const SourceRun> runs) {
  const std::uint64_t each = bytes_each(dtype);
  TorchStorage storage{.bytes = elements * each};
  storage.placements.reserve(runs.size());
  for (const SourceRun& run : runs) {
    const Shape& shape = source_.tensors[run.tensor].shape;
    Placement& placement = storage.placements.emplace_back();
    placement.offset = run.offset * each;
    placement.bytes = run.elements.size() * each;
    placement.from = Placement::From::tensor;
    placement.tensor = run.tensor;
    placement.dtype = dtype;
    if (run.elements.begin != 0 || run.elements.end != volume(shape))
      placement.chunk = Chunk{.box = Box::whole(shape), .flat = run.elements};
  }
  return add({.dtype = torch::torch_dtype(dtype), .shape = {elements}}, std::move(storage));
}

ValuePtr StateArchive::zeros(const Shape& shape, Dtype dtype) {
  return add({.dtype = torch::torch_dtype(dtype), .shape = shape}, {.bytes = volume(shape) * bytes_each(dtype)});
}

ValuePtr StateArchive::scalar(float value) {
  std::string bytes;
  append_little_endian(bytes, std::bit_cast<std::uint32_t>(value), sizeof value);
  TorchStorage storage{.bytes = bytes.size()};
  storage.placements.push_back({.bytes = storage.bytes, .from = Placement::From::literal, .literal = std::move(bytes)});
  return add({.dtype = "float32", .shape = {}}, std::move(storage));
}

std::size_t StateArchive::storage(std::uint64_t elements, Dtype dtype) {
  dtypes_.emplace(storages_.size(), dtype);
  storages_.push_back({.bytes = elements * bytes_each(dtype)});
  return storages_.size() - 1;
}

void StateArchive::put(std::size_t storage, std::uint64_t offset, std::uint32_t tensor, Box box) {
  const Dtype dtype = dtypes_.at(storage);
  Placement placement{.offset = offset * bytes_each(dtype),
                      .bytes = volume(box.size) * bytes_each(dtype),
                      .from = Placement::From::tensor,
                      .tensor = tensor,
                      .dtype = dtype};
  if (box != Box::whole(source_.tensors[tensor].shape)) placement.chunk = Chunk{.box = std::move(box)};
  storages_[storage].placements.push_back(std::move(placement));
}

ValuePtr StateArchive::view(std::size_t storage, std::uint64_t offset, Shape shape) {
  return reference({.storage = storage,
                    .dtype = torch::torch_dtype(dtypes_.at(storage)),
                    .shape = std::move(shape),
                    .offset = offset});
}

Result<pickle::MemoIndex> StateArchive::write_tensor(torch::TensorPickler& tensors, const std::string& name) {
  std::optional<std::size_t> index = own_index(name);
  if (!index) {
    const std::uint32_t tensor = by_name_.at(name);
    CKPT_TRY(const ValuePtr added, whole(tensor, source_.tensors[tensor].dtype));
    index = own_index(std::get<TensorRef>(added->v).name);
  }
  const Stored& stored = stored_[*index];
  return tensors.tensor({.storage = static_cast<std::uint32_t>(stored.storage),
                         .storage_bytes = storages_[stored.storage].bytes,
                         .dtype = stored.dtype,
                         .offset = stored.offset,
                         .shape = stored.shape});
}

Result<TargetFile> StateArchive::finish(std::string path, const ValuePtr& root, const std::string& id) {
  pickle::Writer out;
  torch::TensorPickler tensors(out);
  Result<> failed{};
  torch::ValuePickler values(
      out, [&](const TensorRef& tensor) { return own_index(tensor.name) || by_name_.contains(tensor.name); },
      [&](const TensorRef& tensor) {
        const auto written = write_tensor(tensors, tensor.name);
        if (!written && failed) failed = fail(written.error());
        return written.value_or(pickle::MemoIndex{});
      });
  values.value(root);
  CKPT_CHECK(failed);
  for (const auto& [storage, dtype] : dtypes_) std::ranges::sort(storages_[storage].placements, {}, &Placement::offset);
  const std::string folder = torch::archive_root(base_name(path));
  return torch_object_file(
      std::move(path), {.root = folder, .pickle = std::move(out).finish(), .storages = std::move(storages_), .id = id});
}

}  // namespace ckpt
