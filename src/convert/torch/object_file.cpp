#include "convert/torch/object_file.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "convert/torch_target.hpp"
#include "format/checked.hpp"
#include "format/torch/archive_layout.hpp"
#include "format/torch/tensor_pickle.hpp"
#include "format/torch/value_pickle.hpp"

namespace ckpt::torch {
namespace {

/// A tensor's place in a storage of the source.
struct SourceView {
  Extent storage{};
  std::uint64_t offset = 0;  // elements
  std::vector<std::uint64_t> strides{};
  std::optional<Crc> crc{};
};

class ObjectFile {
 public:
  ObjectFile(const WriteRequest& request, const WrittenState& state) : request_(request), state_(state) {
    for (std::uint32_t i = 0; i < request.tensors.size(); ++i) index_.emplace(request.tensors[i].name, i);
  }

  Result<TargetFile> build(std::string path) {
    CKPT_CHECK(find_forms());
    CKPT_CHECK(find_views());
    pickle::Writer writer;
    TensorPickler tensors(writer);
    const auto has = [&](const TensorRef& tensor) { return index_.contains(tensor.name); };
    ValuePickler values(writer, has, [&](const TensorRef& tensor) {
      StoredTensor stored = stored_tensor(index_.at(tensor.name));
      stored.requires_grad = tensor.requires_grad;
      return tensor.is_parameter ? tensors.parameter(stored) : tensors.tensor(stored);
    });
    values.value(state_.value);
    TorchObject object{.root = archive_root(path.empty() ? request_.target : path),
                       .pickle = std::move(writer).finish(),
                       .storages = std::move(storages_),
                       .id = request_.id};
    return torch_object_file(std::move(path), std::move(object));
  }

 private:
  const Tensor& source(std::uint32_t selected) const {
    return request_.source->tensors[request_.tensors[selected].tensor];
  }
  const Selected& selected(std::uint32_t index) const { return request_.tensors[index]; }

  /// "" if the values are cast.
  std::string_view true_dtype(std::uint32_t index) const {
    return selected(index).dtype == source(index).dtype ? std::string_view(source(index).true_dtype) : "";
  }

  Result<> find_forms() {
    for (std::uint32_t i = 0; i < request_.tensors.size(); ++i) {
      CKPT_TRY(TorchForm form, torch_form(selected(i).name, selected(i).dtype, true_dtype(i), source(i).shape));
      forms_.push_back(std::move(form));
    }
    return {};
  }

  /// Which tensors remain views: if they all have one element type, and are worth their storage.
  Result<> find_views() {
    if (state_.storages.empty()) return {};
    std::map<std::uint64_t, std::vector<std::uint32_t>> by_storage;
    std::vector<SourceView> views(request_.tensors.size());
    for (std::uint32_t i = 0; i < request_.tensors.size(); ++i) {
      const auto storage = state_.storages.find(selected(i).name);
      if (storage == state_.storages.end()) continue;
      CKPT_TRY(auto view, view_of(i, storage->second));
      if (!view) continue;
      views[i] = *std::move(view);
      by_storage[storage->second.begin].push_back(i);
    }
    for (const auto& [begin, members] : by_storage) {
      const std::string_view dtype = forms_[members[0]].dtype;
      const bool alike =
          std::ranges::all_of(members, [&](std::uint32_t member) { return forms_[member].dtype == dtype; });
      CKPT_TRY(const std::uint64_t bytes, tensor_bytes(source(members[0]).dtype, source(members[0]).shape));
      const bool fills = bytes == views[members[0]].storage.size();
      if (!alike || (members.size() == 1 && !fills)) continue;
      for (const std::uint32_t member : members) views_.emplace(member, std::move(views[member]));
    }
    return {};
  }

  Result<std::optional<SourceView>> view_of(std::uint32_t index, Extent storage) const {
    const Tensor& tensor = source(index);
    if (selected(index).dtype != tensor.dtype || is_packed(tensor.dtype)) return std::nullopt;
    std::optional<SourceView> out;
    CKPT_TRY(const std::uint64_t elements, checked_volume(tensor.shape));
    const std::uint64_t per_element = tensor.true_dtype.empty() ? 1 : 2;
    const std::uint64_t unit = unit_bytes(tensor.dtype) * per_element;
    CKPT_CHECK(request_.source->index->chunks(
        request_.tensors[index].tensor, {0, elements}, [&](const PlacedChunk& placed) -> Result<> {
          const Locator& where = placed.where;
          if (where.file != 0 || where.big_endian || where.compressed || where.dtype != tensor.dtype ||
              where.offset < storage.begin || (where.offset - storage.begin) % unit != 0)
            return {};
          SourceView view{.storage = storage, .offset = (where.offset - storage.begin) / unit, .crc = where.crc};
          for (const std::int64_t stride : where.strides)
            view.strides.push_back(static_cast<std::uint64_t>(stride) / per_element);
          if (per_element == 2 && !view.strides.empty()) view.strides.pop_back();
          out = std::move(view);
          return {};
        }));
    return out;
  }

  StoredTensor stored_tensor(std::uint32_t index) {
    StoredTensor stored{.dtype = forms_[index].dtype, .shape = forms_[index].shape};
    const auto view = views_.find(index);
    if (view == views_.end()) {
      const auto [known, is_new] = own_.emplace(index, static_cast<std::uint32_t>(storages_.size()));
      if (is_new) storages_.push_back(own_storage(index));
      stored.storage = known->second;
    } else {
      const SourceView& at = view->second;
      const auto [known, is_new] = copied_.emplace(at.storage.begin, static_cast<std::uint32_t>(storages_.size()));
      if (is_new) storages_.push_back(copied_storage(at));
      stored.storage = known->second;
      stored.offset = at.offset;
      stored.strides = at.strides;
    }
    stored.storage_bytes = storages_[stored.storage].bytes;
    return stored;
  }

  TorchStorage own_storage(std::uint32_t index) const {
    const std::uint64_t bytes = tensor_bytes(selected(index).dtype, source(index).shape).value_or(0);
    TorchStorage storage{.bytes = bytes};
    if (bytes > 0) {
      storage.placements.push_back({.bytes = bytes,
                                    .from = ckpt::Placement::From::tensor,
                                    .tensor = selected(index).tensor,
                                    .dtype = selected(index).dtype});
    }
    return storage;
  }

  static TorchStorage copied_storage(const SourceView& view) {
    TorchStorage storage{.bytes = view.storage.size()};
    storage.placements.push_back({.bytes = storage.bytes,
                                  .from = ckpt::Placement::From::raw,
                                  .raw_file = 0,
                                  .raw_offset = view.storage.begin,
                                  .raw_crc = view.crc});
    return storage;
  }

  const WriteRequest& request_;
  const WrittenState& state_;
  std::vector<TorchForm> forms_;                               // of WriteRequest::tensors
  std::unordered_map<std::string_view, std::uint32_t> index_;  // of WriteRequest::tensors, by target names
  std::unordered_map<std::uint32_t, SourceView> views_;
  std::unordered_map<std::uint32_t, std::uint32_t> own_;     // storage of a tensor
  std::unordered_map<std::uint64_t, std::uint32_t> copied_;  // storage by its offset in the source
  std::vector<TorchStorage> storages_;
};

}  // namespace

Result<TargetFile> object_file(const WriteRequest& request, const WrittenState& state, std::string path) {
  return ObjectFile(request, state).build(std::move(path));
}

}  // namespace ckpt::torch
