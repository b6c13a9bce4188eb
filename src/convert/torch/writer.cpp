#include "convert/torch/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "convert/left_out.hpp"
#include "convert/torch/object_file.hpp"
#include "convert/torch/trainer_folder.hpp"
#include "convert/torch/written_state.hpp"
#include "format/checked.hpp"
#include "format/files/hf_index.hpp"

namespace ckpt::torch {
namespace {

constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;  // huggingface_hub: MAX_SHARD_SIZE "5GB", decimal
constexpr std::array<std::string_view, 4> kFiles{".pt", ".pth", ".bin", ".ckpt"};  // other targets are directories
constexpr std::string_view kWeightsStem = "pytorch_model";
constexpr std::string_view kAdapterStem = "adapter_model";  // peft: WEIGHTS_NAME

/// A request for some of the tensors of another.
WriteRequest part_of_request(const WriteRequest& request, const std::vector<std::uint32_t>& members) {
  WriteRequest out = request;
  out.tensors.clear();
  for (const std::uint32_t member : members) out.tensors.push_back(request.tensors[member]);
  return out;
}

class DirectoryWriter {
 public:
  explicit DirectoryWriter(const WriteRequest& request) : request_(request) {}

  Result<Skeleton> lay_out() {
    std::vector<std::uint32_t> weights;
    std::vector<std::uint32_t> rest;
    const std::vector<bool> written = written_tensors(request_);
    for (std::uint32_t i = 0; i < request_.tensors.size(); ++i) {
      const Selected& selected = request_.tensors[i];
      const Role role = selected.role.value_or(request_.source->tensors[selected.tensor].role);
      if (written[i]) (role == Role::param || role == Role::buffer ? weights : rest).push_back(i);
    }
    CKPT_CHECK(add_weights(weights));
    CKPT_CHECK(add_state(std::move(rest)));
    return std::move(out_);
  }

  /// Without weights.
  Result<Skeleton> lay_out_state() {
    std::vector<std::uint32_t> all(request_.tensors.size());
    std::iota(all.begin(), all.end(), 0u);
    CKPT_CHECK(add_state(std::move(all)));
    return std::move(out_);
  }

 private:
  /// As huggingface_hub's split_state_dict_into_shards_factory: a tensor that does not fit begins the next file; one
  /// above the limit gets a separate file and the current file stays open.
  Result<std::vector<std::vector<std::uint32_t>>> divide(const std::vector<std::uint32_t>& weights,
                                                         std::uint64_t& total) const {
    const std::uint64_t limit = request_.shard_bytes == 0 ? kDefaultShardBytes : request_.shard_bytes;
    std::vector<std::vector<std::uint32_t>> parts;
    std::vector<std::uint32_t> current;
    std::uint64_t current_bytes = 0;
    for (const std::uint32_t weight : weights) {
      const Selected& selected = request_.tensors[weight];
      CKPT_TRY(const std::uint64_t bytes,
               tensor_bytes(selected.dtype, request_.source->tensors[selected.tensor].shape));
      CKPT_TRY(total, checked_add(total, bytes));
      if (bytes > limit) {
        parts.push_back({weight});
        continue;
      }
      if (current_bytes + bytes > limit) {
        parts.push_back(std::exchange(current, {}));
        current_bytes = 0;
      }
      current.push_back(weight);
      current_bytes += bytes;
    }
    if (!current.empty() || parts.empty()) parts.push_back(std::move(current));
    return parts;
  }

