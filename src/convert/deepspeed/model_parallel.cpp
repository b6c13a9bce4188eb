#include "convert/deepspeed/model_parallel.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/deepspeed/file_set.hpp"
#include "convert/deepspeed/flat_groups.hpp"
#include "convert/deepspeed/kept_objects.hpp"
#include "convert/deepspeed/model_parallel_files.hpp"
#include "convert/deepspeed/model_states.hpp"
#include "convert/deepspeed/optim_states.hpp"
#include "convert/deepspeed/slice_rules.hpp"
#include "format/checked.hpp"

namespace ckpt::deepspeed {
namespace {

constexpr std::uint64_t kMaxModelRanks = 1u << 16;
constexpr std::string_view kTied = "tied_modules.";

/// What model-parallel ranks hold of one thing, by pipeline stage, then by tensor-parallel rank.
using Slices = std::map<std::uint64_t, std::map<std::uint64_t, RankSlice>>;

/// A weight, or a parameter's slot: every rank's slice of it.
struct Sliced {
  Tensor tensor{};
  Slices slices{};
};

class ModelParallelReader {
 public:
  ModelParallelReader(Io& io, std::string root, const Tag& tag, const ReadOptions& options)
      : tag_(tag), set_(io, std::move(root), options, builder_) {}

  Result<Map> read() {
    auto sorted = sort_model_parallel_files(tag_.entries);
    if (!sorted) {
      Error error = std::move(sorted).error();
      error.file = in_tag(error.file);
      return fail(std::move(error));
    }
    files_ = *std::move(sorted);
    CKPT_CHECK(learn_what_must_exist());
    CKPT_CHECK(read_models());
    CKPT_CHECK(read_optims());
    CKPT_CHECK(read_layers());
    CKPT_CHECK(check_weights());
    CKPT_CHECK(place(weights_));
    CKPT_CHECK(place(slots_));
    return finish();
  }

 private:
  std::string in_tag(const std::string& name) const {
    return tag_.directory.empty() ? name : join_path(tag_.directory, name);
  }
  Error missing(const std::string& name) const {
    return {.code = Errc::incomplete,
            .message = in_tag(name) + ": the file is missing",
            .file = in_tag(name),
            .hint = "each rank writes its own file: copy the missing ones from the nodes that wrote them"};
  }
  Error corrupt(const std::string& name, const std::string& what) const {
    return {.code = Errc::corrupt, .message = in_tag(name) + ": " + what, .file = in_tag(name)};
  }

  std::uint64_t stage_of(std::uint64_t model_rank) const { return model_rank / tensor_ranks_; }
  std::uint64_t tensor_rank_of(std::uint64_t model_rank) const { return model_rank % tensor_ranks_; }

  /// The first rank's files tell how many ranks there are.
  Result<> learn_what_must_exist() {
    if (files_.models.count(0) == 0) return fail(missing(files_.model_name(0)));
    CKPT_TRY(const StateFile file, set_.open(in_tag(files_.model_name(0))));
    CKPT_TRY(facts_, read_facts(file));
    CKPT_TRY(rules_, SliceRules::read(file));
    model_ranks_ = facts_.model_parallel.value_or(files_.models.rbegin()->first + 1);
    if (model_ranks_ == 0 || model_ranks_ > kMaxModelRanks) {
      return fail(file.error(Errc::corrupt, "mp_world_size: " + std::to_string(model_ranks_)));
    }
    tensor_ranks_ = facts_.tensor_parallel;
    if (file.find(file.root(), "checkpoint_parallel_dimensions") == pickle::kNone) {
      // Older files do not say it: a module belongs to no stage, layers name their tensor-parallel ranks.
      tensor_ranks_ = file.find(file.root(), "module") != pickle::kNone ? model_ranks_ : 1;
      for (const LayerFile& layer : files_.layers) tensor_ranks_ = std::max(tensor_ranks_, layer.tensor_rank + 1);
    }
    if (tensor_ranks_ == 0 || model_ranks_ % tensor_ranks_ != 0 ||
        (facts_.pipeline_parallel > 1 && model_ranks_ / tensor_ranks_ != facts_.pipeline_parallel)) {
      return fail(file.error(Errc::corrupt, std::to_string(model_ranks_) + " model-parallel ranks are not " +
                                                std::to_string(facts_.pipeline_parallel) + " stages of " +
                                                std::to_string(tensor_ranks_) + " tensor-parallel ranks"));
    }
    for (std::uint64_t m = 0; m < model_ranks_; ++m) {
      if (files_.models.count(m) == 0) return fail(missing(files_.model_name(m)));
    }
    if (files_.models.size() > model_ranks_) {
      return fail(corrupt(files_.models.rbegin()->second, "belongs to a save with more than " +
                                                              std::to_string(model_ranks_) + " model-parallel ranks"));
    }
    if (files_.optims.empty()) {
      if (facts_.optim_prefix == "bf16_") files_.optim_prefix = "bf16_";
      return fail(missing(files_.optim_name(0, 0)));
    }
    if (files_.optims.rbegin()->first >= model_ranks_) {
      return fail(
          corrupt(files_.optims.rbegin()->second.front().name,
                  "belongs to a save with more than " + std::to_string(model_ranks_) + " model-parallel ranks"));
    }
    return {};
  }

