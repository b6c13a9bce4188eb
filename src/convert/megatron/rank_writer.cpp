#include "convert/megatron/rank_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/megatron/buffer_layout.hpp"
#include "convert/megatron/dict_members.hpp"
#include "convert/megatron/iteration.hpp"
#include "convert/megatron/rank_target.hpp"
#include "convert/megatron/run_arguments.hpp"
#include "convert/megatron/source_state.hpp"
#include "convert/model_arguments.hpp"
#include "format/model/object_tree.hpp"

namespace ckpt::megatron {
namespace {

bool is_of_experts(const ValuePtr& group) {
  return group != nullptr && is_set(*group, "is_expert_parallel");
}

/// The same optimizer for experts.
ValuePtr for_experts(const ValuePtr& optimizer) {
  const auto shared = [](Dict dict) { return std::make_shared<const Value>(Value{std::move(dict)}); };
  std::vector<ValuePtr> groups;
  for (const ValuePtr& group : parameter_groups(*optimizer)->items) {
    Dict changed = std::get<Dict>(group->v);
    set(changed, "is_expert_parallel", value_of(true));
    groups.push_back(shared(std::move(changed)));
  }
  Dict outer = std::get<Dict>(optimizer->v);
  const ValuePtr nested = get(outer, "optimizer");
  Dict inner = nested == nullptr ? outer : std::get<Dict>(nested->v);
  set(inner, "param_groups", list_of(std::move(groups)));
  if (nested == nullptr) return shared(std::move(inner));
  set(outer, "optimizer", shared(std::move(inner)));
  return shared(std::move(outer));
}

class RankWriter {
 public:
  explicit RankWriter(const WriteRequest& request) : request_(request) {}

  Result<Skeleton> lay_out() {
    CKPT_TRY(state_, source_state(request_));
    if (const NamedObject* const args = run_arguments(request_)) args_ = &args->value;
    collect_weights();
    const Value none{};
    const ModelForm form = model_form(args_ == nullptr ? none : *args_);
    CKPT_TRY(RankGrid grid, rank_grid(args_, request_.options, count_layers(weights_), request_.target));
    if (args_ == nullptr && grid.tensor > 1)
      return refuse("the source does not record the run's arguments, which say whether linear_fc1 is gated (--swiglu)",
                    "--tp 1, or --names megatron for a model of transformers");
    std::vector<std::string> names;
    for (const WholeWeight& weight : weights_) names.push_back(weight.name);
    const auto embedding = std::ranges::find(weights_, kEmbedding, &WholeWeight::name);
    const std::uint64_t rows = embedding == weights_.end() || embedding->shape.empty() ? 0 : embedding->shape.front();
    CKPT_TRY(ModelDivision division, ModelDivision::make(std::move(weights_), form, grid, request_.target));
    if (const auto padded = division.padded_vocabulary(); padded && *padded != rows)
      padding_ = fmt::format("padded the vocabulary to {} rows for {} tokens; the source has {}", *padded,
                             form.vocabulary.value_or(*padded), rows);
    RankTarget target(*request_.source, std::move(grid), std::move(division));
    target.id = request_.id;
    const auto& tensors = request_.source->tensors;
    for (std::uint32_t t = 0; t < tensors.size(); ++t) target.by_name.emplace(tensors[t].name, t);
    set_common(target);
    CKPT_TRY(CommonState common, common_state(request_, state_.common));
    target.is_distributed = common.is_distributed;
    target.states = std::move(states_);
    CKPT_CHECK(add_optimizer(target, common, names));
    Skeleton out;
    CKPT_CHECK(add_files(target, common.value, out));
    out.dropped = std::move(common.notes);
    report(target, out.dropped);
    return out;
  }

 private:
  tl::unexpected<Error> refuse(const std::string& reason, std::string hint, std::string tensor = {}) const {
    return fail({.code = Errc::unsupported,
                 .message = fmt::format("{}: {}", request_.target, reason),
                 .tensor = std::move(tensor),
                 .hint = std::move(hint)});
  }

