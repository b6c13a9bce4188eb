#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "convert/deepspeed/stages/experts.hpp"
#include "convert/deepspeed/writer/expert_layout.hpp"
#include "convert/deepspeed/writer/partitions.hpp"
#include "convert/deepspeed/writer/state_files.hpp"
#include "format/model/cut.hpp"

namespace ckpt::deepspeed {
namespace {

/// Builds one model file.
class ModelFile {
 public:
  ModelFile(const TrainingTarget& target, std::uint64_t rank)
      : target_(target), state_(target.state), rank_(rank), archive_(*target.map, target.by_name) {}

  Result<TargetFile> build(std::string path, const std::string& id) {
    DictValue root;
    ValuePtr module = none_value();  // pipelines keep weights in layer files
    if (!target_.layer_files) {
      CKPT_TRY(module, module_value());
    }
    root.set("module", std::move(module));
    root.set("buffer_names", buffer_names());
    CKPT_TRY(ValuePtr optimizer, optimizer_value());
    root.set("optimizer", std::move(optimizer));
    if (target_.stage > 0) {
      CKPT_TRY(ValuePtr shapes, param_shapes());
      root.set("param_shapes", std::move(shapes));
      CKPT_CHECK(add_frozen(root));
      root.set("shared_params", shared_params());
    }
    root.set("lr_scheduler", state_.scheduler ? std::make_shared<Value>(*state_.scheduler) : none_value());
    root.set("data_sampler", none_value());
    root.set("random_ltd", none_value());
    root.set("sparse_tensor_module_names", list_of({}, List::Kind::set));
    root.set("skipped_steps", value_of(state_.counters.skipped_steps.value_or(0)));
    root.set("global_steps", value_of(state_.counters.steps.value_or(0)));
    root.set("global_samples", value_of(state_.counters.samples.value_or(0)));
    root.set("dp_world_size", value_of(target_.dp));
    root.set("mp_world_size", value_of(target_.model_ranks));
    root.set("checkpoint_parallel_dimensions", parallel_dimensions());
    root.set("ds_config", target_.config);
    root.set("ds_version", value_of(std::string_view(target_.version)));
    for (const auto& [key, value] : target_.client) root.set(key, value);
    return archive_.finish(std::move(path), std::move(root).finish(), id);
  }

 private:
  bool partitions_weights() const { return target_.stage == 3; }

  Result<ValuePtr> module_value() {
    DictValue out;
    std::unordered_map<std::string_view, const ModelTensor*> by_name;
    for (const ModelTensor& entry : state_.model) {
      by_name.emplace(entry.name, &entry);
      if (expert_layer_of(target_, entry.name) != nullptr) continue;  // in a file of its own
      CKPT_TRY(ValuePtr value, weight(entry));
      out.set(entry.name, std::move(value));
    }
    for (const Alias& tie : state_.ties) {
      if (expert_layer_of(target_, tie.name) != nullptr) continue;
      CKPT_TRY(ValuePtr value, weight(*by_name.at(tie.target)));
      out.set(tie.name, std::move(value));
    }
    return std::move(out).finish();
  }

  Result<ValuePtr> weight(const ModelTensor& entry) {
    if (partitions_weights() && entry.kind != ModelTensor::Kind::buffer) {
      // Its elements are in the optimizer's files; there is one placeholder per parameter, so that ties are visible.
      ValuePtr& placeholder = placeholders_[entry.name];
      if (placeholder == nullptr) placeholder = archive_.zeros({0}, entry.dtype);
      return placeholder;
    }
    return archive_.whole(target_.weight_source(entry), entry.dtype);
  }

  /// Model files list the experts of the first rank only.
  bool is_of_first_rank(const std::string& name) const {
    return expert_layer_of(target_, name) == nullptr || local_name(target_, name) == name;
  }

  ValuePtr parallel_dimensions() const {
    DictValue out;
    out.set("pp_degree", value_of(target_.model_ranks / target_.tensor_ranks));
    out.set("tp_degree", value_of(target_.tensor_ranks));
    return std::move(out).finish();
  }

  ValuePtr buffer_names() const {
    std::vector<ValuePtr> names;
    for (const ModelTensor& entry : state_.model) {
      if (entry.kind == ModelTensor::Kind::buffer && is_of_first_rank(entry.name))
        names.push_back(value_of(std::string_view(local_name(target_, entry.name))));
    }
    return list_of(std::move(names));
  }

  Result<ValuePtr> optimizer_value() {
    if (target_.stage != 0 || target_.fresh || !target_.experts.empty()) return none_value();
    return whole_optimizer(target_, 0, archive_);
  }

