#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "convert/deepspeed/files/model_parallel_files.hpp"
#include "convert/deepspeed/writer/slice_marks.hpp"
#include "convert/deepspeed/writer/state_files.hpp"
#include "convert/deepspeed/writer/writer.hpp"
#include "format/text/file_name.hpp"

namespace ckpt::deepspeed {
namespace {

/// Builds the folder: model files for both kinds of stages, and a folder a parameter. What DeepSpeed's own conversion
/// writes is read by stages 1 and 2 or by stage 3; this is read by all, before DeepSpeed 0.19 by stages 1 and 2, or with bare
/// tensors in the parameters' files by stage 3. That of several model-parallel ranks is for
/// stages 1 and 2: pipelines have no other, and the model files of several ranks tell one from the other.
///
/// source  deepspeed/runtime/base_optimizer.py: load_hp_checkpoint_state_from_checkpoint_dir; zero/stage3.py:
///         load_hp_checkpoint_state_from_checkpoint_dir_stage3
class UniversalFolder {
 public:
  UniversalFolder(const TrainingTarget& target, const WriteRequest& request)
      : target_(target), request_(request), below_(target.tag + "/") {}

  Result<std::vector<TargetFile>> build() {
    const ModelParallelFiles names;
    for (std::uint64_t m = 0; m < target_.model_ranks; ++m) {
      CKPT_TRY(TargetFile model, model_file(target_, 0, below_ + names.model_name(m), request_.id));
      files_.push_back(std::move(model));
    }
    if (target_.model_ranks == 1) {
      TrainingTarget partitioned = target_;  // its weights are not read: placeholders need no space
      partitioned.stage = 3;
      partitioned.dp = 1;
      CKPT_TRY(TargetFile rank, model_file(partitioned, 0, below_ + names.rank_model_name(0, 0), request_.id));
      files_.push_back(std::move(rank));
    }
    CKPT_CHECK(add_optimizer());
    for (const TargetGroup& group : target_.groups) {
      for (const std::size_t member : group.members) CKPT_CHECK(add_parameter(group, target_.state.model[member]));
    }
    return std::move(files_);
  }

 private:
  Result<> add_file(std::string path, StateArchive& archive, const ValuePtr& root) {
    CKPT_TRY(TargetFile file, archive.finish(std::move(path), root, request_.id));
    files_.push_back(std::move(file));
    return {};
  }

  Result<> add_optimizer() {
    StateArchive archive(*target_.map, target_.by_name);
    std::vector<ValuePtr> groups;
    for (std::size_t g = 0; g < target_.groups.size(); ++g) groups.push_back(group_value(target_.groups[g], g, 1));
    DictValue first;
    if (ValuePtr step = step_value(archive, target_.groups.front())) first.set("step", std::move(step));
    Dict states;
    states.items.emplace_back(value_of(std::int64_t{0}), std::move(first).finish());
    auto state = std::make_shared<Value>();
    state->v = std::move(states);
    DictValue optimizer;  // for stage 3
    optimizer.set("state", std::move(state));
    optimizer.set("param_groups", list_of(groups));
    DictValue root;
    if (has_dynamic_scale(target_)) root.set("loss_scaler", loss_scaler(target_));
    root.set("dynamic_loss_scale", value_of(has_dynamic_scale(target_)));
    for (const auto& [name, value] : target_.optimizer) root.set(name, value);
    root.set("zero_stage", value_of(target_.stage));
    root.set("partition_count", list_of(std::vector<ValuePtr>(target_.groups.size(), value_of(target_.dp))));
    root.set("ds_version", value_of(std::string_view(target_.version)));
    root.set("param_groups", list_of(std::move(groups)));
    root.set("optimizer_state_dict", std::move(optimizer).finish());
    return add_file(below_ + "zero/optimizer_state.pt", archive, std::move(root).finish());
  }

  /// {"param": the whole tensor, and how it is cut}; zeros where there is no tensor.
  Result<> add_state(const std::string& path, const ModelTensor& entry, std::optional<std::uint32_t> tensor,
                     Dtype dtype) {
    StateArchive archive(*target_.map, target_.by_name);
    DictValue root;
    ValuePtr value;
    if (tensor) {
      CKPT_TRY(value, archive.whole(*tensor, dtype));
    } else {
      value = archive.zeros(entry.shape, dtype);
    }
    if (target_.has_bare_tensors) return add_file(path, archive, value);
    root.set("param", std::move(value));
    if (target_.model_ranks > 1) {
      CKPT_TRY(const auto marks, slice_marks(target_.slice_info(), entry.name, entry.shape));
      for (const auto& [key, mark] : marks) root.set(key, mark);
    }
    return add_file(path, archive, std::move(root).finish());
  }

  Result<> add_parameter(const TargetGroup& group, const ModelTensor& entry) {
    const std::string folder = below_ + "zero/" + entry.name + "/";
    CKPT_CHECK(add_state(folder + "fp32.pt", entry, target_.master_source(entry), Dtype::f32));
    for (const GroupSlot& slot : group.slots) {
      const auto stored = std::ranges::find(entry.slots, slot.name, &StateSlot::name);
      const auto tensor = stored == entry.slots.end() ? std::nullopt : std::optional(stored->tensor);
      CKPT_CHECK(add_state(folder + slot.name + ".pt", entry, tensor, slot.dtype));
    }
    StateArchive archive(*target_.map, target_.by_name);
    if (const ValuePtr step = step_value(archive, group)) CKPT_CHECK(add_file(folder + "step.pt", archive, step));
    return {};
  }

  const TrainingTarget& target_;
  const WriteRequest& request_;
  const std::string below_;
  std::vector<TargetFile> files_{};
};

}  // namespace

Result<std::vector<TargetFile>> universal_files(const TrainingTarget& target, const WriteRequest& request) {
  if (target.has_bare_tensors && target.model_ranks > 1)
    return fail(cannot_hold(
        request, "DeepSpeed cannot load a universal directory of a tensor- or pipeline-parallel run at stage 3", {},
        "--zero-stage 2    writes it for stages 1 and 2"));
  for (const TargetGroup& group : target.groups) {
    for (const std::size_t member : group.members) {
      const std::string& name = target.state.model[member].name;
      const std::string_view reason = why_no_file_name(name);
      if (!reason.empty())
        return fail(cannot_hold(request, fmt::format("'{}' cannot be the name of a folder: {}", name, reason), name,
                                "--map FILE    gives it another name"));
    }
    for (const GroupSlot& slot : group.slots) {
      const std::string_view reason = why_no_file_name(slot.name + ".pt");
      if (!reason.empty())
        return fail(cannot_hold(
            request, fmt::format("optimizer state '{}' cannot be the name of a file: {}", slot.name, reason)));
    }
  }
  return UniversalFolder(target, request).build();
}

}  // namespace ckpt::deepspeed