  Result<> read_models() {
    for (std::uint64_t m = 0; m < model_ranks_; ++m) {
      const std::string name = in_tag(files_.model_name(m));
      CKPT_TRY(const StateFile file, m == 0 ? reopen(name) : set_.open(name));
      CKPT_TRY(ModelStates model, read_model_states(file, ModelRanks::several));
      CKPT_CHECK(refuse_experts(file, model));
      CKPT_TRY(const SliceRules rules, SliceRules::read(file));
      if (model.facts != facts_) {
        return fail(file.error(Errc::corrupt,
                               "counters or degrees differ from those of rank 0: the files are of "
                               "different saves"));
      }
      if (!(rules == rules_) && stage_of(m) == 0) {
        return fail(file.error(Errc::corrupt, "universal_checkpoint_info differs from that of rank 0"));
      }
      if (!model.param_shapes) {
        return fail(with_hint(file.error(Errc::unsupported,
                                         "this is a DeepSpeed checkpoint of several model-parallel ranks without ZeRO: "
                                         "not yet readable"),
                              kWhatIsRead));
      }
      stage_rules_.emplace(stage_of(m), rules);
      for (const NamedTensor& entry : model.module) {
        const Role role = model.buffer_names.count(entry.name) ? Role::buffer : Role::param;
        CKPT_CHECK(add(weights_, entry.name, tensor_of(entry, role), m, {entry.tensor.type.shape, entry.tensor.where}));
      }
      for (const auto& name_of_buffer : model.buffer_names) buffers_.insert(name_of_buffer);
      for (const GroupShapes& group : *model.param_shapes) {
        for (const NamedShape& shape : group) trained_[shape.name].insert(stage_of(m));
      }
      ObjectReader reader(file, rank_suffix(m));
      CKPT_TRY(auto objects, model_objects(file, reader));
      CKPT_CHECK(module_objects(model, reader, objects));
      objects_.keep(file, m, reader, KeptObjects::Of::model, std::move(objects));
      model.module_objects.clear();
      models_.push_back(std::move(model));
    }
    return {};
  }

  /// A file that the set knows already.
  Result<StateFile> reopen(const std::string& name) const {
    return StateFile::open(set_.io(), set_.root(), name, 0, {});
  }

  Tensor tensor_of(const NamedTensor& entry, Role role) const {
    return {.name = entry.name,
            .dtype = entry.tensor.type.dtype,
            .shape = entry.tensor.type.shape,
            .role = role,
            .true_dtype = entry.tensor.type.true_dtype};
  }

  /// Adds a rank's slice of the tensor of this name.
  Result<> add(std::vector<Sliced>& to, const std::string& key, Tensor tensor, std::uint64_t model_rank,
               RankSlice slice) {
    auto& index = &to == &weights_ ? weight_at_ : slot_at_;
    const auto [at, added] = index.emplace(key, to.size());
    if (added) {
      to.push_back({std::move(tensor), {}});
    } else if (const Tensor& other = to[at->second].tensor;
               other.dtype != tensor.dtype || other.true_dtype != tensor.true_dtype) {
      return fail(with_tensor(
          corrupt(files_.model_name(model_rank), key + ": another dtype than in the files of other ranks"), key));
    }
    Sliced& sliced = to[at->second];
    sliced.slices[stage_of(model_rank)].emplace(tensor_rank_of(model_rank), std::move(slice));
    return {};
  }