  void collect_weights() {
    std::unordered_map<std::string, std::size_t> numbers;
    for (std::size_t i = 0; i < state_.tensors.size(); ++i) {
      if (state_.kinds[i] != Kind::weight) continue;
      const Tensor& tensor = state_.tensors[i];
      const bool is_trained = tensor.role == Role::param;
      numbers.emplace(tensor.name, weights_.size());
      weights_.push_back({.name = tensor.name, .shape = tensor.shape, .is_trained = is_trained});
      states_.push_back({.weight = request_.tensors[i].tensor, .dtype = tensor.dtype, .is_trained = is_trained});
    }
    for (std::size_t i = 0; i < state_.tensors.size(); ++i) {
      if (state_.kinds[i] != Kind::state) continue;
      const Tensor& tensor = state_.tensors[i];
      const auto weight = numbers.find(tensor.parameter);
      if (weight == numbers.end()) continue;  // its weight was not asked for
      WeightState& own = states_[weight->second];
      if (tensor.slot == "master") {
        own.master = request_.tensors[i].tensor;
      } else {
        own.slots.emplace(tensor.slot, request_.tensors[i].tensor);
      }
    }
  }

  /// The arguments by which Megatron-LM checks that the files are for a run of this size.
  void set_common(const RankTarget& target) {
    CommonParts& parts = state_.common;
    parts.is_by_rank = true;
    parts.has_random_states = false;
    parts.has_rerun_states = false;
    parts.has_buckets = false;
    const RankGrid& grid = target.grid;
    const auto set = [&](std::string_view name, ValuePtr value) {
      parts.arguments.emplace_back(name, std::move(value));
    };
    const auto number_or_none = [](std::optional<std::uint64_t> number) {
      return number ? value_of(*number) : none_value();
    };
    const std::uint64_t layers = grid.first_layer.back();
    const bool is_even = layers % (grid.pipeline * grid.chunks) == 0;
    set("ckpt_format", value_of(std::string_view("torch")));
    set("use_dist_ckpt", value_of(false));
    set("tensor_model_parallel_size", value_of(grid.tensor));
    set("pipeline_model_parallel_size", value_of(grid.pipeline));
    set("transformer_pipeline_model_parallel_size", value_of(grid.pipeline));
    set("expert_model_parallel_size", value_of(grid.expert));
    set("expert_tensor_parallel_size", value_of(grid.expert_tensor));
    set("world_size", value_of(grid.tensor * grid.pipeline * grid.data));
    if (request_.options.dp != 0) set("data_parallel_size", value_of(request_.options.dp));
    const bool is_interleaved = grid.chunks > 1;
    set("virtual_pipeline_model_parallel_size", is_interleaved ? value_of(grid.chunks) : none_value());
    set("num_layers_per_virtual_pipeline_stage",
        is_interleaved && is_even ? value_of(layers / (grid.pipeline * grid.chunks)) : none_value());
    set("num_virtual_stages_per_pipeline_rank", none_value());
    set("decoder_first_pipeline_num_layers", number_or_none(grid.first_stage));
    set("decoder_last_pipeline_num_layers", number_or_none(grid.last_stage));
    set("pipeline_model_parallel_layout", none_value());
    set("account_for_embedding_in_pipeline_split", value_of(false));
    set("account_for_loss_in_pipeline_split", value_of(false));
    if (const auto rows = target.division.padded_vocabulary()) set("padded_vocab_size", value_of(*rows));
  }

  Result<> add_optimizer(RankTarget& target, const CommonState& common, const std::vector<std::string>& names) {
    if (common.optimizers.empty()) return {};
    if (const std::string& name = target.division.unordered(); !name.empty())
      return refuse(
          fmt::format("{}: cannot store its optimizer state: its position among the model's parameters is unknown",
                      name),
          "--only weights", name);
    std::set<std::string> slots;
    for (const WeightState& state : target.states)
      for (const auto& [slot, tensor] : state.slots) slots.insert(slot);
    target.slots.assign(slots.begin(), slots.end());
    for (std::size_t i = 0; i < target.states.size(); ++i) {
      const WeightState& state = target.states[i];
      if (!state.is_trained) continue;
      for (const std::string& slot : target.slots)
        if (!state.slots.contains(slot))
          return fail({.code = Errc::incomplete,
                       .message = fmt::format("{}: {}: the source has no {} for it", request_.target, names[i], slot),
                       .tensor = names[i],
                       .hint = "--only weights    converts the weights alone"});
      if (!state.master && state.dtype != Dtype::f32) made_masters_.push_back(names[i]);
    }
    target.step = common.step;
    // Megatron-LM sets it in runs of bf16, whatever was asked for.
    constexpr std::string_view kReducesInFp32 = "accumulate_allreduce_grads_in_fp32";
    target.reduces_in_fp32 =
        args_ == nullptr || member(*args_, kReducesInFp32) == nullptr || is_set(*args_, kReducesInFp32);
    if (args_ != nullptr) target.bucket = bucket_elements(*args_, target.grid.data);
    return divide_optimizers(target, common.optimizers);
  }