  ValuePtr shapes_of(const TargetGroup& group, const std::vector<std::size_t>& members) const {
    DictValue out;
    for (const std::size_t member : members) {
      const ModelTensor& entry = state_.model[group.members[member]];
      out.set(local_name(target_, entry.name), size_of(entry.shape));
    }
    return std::move(out).finish();
  }

  Result<ValuePtr> param_shapes() const {
    std::vector<ValuePtr> out;
    if (!partitions_weights()) {
      for (const TargetGroup& group : target_.groups) {
        const GroupShare share = share_of(target_, group, 0);
        out.push_back(shapes_of(share.group, flat_order(target_, share)));
      }
      return list_of(std::move(out));
    }
    CKPT_TRY(const auto sub_groups, sub_groups_of(target_));
    for (const SubGroup& sub : sub_groups) {
      std::vector<std::size_t> members;
      for (std::size_t m = sub.begin; m < sub.end; ++m) members.push_back(m);
      out.push_back(shapes_of(target_.groups[sub.group], members));
    }
    return list_of(std::move(out));
  }

  /// Parameters that the optimizer does not have: whole in stage 2, this rank's part in stage 3, none in stage 1.
  Result<> add_frozen(DictValue& root) {
    DictValue shapes;
    DictValue fragments;
    for (const ModelTensor& entry : state_.model) {
      if (target_.stage == 1 || target_.layer_files || !may_be_frozen(entry) ||
          expert_layer_of(target_, entry.name) != nullptr)
        continue;
      shapes.set(entry.name, size_of(entry.shape));
      CKPT_TRY(ValuePtr value, frozen_fragment(entry));
      fragments.set(entry.name, std::move(value));
    }
    root.set("frozen_param_shapes", target_.stage == 1 ? none_value() : std::move(shapes).finish());
    root.set("frozen_param_fragments", target_.stage == 1 ? none_value() : std::move(fragments).finish());
    return {};
  }

  /// Stage 2 must find every frozen parameter, and does not mind a buffer among them; in stage 3 they differ.
  bool may_be_frozen(const ModelTensor& entry) const {
    return entry.kind == ModelTensor::Kind::frozen ||
           (entry.kind == ModelTensor::Kind::buffer && !entry.kind_is_known && !partitions_weights());
  }

  Result<ValuePtr> frozen_fragment(const ModelTensor& entry) {
    const std::uint32_t source = target_.weight_source(entry);
    if (!partitions_weights()) return archive_.whole(source, entry.dtype);
    CKPT_TRY(const cut::Partition part, cut::partition({.length = volume(entry.shape), .part_count = target_.dp}));
    const Extent owned = part.owned(rank_);
    if (owned.size() == 0) return archive_.zeros({part.part_elements}, entry.dtype);
    const SourceRun run{.tensor = source, .elements = owned};
    return archive_.flat(part.part_elements, entry.dtype, std::span(&run, 1));
  }

  ValuePtr shared_params() const {
    DictValue out;
    for (const Alias& tie : state_.ties) {
      if (rank_ == 0) out.set(tie.name, value_of(std::string_view(tie.target)));
    }
    return std::move(out).finish();
  }

  const TrainingTarget& target_;
  const TrainingState& state_;
  const std::uint64_t rank_;
  StateArchive archive_;
  std::unordered_map<std::string, ValuePtr> placeholders_{};
};

}  // namespace

Result<TargetFile> model_file(const TrainingTarget& target, std::uint64_t rank, std::string path,
                              const std::string& id) {
  return ModelFile(target, rank).build(std::move(path), id);
}

Result<TargetFile> expert_file(const TrainingTarget& target, const ExpertLayer& layer, std::uint64_t expert,
                               std::string path, const std::string& id) {
  StateArchive archive(*target.map, target.by_name);
  DictValue root;
  for (const std::size_t member : layer.members[expert]) {
    const ModelTensor& entry = target.state.model[member];
    CKPT_TRY(ValuePtr value, archive.whole(target.weight_source(entry), entry.dtype));
    root.set(entry.name, std::move(value));
  }
  return archive.finish(std::move(path), std::move(root).finish(), id);
}

Result<TargetFile> layer_file(const WriteRequest& request, const HeldLayer& layer, std::string path) {
  const std::unordered_map<std::string, std::uint32_t> by_name;
  StateArchive archive(*request.source, by_name);
  DictValue root;
  for (const HeldTensor& held : layer.tensors) {
    const auto selected = std::ranges::lower_bound(request.tensors, held.tensor, {}, &Selected::tensor);
    if (selected == request.tensors.end() || selected->tensor != held.tensor) continue;
    CKPT_TRY(ValuePtr value, archive.whole(held.tensor, selected->dtype));
    root.set(held.name, std::move(value));
  }
  return archive.finish(std::move(path), std::move(root).finish(), request.id);
}

}  // namespace ckpt::deepspeed