  Result<> read_optims() {
    std::optional<std::uint64_t> part_count;
    for (std::uint64_t m = 0; m < model_ranks_; ++m) {
      std::vector<OptimStates> ranks;
      for (std::uint64_t d = 0; d < part_count.value_or(1); ++d) {
        const std::vector<RankFile>& held = files_.optims[m];
        if (d >= held.size() || held[d].rank != d) return fail(missing(files_.optim_name(m, d)));
        CKPT_TRY(const StateFile file, set_.open(in_tag(held[d].name)));
        const std::uint64_t rank = m * part_count.value_or(1) + d;
        ObjectReader reader(file, rank_suffix(rank));
        CKPT_TRY(OptimStates states, read_optim_states(file, reader));
        if (states.stage == 3) {
          return fail(with_hint(file.error(Errc::unsupported,
                                           "this is ZeRO stage 3 of several model-parallel ranks: "
                                           "not yet readable"),
                                kWhatIsRead));
        }
        if (!part_count) {
          part_count = states.part_count;
          stage_ = states.stage;
        }
        const bool alike = std::all_of(states.part_counts.begin(), states.part_counts.end(),
                                       [&](std::uint64_t count) { return count == *part_count; });
        if (!alike || states.stage != stage_) {
          return fail(file.error(Errc::corrupt, "another stage or number of ranks than in " +
                                                    in_tag(files_.optim_name(0, 0)) +
                                                    ": the files are of different saves"));
        }
        std::vector<std::vector<std::string>> names;
        for (const GroupShapes& group : *models_[m].param_shapes) {
          std::vector<std::string>& members = names.emplace_back();
          for (const NamedShape& shape : group) members.push_back(shape.name);
        }
        CKPT_TRY(auto objects, group_objects(states, &names));
        std::move(states.objects.begin(), states.objects.end(), std::back_inserter(objects));
        states.objects.clear();
        states.hyper_groups.clear();
        objects_.keep(file, rank, reader, KeptObjects::Of::optimizer, std::move(objects));
        ranks.push_back(std::move(states));
      }
      if (files_.optims[m].size() > *part_count) {
        return fail(corrupt(files_.optims[m].back().name, "belongs to a save with more than " +
                                                              std::to_string(*part_count) + " data-parallel ranks"));
      }
      CKPT_TRY(const auto parameters, lay_out_flat_groups(builder_, models_[m], ranks));
      for (const FlatParameter& parameter : parameters) {
        const auto& [name, shape, elements] = *parameter.shape;
        for (const FlatParameter::Slot& slot : parameter.slots) {
          Tensor tensor = slot_tensor(name, slot.name, slot.dtype, shape);
          const std::string key = tensor.name;
          CKPT_CHECK(add(slots_, key, std::move(tensor), m, {shape, slot.place}));
        }
      }
    }
    return {};
  }

  /// Files of layers call a tensor as the layer does; the optimizer says how the pipeline calls it.
  Result<> read_layers() {
    collect_shapes();
    for (const LayerFile& layer : files_.layers) {
      if (layer.tensor_rank >= tensor_ranks_) {
        return fail(corrupt(layer.name, "belongs to a save with more than " + std::to_string(tensor_ranks_) +
                                            " tensor-parallel ranks"));
      }
      CKPT_TRY(const StateFile file, set_.open(in_tag(layer.name)));
      CKPT_TRY(const auto entries, file.named_entries(file.root(), "layer"));
      std::vector<NamedTensor> tensors;
      for (const auto& [name, node] : entries) {
        CKPT_TRY(auto tensor, file.tensor(node, name));
        if (!tensor) {
          return fail(with_tensor(file.error(Errc::unsupported, name + ": no tensor: not yet readable"), name));
        }
        tensors.push_back({name, *std::move(tensor)});
      }
      const std::string number = std::to_string(layer.layer) + ".";
      const std::string prefix = prefix_of(number, tensors);
      for (NamedTensor& entry : tensors) {
        entry.name = prefix + entry.name;
        const auto stages = trained_.find(entry.name);
        // Any stage serves for what the optimizer does not have: a layer stands once.
        const std::uint64_t stage = stages == trained_.end() ? 0 : *stages->second.begin();
        const Role role = buffers_.count(entry.name) ? Role::buffer : Role::param;
        CKPT_CHECK(add(weights_, entry.name, tensor_of(entry, role), stage * tensor_ranks_ + layer.tensor_rank,
                       {entry.tensor.type.shape, entry.tensor.where}));
      }
    }
    return {};
  }