  /// Experts have an optimizer of their own where they are divided among expert-parallel ranks.
  Result<> divide_optimizers(RankTarget& target, const std::vector<ValuePtr>& optimizers) {
    for (const ValuePtr& one : optimizers) {
      const List* groups = one == nullptr ? nullptr : parameter_groups(*one);
      const bool is_usable = groups != nullptr && std::ranges::all_of(groups->items, [](const ValuePtr& group) {
                               return group != nullptr && std::holds_alternative<Dict>(group->v);
                             });
      if (!is_usable) return refuse("cannot read the optimizer's parameter groups", "--only weights");
      const bool of_experts = !groups->items.empty() && std::ranges::all_of(groups->items, is_of_experts);
      if (!target.is_distributed) CKPT_CHECK(check_groups(*groups));
      target.optimizers.push_back({.common = one, .is_of_experts = of_experts});
    }
    const bool has_both = target.grid.expert > 1 && target.division.has_experts();
    const auto experts = std::ranges::find(target.optimizers, true, &RankOptimizer::is_of_experts);
    if (!has_both) {
      std::erase_if(target.optimizers, [](const RankOptimizer& one) { return one.is_of_experts; });
    } else if (experts == target.optimizers.end()) {
      target.optimizers.push_back({.common = for_experts(target.optimizers.front().common), .is_of_experts = true});
    }
    if (target.optimizers.size() != (has_both ? 2U : 1U))
      return refuse(fmt::format("the source has {} optimizers, which is not supported", optimizers.size()),
                    "--only weights");
    return {};
  }

  /// Weights are numbered by groups, which only their decay tells apart here.
  Result<> check_groups(const List& groups) const {
    std::set<std::pair<bool, bool>> seen;
    for (const ValuePtr& group : groups.items)
      if (!seen.emplace(real_number(member(*group, "wd_mult")) != 0.0, is_of_experts(group)).second)
        return refuse("cannot tell which weights belong to which parameter group of the optimizer",
                      "--to megatron    stores the state by weight");
    return {};
  }

  Result<> add_files(const RankTarget& target, const ValuePtr& common, Skeleton& out) const {
    const auto step = request_.source->meta.step;
    const std::string folder = iteration_folder(step);
    for (const RankPlace& place : target.grid.places()) {
      if (request_.stop != nullptr && *request_.stop) return fail(Errc::interrupted, "interrupted");
      const std::string rank = join_path(folder, target.grid.folder(place));
      CKPT_TRY(std::vector<TargetFile> files, rank_target_files(target, place, common, rank));
      std::ranges::move(files, std::back_inserter(out.files));
    }
    out.small_names.emplace_back(kTracker);
    // The tracker last: until then a trainer resumes from nothing here.
    out.finish = [text = tracker_text(step)](const std::vector<Hash128>&) -> Result<std::vector<SmallFile>> {
      return std::vector<SmallFile>{{.path = std::string(kTracker), .bytes = text}};
    };
    return {};
  }

  void report(const RankTarget& target, std::vector<Finding>& notes) const {
    report_left_out(request_, state_, notes);
    if (!padding_.empty()) notes.push_back({.text = padding_});
    std::vector<std::string> items;
    const bool has_fp8 = args_ != nullptr && text_of(member(*args_, "fp8")) != nullptr;
    for (const std::string& name : state_.names(Kind::item))
      if (name != kCommonItem && (has_fp8 || name.find(kExtraState) == std::string::npos)) items.push_back(name);
    report_lost(state_, items, "Python object", "Python objects", notes);
    report_lost(state_, state_.names(Kind::bucket), "tensor of the optimizer", "tensors of the optimizer", notes);
    if (!made_masters_.empty() && !target.optimizers.empty())
      notes.push_back(
          {.text = fmt::format("the source has no fp32 masters for {} weights, e.g. {}: they are made from the weights",
                               made_masters_.size(), made_masters_.front())});
  }

  const WriteRequest& request_;
  const Value* args_ = nullptr;
  SourceState state_{};
  std::vector<WholeWeight> weights_{};
  std::vector<WeightState> states_{};
  std::vector<std::string> made_masters_{};
  std::string padding_{};  // a note
};

}  // namespace

Result<Skeleton> lay_out_ranks(const WriteRequest& request) {
  return RankWriter(request).lay_out();
}

}  // namespace ckpt::megatron
