#include "convert/deepspeed/writer/training_target.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <set>

#include "convert/apply_rules.hpp"
#include "convert/deepspeed/writer/expert_division.hpp"
#include "convert/deepspeed/writer/joined_groups.hpp"
#include "convert/deepspeed/writer/number_slots.hpp"
#include "convert/deepspeed/writer/target_limits.hpp"
#include "convert/deepspeed/writer/writer.hpp"
#include "format/model/object_tree.hpp"
#include "format/model/same_value.hpp"
#include "format/text/name_list.hpp"

namespace ckpt::deepspeed {
namespace {

bool is_number(Dtype dtype) {
  return dtype == Dtype::f64 || dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

/// "3 parameters: a, b, c"
std::string some_of(const std::vector<std::string>& names, std::string_view one, std::string_view many) {
  return fmt::format("{} {}: {}", names.size(), names.size() == 1 ? one : many, name_list(names));
}

// Keys of model files that the layout decides; the source's values of them are not client state.
bool is_layout_name(std::string_view key) {
  constexpr std::array<std::string_view, 19> kKeys{"module",
                                                   "buffer_names",
                                                   "optimizer",
                                                   "param_shapes",
                                                   "frozen_param_shapes",
                                                   "frozen_param_fragments",
                                                   "shared_params",
                                                   "lr_scheduler",
                                                   "data_sampler",
                                                   "random_ltd",
                                                   "sparse_tensor_module_names",
                                                   "skipped_steps",
                                                   "global_steps",
                                                   "global_samples",
                                                   "dp_world_size",
                                                   "mp_world_size",
                                                   "ds_config",
                                                   "ds_version",
                                                   "checkpoint_parallel_dimensions"};
  return std::ranges::find(kKeys, key) != kKeys.end();
}

class Preparation {
 public:
  explicit Preparation(const WriteRequest& request) : request_(request), map_(*request.source) { out_.map = &map_; }

  Result<TrainingTarget> run(bool universal) {
    universal_ = universal;
    take_state();
    CKPT_CHECK(choose_layout());
    CKPT_CHECK(check_model_parallel());
    CKPT_CHECK(check_names(request_, out_.state));
    CKPT_CHECK(check_optimizer());
    choose_dtype();
    CKPT_CHECK(check_types(request_, out_));
    if (out_.stage != 0 || universal_) read_number_slots(request_, out_.state);
    CKPT_CHECK(add_groups());
    read_config();
    CKPT_CHECK(find_experts(request_, universal_, out_));
    CKPT_CHECK(divide_experts(request_, out_));
    CKPT_CHECK(check_pipeline_type());
    add_client_state();
    return std::move(out_);
  }

 private:
  void note(std::string text) { out_.notes.push_back({.text = std::move(text)}); }
  std::uint64_t mesh(std::string_view axis) const {
    for (const auto& [name, degree] : map_.meta.mesh) {
      if (name == axis) return degree;
    }
    return 0;
  }
  bool is_deepspeed() const { return map_.meta.framework == "deepspeed"; }

  void take_state() {
    std::vector<StateItem> items;
    for (const Selected& selected : request_.tensors) {
      items.push_back(
          {selected.tensor, selected.name, selected.dtype, selected.role.value_or(map_.tensors[selected.tensor].role)});
    }
    std::set<std::string> differing;
    objects_ = joined_groups(request_.objects, differing);
    if (!differing.empty())
      out_.notes.push_back({.severity = Severity::warning,
                            .text = "ranks differ in their optimizer's values; those of the first rank are taken: " +
                                    name_list(std::vector<std::string>(differing.begin(), differing.end()))});
    out_.state = training_state({.map = &map_, .items = items, .aliases = request_.aliases, .objects = objects_});
    out_.notes.insert(out_.notes.end(), out_.state.notes.begin(), out_.state.notes.end());
    for (std::uint32_t i = 0; i < map_.tensors.size(); ++i) out_.by_name.emplace(map_.tensors[i].name, i);
    out_.fresh = request_.options.fresh_optimizer;
  }

  Result<> choose_layout() {
    const TargetOptions& options = request_.options;
    if (universal_) {
      out_.stage = 2;
      out_.has_bare_tensors = options.zero_stage == 3U;
      out_.dp = std::max<std::uint64_t>(mesh("dp"), 1);
    } else {
      if (!options.zero_stage && !is_deepspeed())
        return fail({.code = Errc::usage,
                     .message = request_.target + ": --to deepspeed needs --zero-stage",
                     .hint = "--zero-stage N --dp N    as in the run that is to load it"});
      out_.stage = options.zero_stage.value_or(mesh("zero"));
      if (options.dp == 0 && mesh("dp") == 0)
        return fail({.code = Errc::usage,
                     .message = request_.target + ": --to deepspeed needs --dp",
                     .hint = "--dp N    the number of data-parallel ranks that are to load it"});
      out_.dp = options.dp != 0 ? options.dp : mesh("dp");
      constexpr std::uint64_t kGreatestStage = 3;
      if (out_.stage > kGreatestStage)
        return fail({.code = Errc::usage,
                     .message = fmt::format("{}: DeepSpeed has no ZeRO stage {}", request_.target, out_.stage),
                     .hint = "--zero-stage N    as in the run that is to load it"});
      CKPT_CHECK(check_ranks(out_.dp, "data-parallel", "--dp N    chooses a number"));
    }
    out_.tag = options.tag;
    if (out_.tag.empty()) out_.tag = source_tag();
    if (out_.tag.empty()) out_.tag = fmt::format("global_step{}", out_.state.counters.steps.value_or(0));
    return check_tag(request_.target, out_.tag);
  }

  Result<> check_ranks(std::uint64_t ranks, std::string_view kind, std::string hint) const {
    if (ranks <= kMostTargetRanks) return {};
    return fail({.code = Errc::usage,
                 .message = fmt::format("{}: {} {} ranks: at most {} are written", request_.target, ranks, kind,
                                        kMostTargetRanks),
                 .hint = std::move(hint)});
  }

  /// The directory of the source's own files, below its root.
  std::string source_tag() const {
    if (map_.format != "deepspeed" || map_.files.empty()) return {};
    const std::string& path = map_.files.front().path;
    const std::size_t slash = path.find('/');
    return slash == std::string::npos || slash == 0 ? std::string() : path.substr(0, slash);
  }

  Result<> check_model_parallel() {
    if (request_.ranks) return keep_model_parallel(*request_.ranks);
    if (universal_) return join_model_parallel();
    for (const auto& [axis, word] :
         {std::pair<std::string_view, std::string_view>{"pp", "pipeline"}, {"tp", "tensor"}}) {
      if (mesh(axis) < 2) continue;
      return fail(cannot_hold(
          request_,
          fmt::format("{} {}-parallel ranks saved this state, and only the original DeepSpeed files record what each "
                      "rank held",
                      mesh(axis), word),
          {}, "convert the original DeepSpeed directory, or use --to ckpt or --to safetensors"));
    }
    return {};
  }

  /// Also of one stage; with experts it has no layer files.
  bool is_pipeline() const { return out_.layer_files || out_.model_ranks > out_.tensor_ranks; }

  Result<> keep_model_parallel(const RankLayout& ranks) {
    out_.model_ranks = ranks.ranks.size();
    out_.tensor_ranks = ranks.tensor_ranks;
    out_.layer_files = !ranks.layers.empty();
    if (!is_pipeline() || out_.stage < 2) return {};
    return fail(cannot_hold(request_, fmt::format("DeepSpeed does not support pipelines at ZeRO stage {}", out_.stage),
                            {}, "--zero-stage 1    is the nearest"));
  }

  /// A universal folder has parameters whole; how they are cut, their files say.
  Result<> join_model_parallel() {
    out_.tensor_ranks = std::max<std::uint64_t>(mesh("tp"), 1);
    const std::uint64_t stages = std::max<std::uint64_t>(mesh("pp"), 1);
    CKPT_CHECK(check_ranks(out_.tensor_ranks, "tensor-parallel", ""));
    CKPT_CHECK(check_ranks(stages, "pipeline-parallel", ""));
    out_.model_ranks = out_.tensor_ranks * stages;
    CKPT_CHECK(check_ranks(out_.model_ranks, "model-parallel", ""));
    out_.layer_files =
        out_.model_ranks > 1;  // as ds_to_universal.py leaves layers behind, so are slices of weights here
    if (out_.tensor_ranks == 1 || out_.slice_info() != nullptr) return {};
    return fail(cannot_hold(request_,
                            "the source has no universal_checkpoint_info, which describes how to slice parameters", {},
                            "--to deepspeed    keeps the slices unchanged"));
  }

  Result<> check_optimizer() {
    TrainingState& state = out_.state;
    for (const ModelTensor& entry : state.model) {
      if (entry.tensor || (entry.master && !out_.fresh)) continue;
      return fail(
          cannot_hold(request_, entry.name + ": neither its weight nor its master is in the source", entry.name));
    }
    if (out_.fresh) {
      drop_optimizer();
      return check_order();
    }
    const std::string fresh = "--fresh-optimizer    starts with a new optimizer";
    if (!state.has_optimizer) return fail(cannot_hold(request_, "the source holds no optimizer state", {}, fresh));
    const std::string remedy = state.order_is_missing ? std::string(kListParameters) : fresh;
    if (!state.unplaced.empty()) {
      const std::string& name = map_.tensors[state.unplaced.front()].name;
      return fail(cannot_hold(request_, fmt::format("{}: its parameter is not known: {}", name, state.unplaced_reason),
                              name, remedy));
    }
    if (!state.unplaced_reason.empty()) return fail(cannot_hold(request_, state.unplaced_reason, {}, remedy));
    if (!state.has_group_options)
      return fail(
          cannot_hold(request_, "the source holds no parameter groups (learning rate, weight decay, ...)", {}, fresh));
    for (const ModelTensor& entry : state.model) {
      if (entry.kind != ModelTensor::Kind::trained || entry.group) continue;
      return fail(
          cannot_hold(request_, entry.name + ": has optimizer state but is in no parameter group", entry.name, fresh));
    }
    return check_order();
  }

  /// Optimizers load flat tensors and numbered state by position: in another order each parameter would get another's.
  Result<> check_order() const {
    if (!out_.state.order_is_missing || universal_ || (out_.stage == 0 && out_.fresh)) return {};
    return fail(cannot_hold(request_,
                            "DeepSpeed loads parameters in the order of the model, which the source does not record",
                            {}, std::string(kListParameters)));
  }

  void drop_optimizer() {
    TrainingState& state = out_.state;
    std::size_t dropped = 0;
    for (ModelTensor& entry : state.model) {
      dropped += entry.slots.size() + (entry.master && entry.tensor ? 1 : 0);
      entry.slots.clear();
      entry.step = {};
    }
    state.loss_scale.reset();
    if (dropped != 0) note(fmt::format("--fresh-optimizer: {} tensors of optimizer state are left out", dropped));
    if (!state.unplaced_reason.empty()) state.groups.clear();  // whose members are not known
    if (!state.groups.empty() || !state.has_optimizer) return;
    ParameterGroup all;
    for (std::size_t i = 0; i < state.model.size(); ++i) {
      ModelTensor& entry = state.model[i];
      if (entry.kind == ModelTensor::Kind::buffer || !is_number(entry.dtype)) continue;
      entry.kind = ModelTensor::Kind::trained;
      all.members.push_back(i);
    }
    state.groups.push_back(std::move(all));
  }

  /// DeepSpeed's optimizers leave out parameters without elements, and its files list them with the frozen ones. Stage 0
  /// with fp32 weights has an optimizer of torch, which numbers all parameters.
  ///
  /// source  deepspeed/runtime/utils.py: is_optimized_parameter
  bool keeps_empty() const { return out_.stage == 0 && !universal_ && out_.model_dtype == Dtype::f32; }

  Result<> add_groups() {
    std::vector<std::string> no_master;
    std::vector<std::string> untouched;
    std::vector<std::string> empty;
    for (const ParameterGroup& group : out_.state.groups) {
      TargetGroup to{.options = group.options};
      for (const std::size_t member : group.members) {
        ModelTensor& entry = out_.state.model[member];
        if (volume(entry.shape) == 0 && !keeps_empty()) {
          entry.kind = ModelTensor::Kind::frozen;
          if (!entry.slots.empty() || !std::holds_alternative<std::monostate>(entry.step)) empty.push_back(entry.name);
          continue;
        }
        CKPT_CHECK(check_member(entry));
        to.members.push_back(member);
        to.elements.push_back(volume(entry.shape));
        if (!entry.master || out_.fresh) no_master.push_back(entry.name);
      }
      if (to.members.empty()) continue;
      CKPT_CHECK(check_size(to));
      CKPT_CHECK(settle_slots(to, untouched));
      CKPT_CHECK(settle_step(to));
      CKPT_CHECK(settle_values(to));
      out_.groups.push_back(std::move(to));
    }
    if (out_.groups.empty()) return fail(cannot_hold(request_, "no parameter is trained"));
    if (!empty.empty())
      note("left out: the optimizer state of " +
           some_of(empty, "parameter without elements", "parameters without elements") +
           ", which DeepSpeed's optimizers do not have");
    if (!no_master.empty())
      note("fp32 masters are made from the weights of " + some_of(no_master, "parameter", "parameters"));
    if (!untouched.empty())
      note("no optimizer state is stored for " + some_of(untouched, "parameter", "parameters") +
           ": it is zero, as of parameters that never had a gradient");
    return {};
  }

  /// A tensor of views may have any number of elements; the bytes of flat tensors, with their padding, can be counted.
  Result<> check_size(const TargetGroup& group) const {
    constexpr std::uint64_t kMostElements = UINT64_MAX >> 4;  // of at most 8 bytes, and as many again of padding
    std::uint64_t left = kMostElements;
    for (std::size_t m = 0; m < group.members.size(); ++m) {
      const std::string& name = out_.state.model[group.members[m]].name;
      if (group.elements[m] > left)
        return fail(cannot_hold(request_, name + ": its group has too many elements", name));
      left -= group.elements[m];
    }
    return {};
  }

  Result<> check_member(const ModelTensor& entry) {
    const auto holds = [&](std::uint32_t tensor) { return is_number(map_.tensors[tensor].dtype); };
    if ((entry.tensor && !holds(*entry.tensor)) || (entry.master && !holds(*entry.master)) || !is_number(entry.dtype))
      return fail(cannot_hold(request_, entry.name + ": a trained parameter of this type has no place in DeepSpeed",
                              entry.name));
    if (entry.master && map_.tensors[*entry.master].shape != entry.shape)
      return fail(cannot_hold(request_, entry.name + ": its master has another shape", entry.name));
    return {};
  }

  /// Flat tensors hold the same slots of all members, each as large as the parameter.
  Result<> settle_slots(TargetGroup& group, std::vector<std::string>& untouched) {
    const ModelTensor* first = nullptr;
    for (const std::size_t member : group.members) {
      const ModelTensor& entry = out_.state.model[member];
      if (entry.slots.empty()) continue;
      if (first == nullptr) {
        first = &entry;
        for (const StateSlot& slot : entry.slots) group.slots.push_back({slot.name, map_.tensors[slot.tensor].dtype});
      }
      CKPT_CHECK(check_slots(*first, entry));
    }
    for (const std::size_t member : group.members) {
      const ModelTensor& entry = out_.state.model[member];
      if (first != nullptr && entry.slots.empty()) untouched.push_back(entry.name);
    }
    return {};
  }

  Result<> check_slots(const ModelTensor& first, const ModelTensor& entry) {
    for (const StateSlot& slot : entry.slots) {
      const Tensor& tensor = map_.tensors[slot.tensor];
      const auto same = std::ranges::find(first.slots, slot.name, &StateSlot::name);
      if (same == first.slots.end() || entry.slots.size() != first.slots.size())
        return fail(cannot_hold(request_,
                                fmt::format("{}: its optimizer state is not that of {} in the same parameter group",
                                            entry.name, first.name),
                                entry.name, "--fresh-optimizer    starts with a new optimizer"));
      if (tensor.shape == entry.shape && is_number(tensor.dtype) && tensor.dtype == map_.tensors[same->tensor].dtype)
        continue;
      if (out_.stage == 0 && !universal_) continue;  // one tensor a parameter, as the optimizer has it
      return fail(cannot_hold(request_,
                              fmt::format("{}: optimizer state of another shape or type than its parameter cannot be "
                                          "cut into ZeRO's flat tensors",
                                          tensor.name),
                              tensor.name, "--zero-stage 0    keeps it as it is"));
    }
    return {};
  }

  Result<std::optional<Value>> step_of(const ModelTensor& entry) {
    if (const auto* number = std::get_if<Value>(&entry.step)) return std::optional(*number);
    const auto* tensor = std::get_if<std::uint32_t>(&entry.step);
    if (tensor == nullptr) return std::optional<Value>();
    const auto read = request_.scalars.find(*tensor);
    if (read == request_.scalars.end())
      return fail(Errc::internal, map_.tensors[*tensor].name + ": its value was not read");
    Value out;
    out.v = read->second;
    return std::optional(std::move(out));
  }

  Result<> settle_step(TargetGroup& group) {
    const ModelTensor* first = nullptr;
    for (const std::size_t member : group.members) {
      const ModelTensor& entry = out_.state.model[member];
      CKPT_TRY(const auto step, step_of(entry));
      if (!step) continue;
      if (first == nullptr) {
        first = &entry;
        group.step = step;
        continue;
      }
      const auto mine = real_number(&*step);
      const auto theirs = real_number(&*group.step);
      if (mine == theirs || (out_.stage == 0 && !universal_)) continue;
      return fail(cannot_hold(request_,
                              fmt::format("{}: its optimizer step is {}, that of {} in the same parameter group is {}: "
                                          "ZeRO keeps one per group",
                                          entry.name, mine.value_or(-1), first->name, theirs.value_or(-1)),
                              entry.name, "--zero-stage 0    keeps one per parameter"));
    }
    return {};
  }

  /// Numbers besides the step.
  Result<> settle_values(TargetGroup& group) {
    const ModelTensor* first = nullptr;
    for (const std::size_t member : group.members) {
      const ModelTensor& entry = out_.state.model[member];
      if (entry.values.empty()) continue;
      if (first == nullptr) {
        first = &entry;
        group.values = entry.values;
        if (universal_)
          note("left out: optimizer values other than the step, which universal folders cannot hold: " +
               entry.values.front().first);
      }
      if (out_.stage == 0 && !universal_) continue;
      for (const auto& [name, value] : entry.values) {
        const auto same = std::ranges::find(group.values, name, &std::pair<std::string, Value>::first);
        if (same != group.values.end() && same_value(same->second, value)) continue;
        return fail(cannot_hold(request_,
                                fmt::format("{}: {} of its optimizer state differs from that of {} in the same "
                                            "parameter group: ZeRO keeps one per group",
                                            entry.name, name, first->name),
                                entry.name, "--zero-stage 0    keeps one per parameter"));
      }
    }
    return {};
  }

  void choose_dtype() {
    std::array<std::uint64_t, 256> elements{};
    for (const ParameterGroup& group : out_.state.groups) {
      for (const std::size_t member : group.members) {
        const ModelTensor& entry = out_.state.model[member];
        elements[static_cast<std::size_t>(entry.dtype)] += volume(entry.shape);
      }
    }
    const auto most = std::max_element(elements.begin(), elements.end());
    out_.model_dtype = static_cast<Dtype>(most - elements.begin());
    settle_loss_scale();
  }

  Result<> check_pipeline_type() const {
    if (!is_pipeline() || out_.stage != 0 || out_.model_dtype != Dtype::bf16 || out_.fresh) return {};
    return fail(cannot_hold(request_, "DeepSpeed loads no optimizer state into a bf16 pipeline at ZeRO stage 0", {},
                            "--zero-stage 1    is the nearest"));
  }

  /// Weights that become fp16 get a scaler as DeepSpeed starts one; stages 1 and 2 start their own.
  void settle_loss_scale() {
    auto& scale = out_.state.loss_scale;
    const bool was_half = std::ranges::any_of(out_.state.model, [&](const ModelTensor& entry) {
      return entry.tensor && map_.tensors[*entry.tensor].dtype == Dtype::f16;
    });
    if (out_.model_dtype != Dtype::f16 || (scale && (scale->dynamic || was_half))) return;
    scale.reset();
    if (out_.stage != 0 && out_.stage != 3) return;
    constexpr double kInitialScale = 65536;  // config "fp16": initial_scale_power 16
    scale = LossScale{.scale = kInitialScale, .dynamic = true};
    note("the source has no loss scale: a dynamic one begins at 65536");
  }

  void read_config() {
    out_.version = is_deepspeed() && !map_.meta.framework_version.empty() ? map_.meta.framework_version
                                                                          : std::string(kWrittenVersion);
    const Value* config = nullptr;
    for (const NamedObject& object : out_.state.rest) {
      if (object.name == "ds_config") config = &object.value;
    }
    const Value* zero = member(config, "zero_optimization");
    if (const auto size = whole_number(member(zero, "sub_group_size")); size && *size > 0)
      out_.sub_group_elements = static_cast<std::uint64_t>(*size);
    out_.round_robin = truth(member(zero, "round_robin_gradients")).value_or(false);
    out_.data_before_experts = truth(member(config, "use_data_before_expert_parallelism")).value_or(false);
    if (out_.round_robin && !universal_ && (out_.stage == 1 || out_.stage == 2))
      out_.notes.push_back({.severity = Severity::warning,
                            .text = "laid out for round_robin_gradients, as the source's configuration sets it: a run "
                                    "that does not set it would load wrong values"});
    DictValue out;
    if (const auto* dict = config != nullptr ? std::get_if<Dict>(&config->v) : nullptr) {
      for (const auto& [key, value] : dict->items) {
        if (const auto* text = text_of(key.get())) out.set(*text, value);
      }
    }
    if (!universal_) {
      DictValue stage;
      if (const auto* dict = zero != nullptr ? std::get_if<Dict>(&zero->v) : nullptr) {
        for (const auto& [key, value] : dict->items) {
          if (const auto* text = text_of(key.get())) stage.set(*text, value);
        }
      }
      stage.set("stage", value_of(out_.stage));
      out.set("zero_optimization", std::move(stage).finish());
    }
    out_.config = std::move(out).finish();
  }

  /// Other state of the source, by its top-level keys.
  void add_client_state() {
    const FullPaths paths(map_);
    std::vector<TreeLeaf> leaves;
    std::vector<std::string> of_ranks;
    std::vector<std::string> blobs;
    const auto add = [&](Path path, ValuePtr value) {
      auto* last = std::get_if<std::string>(&path.back());
      const std::size_t rank = last != nullptr ? last->rfind('@') : std::string::npos;
      if (rank != std::string::npos && rank + 1 < last->size() &&
          last->find_first_not_of("0123456789", rank + 1) == std::string::npos) {
        if (last->substr(rank) != "@0") return of_ranks.push_back(dotted(path));
        last->resize(rank);
      }
      leaves.push_back({std::move(path), std::move(value)});
    };
    for (const auto* objects : {&out_.state.rest, &out_.state.rng}) {
      for (const NamedObject& object : *objects)
        add(paths.of(object.name, object.path), std::make_shared<Value>(object.value));
    }
    for (const std::uint32_t index : out_.state.loose) {
      const Tensor& tensor = map_.tensors[index];
      if (tensor.role == Role::blob) {
        blobs.push_back(tensor.name);
        continue;
      }
      Value ref;
      ref.v = TensorRef{tensor.name};
      add(paths.of(tensor.name, tensor.path), std::make_shared<Value>(std::move(ref)));
    }
    if (!of_ranks.empty())
      note("left out: per-rank objects of all ranks but the first: " + some_of(of_ranks, "object", "objects"));
    if (!blobs.empty()) note("left out: " + some_of(blobs, "opaque blob", "opaque blobs"));
    const auto tree = build_tree(leaves);
    const auto* dict = tree ? std::get_if<Dict>(&tree->v) : nullptr;
    if (dict == nullptr) return;
    std::vector<std::string> shadowed;
    for (const auto& [key, value] : dict->items) {
      const auto* text = text_of(key.get());
      if (text == nullptr) continue;
      if (*text == "optimizer" && is_deepspeed()) {
        for (const std::string_view name : {"overflow", "clip_grad"}) {
          if (const Value* found = member(value.get(), name))
            out_.optimizer.emplace_back(name, std::make_shared<Value>(*found));
        }
        continue;
      }
      if (is_layout_name(*text)) {
        if (!is_deepspeed()) shadowed.push_back(*text);
        if (*text == "data_sampler" || *text == "random_ltd") out_.client.emplace_back(*text, value);
        continue;
      }
      out_.client.emplace_back(*text, value);
    }
    if (!shadowed.empty())
      note("left out: what DeepSpeed keeps under the same names: " + some_of(shadowed, "object", "objects"));
  }

  const WriteRequest& request_;
  const Map& map_;
  bool universal_ = false;
  std::vector<NamedObject> objects_{};
  TrainingTarget out_{};
};

}  // namespace

Error cannot_hold(const WriteRequest& request, std::string what, std::string tensor, std::string hint) {
  return {.code = Errc::unsupported,
          .message = fmt::format("{}: {}", request.target, what),
          .tensor = std::move(tensor),
          .hint = std::move(hint)};
}

const Value* TrainingTarget::slice_info() const {
  for (const NamedObject& object : state.rest) {
    if (object.name.substr(0, object.name.rfind('@')) == "universal_checkpoint_info") return &object.value;
  }
  return nullptr;
}

std::uint32_t TrainingTarget::weight_source(const ModelTensor& entry) const {
  if (!entry.tensor) return *entry.master;
  return entry.master && entry.dtype != map->tensors[*entry.tensor].dtype ? *entry.master : *entry.tensor;
}

Result<TrainingTarget> training_target(const WriteRequest& request, std::uint64_t model_rank) {
  CKPT_TRY(TrainingTarget target, Preparation(request).run(false));
  target.model_rank = model_rank;
  return target;
}

Result<TrainingTarget> universal_target(const WriteRequest& request) {
  return Preparation(request).run(true);
}

}  // namespace ckpt::deepspeed