  /// "3." or "tied_modules.embed.": the tied layer of which all tensors have these names and shapes, where there is one
  /// such. Where there are several nothing tells which: the number stays, and check_weights() misses the tied name.
  std::string prefix_of(const std::string& number, const std::vector<NamedTensor>& tensors) const {
    for (const NamedTensor& entry : tensors) {
      if (trained_.count(number + entry.name) != 0) return number;
    }
    std::vector<std::string> fitting;
    for (const std::string& key : tied_keys_) {
      const bool fits = !tensors.empty() && std::all_of(tensors.begin(), tensors.end(), [&](const NamedTensor& entry) {
        const Shape* shape = shape_of(key + entry.name);
        return shape != nullptr && *shape == entry.tensor.type.shape;
      });
      if (fits) fitting.push_back(key);
    }
    return fitting.size() == 1 ? fitting.front() : number;
  }

  const Shape* shape_of(const std::string& parameter) const {
    const auto at = shapes_.find(parameter);
    return at == shapes_.end() ? nullptr : at->second;
  }

  void collect_shapes() {
    for (const ModelStates& model : models_) {
      for (const GroupShapes& group : *model.param_shapes) {
        for (const NamedShape& shape : group) {
          shapes_.emplace(shape.name, &shape.shape);
          const std::size_t dot =
              shape.name.starts_with(kTied) ? shape.name.find('.', kTied.size()) : std::string::npos;
          if (dot != std::string::npos) tied_keys_.insert(shape.name.substr(0, dot + 1));
        }
      }
    }
  }

  /// Every parameter that the optimizer has must have a weight: its layer's file is there.
  Result<> check_weights() {
    for (const auto& [name, stages] : trained_) {
      const auto at = weight_at_.find(name);
      if (at != weight_at_.end()) continue;
      if (!models_.front().module.empty()) {  // no pipeline
        builder_.find(Severity::warning, name + ": the optimizer has a master for it, the module has no weight", {},
                      name);
        continue;
      }
      const std::string layer = name.substr(0, name.find('.'));
      const bool numbered = !layer.empty() && layer.find_first_not_of("0123456789") == std::string::npos;
      Error error = numbered ? missing("layer_" + std::string(layer.size() < 2 ? "0" : "") + layer +
                                       (tensor_ranks_ > 1 ? "-model_00-model_states.pt" : "-model_states.pt"))
                             : Error{.code = Errc::incomplete,
                                     .message = name + ": no file of a layer holds its weight, or nothing tells which",
                                     .file = in_tag(files_.model_name(0)),
                                     .hint =
                                         "each rank writes its own file: copy the missing ones from the nodes that "
                                         "wrote them"};
      return fail(with_tensor(std::move(error), name));
    }
    return {};
  }

  Result<> place(std::vector<Sliced>& all) {
    for (Sliced& sliced : all) {
      if (tensor_ranks_ > 1 && sliced.tensor.role != Role::slot && trained_.count(sliced.tensor.name) == 0) {
        CKPT_CHECK(place_without_rule(sliced));
        continue;
      }
      const std::string& name = sliced.tensor.parameter.empty() ? sliced.tensor.name : sliced.tensor.parameter;
      Assembled whole;
      for (const auto& [stage, ranks] : sliced.slices) {
        CKPT_TRY(Assembled part, assemble(name, stage, ranks));
        if (whole.pieces.empty()) {
          whole = std::move(part);
          continue;
        }
        if (!name.starts_with(kTied)) {
          return fail(with_hint(
              with_tensor({.code = Errc::unsupported,
                           .message = name + ": stands in several stages of the pipeline, and is not tied: which one "
                                             "counts is not known"},
                          name),
              kWhatIsRead));
        }
        bool same = part.shape == whole.shape && part.pieces.size() == whole.pieces.size();
        for (std::size_t i = 0; same && i < part.pieces.size(); ++i) {
          same = part.pieces[i].box == whole.pieces[i].box;
          if (same) whole.pieces[i].copies.push_back(part.pieces[i].copies.front());
        }
        if (!same) {
          return fail(with_tensor(
              {.code = Errc::corrupt, .message = name + ": tied, but cut differently in two stages of the pipeline"},
              name));
        }
      }
      // Slices are kept: a name that is tied to this one is known by them.
      sliced.tensor.shape = std::move(whole.shape);
      CKPT_CHECK(builder_.add_pieces(sliced.tensor, std::move(whole.pieces)));
    }
    return {};
  }