  Result<> add_state(std::vector<std::uint32_t> rest) {
    std::set<std::string> copied;
    CKPT_TRY(std::vector<TargetFile> files, copied_trainer_files(request_, copied));
    for (TargetFile& file : files) out_.files.push_back(std::move(file));
    const auto is_copied = [&](const std::string& name, const Path& path) {
      return copied.contains(path.empty() ? name.substr(0, name.find('.')) : part_text(path.front()));
    };
    std::erase_if(rest, [&](std::uint32_t i) {
      const Tensor& tensor = request_.source->tensors[request_.tensors[i].tensor];
      return is_copied(tensor.name, tensor.path);
    });
    WriteRequest other = part_of_request(request_, rest);
    other.aliases.clear();
    std::erase_if(other.objects, [&](const NamedObject& object) { return is_copied(object.name, object.path); });
    if (rest.empty() && other.objects.empty()) return {};
    CKPT_TRY(WrittenState state, state_of(other, RandomStates::apart));
    out_.dropped = std::move(state.dropped);
    for (TrainerFile& part : divide_state(std::move(state), is_accelerates(request_))) {
      CKPT_TRY(TargetFile file, object_file(other, part.state, std::move(part.path)));
      out_.files.push_back(std::move(file));
    }
    return {};
  }

  Result<> add_weights(const std::vector<std::uint32_t>& weights) {
    const std::string_view stem = request_.is_adapter() ? kAdapterStem : kWeightsStem;
    std::uint64_t total = 0;
    CKPT_TRY(const auto parts, divide(weights, total));
    hf::Index index{.total_size = total};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::string path = parts.size() == 1 ? fmt::format("{}.bin", stem)
                                           : fmt::format("{}-{:05}-of-{:05}.bin", stem, i + 1, parts.size());
      WriteRequest part = part_of_request(request_, parts[i]);
      part.objects.clear();
      std::vector<std::uint32_t> all(parts[i].size());
      for (std::uint32_t k = 0; k < all.size(); ++k) all[k] = k;
      const WrittenState state{.value = state_dict(part, all)};
      for (const auto& [name, value] : std::get<Dict>(state.value->v).items)
        index.weight_map.emplace_back(std::get<std::string>(name->v), path);
      CKPT_TRY(TargetFile file, object_file(part, state, std::move(path)));
      out_.files.push_back(std::move(file));
    }
    if (parts.size() == 1) return {};
    out_.small_names.push_back(fmt::format("{}.bin.index.json", stem));
    out_.finish = [file = SmallFile{.path = out_.small_names.back(), .bytes = hf::build_index(index)}](
                      const std::vector<Hash128>&) -> Result<std::vector<SmallFile>> {
      return std::vector<SmallFile>{file};
    };
    return {};
  }

  const WriteRequest& request_;
  Skeleton out_;
};

}  // namespace

Result<Skeleton> lay_out(const WriteRequest& request) {
  const bool one_file =
      std::ranges::any_of(kFiles, [&](std::string_view suffix) { return request.target.ends_with(suffix); });
  if (!one_file) return DirectoryWriter(request).lay_out();
  Skeleton out{.directory = false};
  CKPT_TRY(WrittenState state, state_of(request));
  CKPT_TRY(TargetFile file, object_file(request, state, ""));
  out.files.push_back(std::move(file));
  out.dropped = std::move(state.dropped);
  return out;
}

Result<Skeleton> lay_out_beside(WriteRequest& request) {
  if (!request.has_extra("trainer_state.json") && !is_accelerates(request)) return Skeleton{};
  const auto is_state = [&](const Selected& selected) {
    const Tensor& tensor = request.source->tensors[selected.tensor];
    return is_kept_beside(tensor.name, tensor.path);
  };
  WriteRequest state = request;
  state.aliases.clear();
  std::erase_if(state.tensors, [&](const Selected& selected) { return !is_state(selected); });
  std::erase_if(state.objects, [](const NamedObject& object) { return !is_kept_beside(object.name, object.path); });
  std::erase_if(request.tensors, is_state);
  // The target's own scheduler may be the trainer's.
  const bool has_scheduler = std::ranges::any_of(
      request.objects, [](const NamedObject& object) { return object.name.starts_with("lr_scheduler"); });
  std::erase_if(request.objects, [&](const NamedObject& object) {
    return is_kept_beside(object.name, object.path) && (has_scheduler || !object.name.starts_with("scheduler."));
  });
  return DirectoryWriter(state).lay_out_state();
}

}  // namespace ckpt::torch
