#include "convert/deepspeed/writer/state_archive.hpp"

#include <fmt/format.h>

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

namespace ckpt::deepspeed {
namespace {

constexpr std::size_t kMostDepth = 200;  // Python's own pickler would stop at about 1000 / 3
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
  stored.storage = static_cast<std::uint32_t>(storages_.size());
  stored.bytes = storage.bytes;
  storages_.push_back(std::move(storage));
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

Result<> StateArchive::write_tensor(torch::TensorPickler& tensors, const std::string& name) {
  std::optional<std::size_t> index = own_index(name);
  if (!index) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return fail(Errc::internal, name + ": an object refers to a missing tensor");
    CKPT_TRY(const ValuePtr added, whole(found->second, source_.tensors[found->second].dtype));
    index = own_index(std::get<TensorRef>(added->v).name);
  }
  const Stored& stored = stored_[*index];
  tensors.tensor(
      {.storage = stored.storage, .storage_bytes = stored.bytes, .dtype = stored.dtype, .shape = stored.shape});
  return {};
}

Result<> StateArchive::write_opaque(pickle::Writer& out, torch::TensorPickler& tensors, const Opaque& object,
                                    std::size_t depth) {
  std::string global = object.global;
  if (const std::size_t dot = global.rfind('.'); dot != std::string::npos) global[dot] = ' ';
  if (object.args == nullptr && object.state == nullptr) {
    out.global(global);
    return {};
  }
  out.begin_object();
  out.global(global);
  const auto* args = object.args != nullptr ? std::get_if<List>(&object.args->v) : nullptr;
  const std::size_t count = args != nullptr ? args->items.size() : 0;
  out.begin_tuple(count);
  for (std::size_t i = 0; i < count; ++i) CKPT_CHECK(write(out, tensors, *args->items[i], depth));
  out.end();
  // An object that has only a state is made without its constructor; one with arguments by a call.
  if (count == 0 && object.state != nullptr) {
    out.new_object();
  } else {
    out.reduce();
  }
  if (object.state != nullptr) {
    CKPT_CHECK(write(out, tensors, *object.state, depth));
    out.build();
  }
  out.end();
  return {};
}

Result<> StateArchive::write(pickle::Writer& out, torch::TensorPickler& tensors, const Value& value,
                             std::size_t depth) {
  if (depth > kMostDepth)
    return fail(Errc::unsupported, fmt::format("an object is nested deeper than {} levels", kMostDepth));
  if (std::holds_alternative<None>(value.v)) {
    out.none();
  } else if (const auto* set = std::get_if<bool>(&value.v)) {
    out.boolean(*set);
  } else if (const auto* whole_number = std::get_if<std::int64_t>(&value.v)) {
    out.integer(*whole_number);
  } else if (const auto* big = std::get_if<BigInt>(&value.v)) {
    out.big_integer(big->decimal);
  } else if (const auto* real = std::get_if<double>(&value.v)) {
    out.real(*real);
  } else if (const auto* text = std::get_if<std::string>(&value.v)) {
    out.text(*text);
  } else if (const auto* bytes = std::get_if<Bytes>(&value.v)) {
    out.bytes(bytes->data);
  } else if (const auto* list = std::get_if<List>(&value.v)) {
    const std::size_t count = list->items.size();
    if (list->kind == List::Kind::tuple) out.begin_tuple(count);
    if (list->kind == List::Kind::list) out.begin_list(count);
    if (list->kind == List::Kind::set) out.begin_set(count);
    for (const ValuePtr& item : list->items) CKPT_CHECK(write(out, tensors, *item, depth + 1));
    out.end();
  } else if (const auto* dict = std::get_if<Dict>(&value.v)) {
    out.begin_dict(dict->items.size());
    for (const auto& [key, item] : dict->items) {
      CKPT_CHECK(write(out, tensors, *key, depth + 1));
      CKPT_CHECK(write(out, tensors, *item, depth + 1));
    }
    out.end();
  } else if (const auto* object = std::get_if<Opaque>(&value.v)) {
    CKPT_CHECK(write_opaque(out, tensors, *object, depth + 1));
  } else {
    CKPT_CHECK(write_tensor(tensors, std::get<TensorRef>(value.v).name));
  }
  return {};
}

Result<TargetFile> StateArchive::finish(std::string path, const Value& root, const std::string& id) {
  pickle::Writer out;
  torch::TensorPickler tensors(out);
  CKPT_CHECK(write(out, tensors, root, 0));
  const std::string folder = torch::archive_root(base_name(path));
  return torch_object_file(
      std::move(path), {.root = folder, .pickle = std::move(out).finish(), .storages = std::move(storages_), .id = id});
}

}  // namespace ckpt::deepspeed