  /// What the optimizer does not have (buffers, frozen weights) no rule speaks of: it is kept once a rank, unless it is
  /// another name of a weight.
  Result<> place_without_rule(const Sliced& sliced) {
    const std::string& name = sliced.tensor.name;
    for (const auto& [alias, target] : models_.front().shared) {
      const auto at = weight_at_.find(target);
      if (alias != name || at == weight_at_.end() || trained_.count(target) == 0) continue;
      if (!same_places(sliced.slices, weights_[at->second].slices)) continue;
      builder_.add_alias(name, target);
      return {};
    }
    for (const auto& [stage, ranks] : sliced.slices) {
      for (const auto& [tensor_rank, slice] : ranks) {
        Tensor tensor = sliced.tensor;
        tensor.name += "@" + std::to_string(stage * tensor_ranks_ + tensor_rank);
        tensor.shape = slice.shape;
        CKPT_CHECK(builder_.add_whole(std::move(tensor), std::get<Locator>(slice.place)));
      }
    }
    builder_.find(
        Severity::warning,
        name + ": no rule of universal_checkpoint_info says how tensor-parallel ranks cut it: kept once a rank, as " +
            name + "@RANK",
        {}, name);
    return {};
  }

  static bool same_places(const Slices& a, const Slices& b) {
    const auto same_slice = [](const auto& left, const auto& right) {
      const auto& one = std::get<Locator>(left.second.place);
      const auto& other = std::get<Locator>(right.second.place);
      return left.first == right.first && left.second.shape == right.second.shape && one.file == other.file &&
             one.offset == other.offset && one.strides == other.strides;
    };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const auto& left, const auto& right) {
      return left.first == right.first &&
             std::equal(left.second.begin(), left.second.end(), right.second.begin(), right.second.end(), same_slice);
    });
  }

  Result<Assembled> assemble(const std::string& name, std::uint64_t stage,
                             const std::map<std::uint64_t, RankSlice>& ranks) const {
    std::vector<RankSlice> slices;
    for (std::uint64_t t = 0; t < tensor_ranks_; ++t) {
      const auto at = ranks.find(t);
      if (at == ranks.end()) {
        return fail(with_tensor(
            {.code = Errc::incomplete,
             .message = name + ": the slice of tensor-parallel rank " + std::to_string(t) + " is in no file",
             .file = in_tag(files_.model_name(stage * tensor_ranks_ + t))},
            name));
      }
      slices.push_back(at->second);
    }
    auto whole = stage_rules_.at(stage).assemble(name, slices);
    if (!whole) {
      return fail(
          with_tensor(with_file(std::move(whole).error(), in_tag(files_.model_name(stage * tensor_ranks_))), name));
    }
    return whole;
  }

  Result<Map> finish() {
    CKPT_CHECK(objects_.finish());
    Map map = builder_.take();
    map.format = "deepspeed";
    const std::uint64_t stages = model_ranks_ / tensor_ranks_;
    map.variant = "zero-" + std::to_string(stage_) + ", " + std::to_string(stages) + " pipeline stages of " +
                  std::to_string(tensor_ranks_) + " tensor-parallel ranks";
    map.chosen = tag_.chosen;
    const std::uint64_t data_parallel = facts_.data_parallel.value_or(1);
    map.meta.step = facts_.global_steps;
    CKPT_TRY(map.meta.world_size, checked_mul(data_parallel, model_ranks_));
    map.meta.mesh = {{"dp", data_parallel}, {"tp", tensor_ranks_}, {"pp", stages}, {"zero", stage_}};
    map.meta.framework = "deepspeed";
    map.meta.framework_version = facts_.version;
    map.metadata_hash = set_.metadata_hash();
    return map;
  }

  const Tag& tag_;
  MapBuilder builder_{};
  FileSet set_;
  KeptObjects objects_{builder_};
  ModelParallelFiles files_{};
  RunFacts facts_{};
  SliceRules rules_{};
  std::map<std::uint64_t, SliceRules> stage_rules_{};  // by pipeline stage
  std::uint64_t model_ranks_ = 1;
  std::uint64_t tensor_ranks_ = 1;
  std::uint64_t stage_ = 0;
  std::vector<ModelStates> models_{};
  std::unordered_map<std::string, std::set<std::uint64_t>> trained_{};  // the stages whose optimizers have a parameter
  std::unordered_map<std::string, const Shape*> shapes_{};              // of models_
  std::set<std::string> tied_keys_{};                                   // "tied_modules.embed."
  std::set<std::string> buffers_{};
  std::vector<Sliced> weights_{};
  std::vector<Sliced> slots_{};
  std::unordered_map<std::string, std::size_t> weight_at_{};
  std::unordered_map<std::string, std::size_t> slot_at_{};
};

}  // namespace

Result<Map> read_model_parallel(Io& io, const std::string& root, const Tag& tag, const ReadOptions& options) {
  return ModelParallelReader(io, root, tag, options).read();
}

}  // namespace ckpt::deepspeed
