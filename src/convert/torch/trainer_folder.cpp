#include "convert/torch/trainer_folder.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "convert/torch/files.hpp"
#include "convert/torch/optimizer_form.hpp"

namespace ckpt::torch {
namespace {

constexpr std::string_view kRestName = "training_state.pt";

std::string first_key(const std::string& name, const Path& path) {
  return path.empty() ? name.substr(0, name.find('.')) : part_text(path.front());
}

const std::string* text_in(const ValuePtr& value) {
  return value == nullptr ? nullptr : std::get_if<std::string>(&value->v);
}

const Dict* dict_in(const ValuePtr& value) {
  return value == nullptr ? nullptr : std::get_if<Dict>(&value->v);
}

ValuePtr entry_in(const Dict& dict, std::string_view key) {
  for (const auto& [name, value] : dict.items) {
    if (const std::string* text = text_in(name); text != nullptr && *text == key) return value;
  }
  return nullptr;
}

/// The file in which a trainer expects the state of this key.
std::optional<std::string> file_of(const std::string& key, const ValuePtr& value, bool is_accelerate) {
  // DeepSpeed keeps a scheduler of torch under this key, and its own, which torch does not load.
  if (key == "lr_scheduler") {
    const Dict* state = dict_in(value);
    return state != nullptr && entry_in(*state, "last_epoch") ? std::optional<std::string>("scheduler.pt")
                                                              : std::nullopt;
  }
  for (const std::string_view suffix : {".pt", ".pth", ".bin", ".pkl"}) {
    const std::string_view wanted = key.starts_with("rng_state")                                               ? ".pth"
                                    : key.starts_with("random_states") || key.starts_with("custom_checkpoint") ? ".pkl"
                                    : is_accelerate && key != "scaler"                                         ? ".bin"
                                                                                                               : ".pt";
    if (suffix == wanted && trainer_key(key + std::string(suffix)) == key) return key + std::string(suffix);
  }
  return std::nullopt;
}

/// torch.optim's own form, if the state is keyed by names.
ValuePtr by_numbers(const ValuePtr& optimizer) {
  const Dict* dict = dict_in(optimizer);
  const ValuePtr held = dict == nullptr ? nullptr : entry_in(*dict, "state");
  const Dict* state = dict_in(held);
  if (state == nullptr || state->items.empty() || text_in(state->items.front().first) == nullptr) return optimizer;
  NamedOptimizer named{.groups = entry_in(*dict, "param_groups")};
  for (const auto& [parameter, slots] : state->items) {
    const Dict* values = dict_in(slots);
    if (text_in(parameter) == nullptr || values == nullptr) return optimizer;
    for (const auto& [slot, value] : values->items) {
      if (const std::string* text = text_in(slot)) named.slots.push_back({*text_in(parameter), *text, value});
    }
  }
  std::size_t groupless = 0;
  return std::make_shared<const Value>(Value{torch_optimizer(named, groupless)});
}

}  // namespace

namespace {

/// An unchanged file of the source; its storages are separate pieces, whose checksums are compared.
Result<TargetFile> copied_file(const Map& map, std::uint32_t index, const std::string& key) {
  std::map<std::uint64_t, Crc> storages;
  for (std::uint32_t t = 0; t < map.tensors.size(); ++t) {
    const Tensor& tensor = map.tensors[t];
    if (first_key(tensor.name, tensor.path) != key) continue;
    CKPT_CHECK(map.index->chunks(t, {0, volume(tensor.shape)}, [&](const PlacedChunk& placed) -> Result<> {
      const auto& crc = placed.where.crc;
      if (placed.where.file == index && crc) storages.emplace(crc->begin, *crc);
      return {};
    }));
  }
  const MapFile& source = map.files[index];
  TargetFile file{.path = std::string(base_name(source.path)), .bytes = source.bytes};
  std::uint64_t at = 0;
  const auto add = [&](std::uint64_t end, std::optional<Crc> crc) {
    if (end > at)
      file.placements.push_back({.offset = at,
                                 .bytes = end - at,
                                 .from = ckpt::Placement::From::raw,
                                 .raw_file = index,
                                 .raw_offset = at,
                                 .raw_crc = crc});
    at = std::max(at, end);
  };
  for (const auto& [begin, crc] : storages) {
    add(begin, std::nullopt);
    add(crc.end, crc);
  }
  add(source.bytes, std::nullopt);
  return file;
}

}  // namespace

Result<std::vector<TargetFile>> copied_trainer_files(const WriteRequest& request, std::set<std::string>& keys) {
  const Map& map = *request.source;
  std::map<std::string, std::int64_t> missing;  // values that are not asked for, by key
  for (const Tensor& tensor : map.tensors) {
    if (tensor.role != Role::blob) ++missing[first_key(tensor.name, tensor.path)];
  }
  for (const NamedObject& object : map.objects) ++missing[first_key(object.name, object.path)];
  for (const Selected& selected : request.tensors) {
    const Tensor& tensor = map.tensors[selected.tensor];
    if (tensor.role != Role::blob) --missing[first_key(tensor.name, tensor.path)];
  }
  for (const NamedObject& object : request.objects) --missing[first_key(object.name, object.path)];
  std::vector<TargetFile> out;
  for (std::uint32_t i = 0; i < map.files.size(); ++i) {
    const MapFile& source = map.files[i];
    const auto key = source.path.empty() ? std::nullopt : trainer_key(base_name(source.path));
    const auto at = key ? missing.find(*key) : missing.end();
    if (at == missing.end() || at->second != 0 || !keys.insert(*key).second) continue;
    CKPT_TRY(TargetFile file, copied_file(map, i, *key));
    out.push_back(std::move(file));
  }
  return out;
}

bool is_kept_beside(const std::string& name, const Path& path) {
  const std::string key = first_key(name, path);
  return key != "optimizer" && key != "training_state" && trainer_key(key + ".pt") == key;
}

bool is_accelerates(const WriteRequest& request) {
  const auto is_its_key = [](const std::string& name, const Path& path) {
    return first_key(name, path).starts_with("random_states");
  };
  return std::ranges::any_of(request.objects,
                             [&](const NamedObject& object) { return is_its_key(object.name, object.path); });
}

std::vector<TrainerFile> divide_state(WrittenState state, bool is_accelerate) {
  std::vector<TrainerFile> out;
  const Dict* root = dict_in(state.value);
  if (root == nullptr) {
    out.push_back({std::string(kRestName), std::move(state)});
    return out;
  }
  Dict rest{.kind = root->kind};
  std::set<std::string> taken;
  for (const auto& [key, value] : root->items) {
    const std::string* text = text_in(key);
    auto path = text == nullptr ? std::nullopt : file_of(*text, value, is_accelerate);
    if (!path || !taken.insert(*path).second) {
      rest.items.emplace_back(key, value);
      continue;
    }
    out.push_back(
        {*std::move(path), {.value = *text == "optimizer" ? by_numbers(value) : value, .storages = state.storages}});
  }
  if (!rest.items.empty())
    out.push_back({std::string(kRestName),
                   {.value = std::make_shared<const Value>(Value{std::move(rest)}), .storages = state.storages}});
  return out;
}

}  // namespace ckpt::torch
