#include "convert/deepspeed/model_parallel/model_parallel.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "convert/deepspeed/files/file_set.hpp"
#include "convert/deepspeed/files/kept_objects.hpp"
#include "convert/deepspeed/files/model_parallel_files.hpp"
#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/files/optim_states.hpp"
#include "convert/deepspeed/model_parallel/layer_names.hpp"
#include "convert/deepspeed/model_parallel/pipeline_layers.hpp"
#include "convert/deepspeed/model_parallel/rank_experts.hpp"
#include "convert/deepspeed/model_parallel/slice_rules.hpp"
#include "convert/deepspeed/model_parallel/sliced_tensors.hpp"
#include "convert/deepspeed/stages/flat_groups.hpp"
#include "convert/deepspeed/stages/partitioned_params.hpp"
#include "convert/deepspeed/stages/whole_optimizer.hpp"
#include "format/checked.hpp"

namespace ckpt::deepspeed {
namespace {

class ModelParallelReader {
 public:
  ModelParallelReader(Io& io, std::string root, const Tag& tag, const ReadOptions& options)
      : tag_(tag), set_(io, std::move(root), options, builder_), weights_alone_(options.weights_alone) {
    apart_ = options.ranks_apart;
  }

  Result<Map> read() {
    auto sorted = sort_model_parallel_files(tag_.entries);
    if (!sorted) {
      Error error = std::move(sorted).error();
      error.file = in_tag(error.file);
      return fail(std::move(error));
    }
    files_ = *std::move(sorted);
    CKPT_CHECK(learn_what_must_exist());
    CKPT_TRY(layers_, PipelineLayers::read(set_, tag_, files_.layers, mesh_.tensor_ranks));
    CKPT_CHECK(divide_pipeline());
    CKPT_CHECK(read_models());
    CKPT_CHECK(read_optims());
    CKPT_CHECK(add_layers());
    CKPT_CHECK(check_weights());
    CKPT_CHECK(apart_ ? place_apart() : place_joined());
    return finish();
  }

 private:
  std::string in_tag(const std::string& name) const { return path_in(tag_, name); }
  /// or_else  what else helps
  Error missing(const std::string& name, const std::string& or_else = {}) const {
    return {.code = Errc::incomplete,
            .message = in_tag(name) + ": the file is missing",
            .file = in_tag(name),
            .hint = "each rank writes its own file: copy the missing ones from the nodes that wrote them" + or_else};
  }
  Error corrupt(const std::string& name, const std::string& what) const {
    return {.code = Errc::corrupt, .message = in_tag(name) + ": " + what, .file = in_tag(name)};
  }

  std::uint64_t stage_of(std::uint64_t model_rank) const { return model_rank / mesh_.tensor_ranks; }
  ModelRank rank_of(std::uint64_t model_rank) const { return {stage_of(model_rank), model_rank % mesh_.tensor_ranks}; }
  /// Whose objects a file's are: those of model-parallel ranks alone where they stay apart.
  std::optional<std::uint64_t> object_rank(std::uint64_t m, std::uint64_t d, std::uint64_t part_count) const {
    if (!apart_) return m * part_count + d;
    return d == 0 ? std::optional(m) : std::nullopt;
  }
  /// The model file of a rank; in stage 3 that of its first data-parallel rank.
  std::string model_name(std::uint64_t model_rank) const {
    return per_rank_ ? files_.rank_model_name(model_rank, 0) : files_.model_name(model_rank);
  }
  bool has_model(std::uint64_t model_rank) const {
    if (!per_rank_) return files_.models.count(model_rank) != 0;
    const auto at = files_.rank_models.find(model_rank);
    return at != files_.rank_models.end() && at->second.front().rank == 0;
  }

  /// The first rank's files contain the number of ranks.
  Result<> learn_what_must_exist() {
    per_rank_ = files_.models.empty() && !files_.rank_models.empty();
    if (!per_rank_ && !files_.rank_models.empty()) {
      return fail(corrupt(files_.rank_models.begin()->second.front().name,
                          "of ZeRO stage 3, beside " + files_.models.begin()->second + ": the files are of two saves"));
    }
    if (!has_model(0)) return fail(missing(model_name(0)));
    CKPT_TRY(const StateFile file, set_.open(in_tag(model_name(0))));
    CKPT_TRY(facts_, read_facts(file));
    CKPT_TRY(rules_, SliceRules::read(file, set_.user_rules()));
    const std::uint64_t last = per_rank_ ? files_.rank_models.rbegin()->first : files_.models.rbegin()->first;
    CKPT_TRY(mesh_, read_mesh(file, facts_, last, files_.layers));
    for (std::uint64_t m = 0; m < mesh_.model_ranks; ++m) {
      if (!has_model(m)) return fail(missing(model_name(m)));
    }
    if (last >= mesh_.model_ranks) {
      return fail(
          corrupt(per_rank_ ? files_.rank_models.at(last).front().name : files_.models.at(last),
                  "belongs to a save with more than " + std::to_string(mesh_.model_ranks) + " model-parallel ranks"));
    }
    const bool has_zero = file.find(file.root(), "param_shapes") != pickle::kNone;
    if (files_.optims.empty() && has_zero) {
      if (facts_.optim_prefix == "bf16_") files_.optim_prefix = "bf16_";
      without_optimizer_ = weights_alone_ && !per_rank_;
      if (!without_optimizer_) return fail(missing(files_.optim_name(0, 0), per_rank_ ? "" : kOrWeightsAlone));
      builder_.find(Severity::note, kWithoutOptimizer);
    }
    const bool has_module = file.find(file.root(), "module") != pickle::kNone;
    unnamed_pipeline_ = !has_zero && !has_module;
    if (!per_rank_ && !files_.optims.empty() && unnamed_pipeline_ && files_.optims.rbegin()->first < mesh_.model_ranks)
      return {};  // BF16_Optimizer, which a pipeline in bf16 has without ZeRO
    if (!files_.optims.empty() && !files_.experts.empty() && !has_zero) {
      return fail(file.error(Errc::unsupported,
                             "a pipeline with experts in bf16 without ZeRO (BF16_Optimizer): not "
                             "yet readable, and DeepSpeed itself does not load it"));
    }
    if (!files_.optims.empty() && (!has_zero || files_.optims.rbegin()->first >= mesh_.model_ranks)) {
      return fail(corrupt(
          files_.optims.rbegin()->second.front().name,
          has_zero ? "belongs to a save with more than " + std::to_string(mesh_.model_ranks) + " model-parallel ranks"
                   : "of a save with ZeRO, beside model files of one without"));
    }
    return {};
  }

  /// A pipeline without ZeRO: no file lists the parameters that a stage trains.
  Result<> divide_pipeline() {
    if (!unnamed_pipeline_) return {};
    if (!files_.optims.empty()) {
      for (std::uint64_t m = 0; m < mesh_.model_ranks; ++m) CKPT_CHECK(read_fragment_shapes(m));
      return {};
    }
    std::vector<std::vector<UnnamedGroup>> groups;
    std::unordered_set<std::string> buffers;
    for (std::uint64_t m = 0; m < mesh_.model_ranks; m += mesh_.tensor_ranks) {
      CKPT_TRY(const StateFile file, reopen(in_tag(model_name(m))));
      CKPT_TRY(const ModelStates model, read_model_states(file, ModelRanks::several));
      buffers.insert(model.buffer_names.begin(), model.buffer_names.end());
      CKPT_TRY(auto unnamed, read_unnamed_groups(file));
      groups.push_back(std::move(unnamed));
    }
    const bool has_optimizer = std::ranges::any_of(groups, [](const auto& stage) { return !stage.empty(); });
    if (!has_optimizer) return {};
    for (std::uint64_t t = 0; t < mesh_.tensor_ranks; ++t) {
      auto modules = layers_.stage_modules(buffers, groups, t);
      if (!modules && t == 0) {
        const std::string name = model_name(0);
        return fail(with_hint(
            {.code = Errc::unsupported,
             .message = in_tag(name) + ": a pipeline without ZeRO stores no parameter names, and the sizes of its "
                                       "layers do not tell which stage trains which",
             .file = in_tag(name)},
            "check that no layer_*-model_states.pt is missing; ZeRO stage 1 stores names"));
      }
      if (!modules) return fail(corrupt(files_.layers.front().name, "layers differ between tensor-parallel ranks"));
      stage_modules_.push_back(*std::move(modules));
    }
    std::unordered_set<std::string> trained;
    for (const auto& stage : stage_modules_.front()) {
      for (const NamedTensor& entry : stage) {
        if (!trained.insert(entry.name).second) mesh_.tied.insert(entry.name);
      }
    }
    for (const std::string& name : std::set(mesh_.tied.begin(), mesh_.tied.end())) {
      builder_.find(Severity::note, name + ": several stages train it (a tied layer), and no file stores the tie's key",
                    {}, name);
    }
    return {};
  }

  /// BF16_Optimizer without ZeRO: each rank's file lists its fragments of named parameters.
  Result<> read_fragment_shapes(std::uint64_t m) {
    std::vector<OptimStates> ranks;
    for (std::uint64_t d = 0, count = 1; d < count; ++d) {
      const std::vector<RankFile>& held = files_.optims[m];
      if (d >= held.size() || held[d].rank != d) return fail(missing(files_.optim_name(m, d)));
      CKPT_TRY(const StateFile file, reopen(in_tag(held[d].name)));
      ObjectReader reader(file);
      CKPT_TRY(OptimStates states, read_optim_states(file, reader));
      count = std::max<std::uint64_t>(states.part_count, 1);
      ranks.push_back(std::move(states));
    }
    CKPT_TRY(auto shapes, layers_.shapes_from_fragments(ranks, rank_of(m).tensor_rank));
    fragment_shapes_.push_back(std::move(shapes));
    return {};
  }

  Result<> read_models() {
    for (std::uint64_t m = 0; m < mesh_.model_ranks; ++m) {
      const std::string name = in_tag(model_name(m));
      CKPT_TRY(const StateFile file, m == 0 ? reopen(name) : set_.open(name));
      CKPT_TRY(ModelStates model, read_model_states(file, ModelRanks::several));
      CKPT_CHECK(read_experts(m, file, model));
      CKPT_TRY(const SliceRules rules, SliceRules::read(file, set_.user_rules()));
      CKPT_CHECK(check_same_steps(file, model.facts, facts_));
      if (model.facts != facts_) {
        return fail(file.error(Errc::corrupt,
                               "counters or degrees differ from those of rank 0: the files are of "
                               "different saves"));
      }
      if (!(rules == rules_) && stage_of(m) == 0) {
        return fail(file.error(Errc::corrupt, "universal_checkpoint_info differs from that of rank 0"));
      }
      mesh_.rules.emplace(stage_of(m), rules);
      mesh_.rule_files.emplace(stage_of(m), name);
      for (const NamedTensor& entry : model.module) {
        if (per_rank_) break;  // placeholders: the masters are the weights
        Tensor tensor = module_tensor(entry, model.buffer_names.count(entry.name) != 0);
        CKPT_CHECK(weights_.add(name, std::move(tensor), rank_of(m), {entry.tensor.type.shape, {entry.tensor.where}}));
      }
      for (const auto& name_of_buffer : model.buffer_names) buffers_.insert(name_of_buffer);
      ObjectReader reader(file, rank_suffix(m));
      CKPT_TRY(auto objects, model_objects(file, reader));
      CKPT_CHECK(module_objects(model, reader, objects));
      if (!fragment_shapes_.empty()) model.param_shapes = std::move(fragment_shapes_[m]);
      if (model.param_shapes) {
        for (const GroupShapes& group : *model.param_shapes) {
          for (const NamedShape& shape : group) trained_[shape.name].insert(stage_of(m));
        }
      } else {
        CKPT_CHECK(read_whole_optimizer(m, model, file, reader, objects));
        model.param_shapes.emplace();
      }
      objects_.keep(file, m, reader, KeptObjects::Of::model, std::move(objects));
      model.module_objects.clear();
      models_.push_back(std::move(model));
    }
    return {};
  }

  /// A rank's experts join its module. Each stage counts its own layers of them.
  Result<> read_experts(std::uint64_t m, const StateFile& file, ModelStates& model) {
    if (per_rank_) return refuse_experts(file, model);
    const bool whole_optimizer = !model.param_shapes && files_.optims.empty();
    const RankExperts& mine = experts_.emplace_back(files_, m, mesh_.tensor_ranks, model.num_experts);
    CKPT_CHECK(mine.check_files(tag_, whole_optimizer));
    if (model.num_experts.empty()) return {};
    if (apart_) CKPT_CHECK(mine.check_apart(file, whole_optimizer));
    if (mine.cut() == ExpertCut::whole) mesh_.whole_experts.insert(stage_of(m));
    return add_experts(set_, tag_, mine.files(), mine.share(), model);
  }

  /// Stage 0: the optimizer is in the model file, or in one for each expert-parallel rank, and stores no names.
  Result<> read_whole_optimizer(std::uint64_t m, const ModelStates& model, const StateFile& file, ObjectReader& reader,
                                std::vector<NamedObject>& objects) {
    const AddSlot add = [&](Tensor tensor, Locator where) -> Result<> {
      trained_[tensor.parameter].insert(stage_of(m));
      const Shape shape = tensor.shape;
      return slots_.add(file.path(), std::move(tensor), rank_of(m), {shape, {std::move(where)}});
    };
    if (!model.num_experts.empty()) return read_expert_optimizers(m, model, add);
    if (stage_modules_.empty()) {
      return place_whole_optimizer(builder_, model, file, reader, objects, add, Unnamed::refuse);
    }
    ModelStates trained;
    trained.module = stage_modules_[rank_of(m).tensor_rank][stage_of(m)];
    return place_whole_optimizer(builder_, trained, file, reader, objects, add, Unnamed::refuse);
  }

  Result<> read_expert_optimizers(std::uint64_t m, const ModelStates& model, const AddSlot& add) {
    const RankExperts& experts = experts_[m];
    for (const RankFile& optim : experts.optims()) {
      CKPT_TRY(const StateFile file, set_.open(in_tag(optim.name)));
      CKPT_CHECK(check_expert_ranks(file, m, experts.expert_ranks()));
      CKPT_TRY(const ModelStates mine, model_of_expert_rank(model, optim.rank, experts.expert_ranks()));
      const std::uint64_t rank = m * experts.optims().size() + optim.rank / experts.share().stride;
      ObjectReader reader(file, rank_suffix(rank));
      std::vector<NamedObject> objects;
      CKPT_CHECK(place_whole_optimizer(builder_, mine, file, reader, objects, add, Unnamed::refuse));
      objects_.keep(file, rank, reader, KeptObjects::Of::optimizer, std::move(objects));
    }
    return {};
  }

  /// A file that the set knows already.
  Result<StateFile> reopen(const std::string& name) const {
    return StateFile::open(set_.io(), set_.root(), name, 0, {});
  }

  Result<> read_optims() {
    std::optional<std::uint64_t> part_count;
    for (std::uint64_t m = 0; m < mesh_.model_ranks && !files_.optims.empty(); ++m) {
      std::vector<OptimStates> ranks;
      std::vector<FrozenParts> frozen;
      for (std::uint64_t d = 0; d < part_count.value_or(1); ++d) {
        CKPT_TRY(OptimStates states, read_optim(m, d, part_count));
        ranks.push_back(std::move(states));
        if (!per_rank_) continue;
        CKPT_TRY(FrozenParts parts, read_frozen(m, d, *part_count));
        frozen.push_back(std::move(parts));
      }
      for (const auto* files : {&files_.optims[m], &files_.rank_models[m]}) {
        if (files->size() <= *part_count) continue;
        return fail(corrupt(files->back().name, "belongs to a save with more than " + std::to_string(*part_count) +
                                                    " data-parallel ranks"));
      }
      CKPT_CHECK(per_rank_ ? add_partitioned(m, ranks, frozen) : add_flat_groups(m, ranks));
    }
    return {};
  }

  /// `part_count` is learnt from the first file.
  Result<OptimStates> read_optim(std::uint64_t m, std::uint64_t d, std::optional<std::uint64_t>& part_count) {
    const std::vector<RankFile>& held = files_.optims[m];
    if (d >= held.size() || held[d].rank != d) return fail(missing(files_.optim_name(m, d)));
    CKPT_TRY(const StateFile file, set_.open(in_tag(held[d].name)));
    const auto rank = object_rank(m, d, part_count.value_or(1));
    ObjectReader reader(file, rank_suffix(rank.value_or(0)));
    CKPT_TRY(OptimStates states, read_optim_states(file, reader));
    if ((states.stage == 3) != per_rank_) {
      return fail(file.error(Errc::corrupt, "of ZeRO stage " + std::to_string(states.stage) +
                                                ", beside model files of " + (per_rank_ ? "stage 3" : "another stage") +
                                                ": the files are of different saves"));
    }
    if (!part_count) {
      part_count =
          models_[m].expert_groups.empty() ? states.part_count : facts_.data_parallel.value_or(states.part_count);
      stage_ = states.stage;
    }
    if (order_groups(models_[m], *part_count, states)) ++reordered_ranks_;
    const bool alike = check_part_counts(models_[m], states.part_counts, *part_count).empty();
    if (!alike || states.stage != stage_) {
      return fail(file.error(Errc::corrupt, "another stage or number of ranks than in " +
                                                in_tag(files_.optim_name(0, 0)) +
                                                ": the files are of different saves"));
    }
    for (const GroupState& group : states.groups) {
      if (group.swapped.empty()) continue;
      return fail(with_hint(file.error(Errc::unsupported,
                                       "state that several model-parallel ranks swapped to NVMe: nothing in the files "
                                       "says which rank's folder is which: not readable"),
                            kWhatIsRead));
    }
    const bool dealt = facts_.round_robin && !per_rank_ && !states.padding_kept;
    if (d == 0) names_ = group_names(models_[m], dealt ? *part_count : 0);
    CKPT_TRY(auto objects, group_objects(states, &names_));
    std::move(states.objects.begin(), states.objects.end(), std::back_inserter(objects));
    states.objects.clear();
    states.hyper_groups.clear();
    if (rank) objects_.keep(file, *rank, reader, KeptObjects::Of::optimizer, std::move(objects));
    return states;
  }

  /// Stage 3: every data-parallel rank has a model file, with its parts of frozen weights.
  Result<FrozenParts> read_frozen(std::uint64_t m, std::uint64_t d, std::uint64_t part_count) {
    const ModelStates& model = models_[m];
    if (d == 0) return frozen_parts(model.path, model.frozen, model.frozen_fragments, part_count);
    const std::vector<RankFile>& held = files_.rank_models[m];
    if (d >= held.size() || held[d].rank != d) return fail(missing(files_.rank_model_name(m, d)));
    CKPT_TRY(const StateFile file, set_.open(in_tag(held[d].name)));
    CKPT_TRY(const RunFacts facts, read_facts(file));
    if (facts != facts_) {
      return fail(file.error(Errc::corrupt,
                             "counters or degrees differ from those of rank 0: the files are of different saves"));
    }
    CKPT_TRY(const auto fragments, read_fragments(file));
    if (const auto rank = object_rank(m, d, part_count)) {
      ObjectReader reader(file, rank_suffix(*rank));
      CKPT_TRY(auto objects, model_objects(file, reader));
      objects_.keep(file, *rank, reader, KeptObjects::Of::model, std::move(objects));
    }
    return frozen_parts(file.path(), model.frozen, fragments, part_count);
  }

  Result<> add_flat_groups(std::uint64_t m, const std::vector<OptimStates>& ranks) {
    CKPT_TRY(const auto parameters, lay_out_flat_groups(builder_, models_[m], ranks));
    for (const FlatParameter& parameter : parameters) {
      const auto& [name, shape, elements] = *parameter.shape;
      for (const FlatParameter::Slot& slot : parameter.slots) {
        CKPT_CHECK(slots_.add(in_tag(files_.optim_name(m, 0)), slot_tensor(name, slot.name, slot.dtype, shape),
                              rank_of(m), {shape, slot.copies}));
      }
    }
    return {};
  }

  Result<> add_partitioned(std::uint64_t m, const std::vector<OptimStates>& ranks,
                           const std::vector<FrozenParts>& frozen) {
    CKPT_TRY(PartitionedModel laid_out, lay_out_partitioned(builder_, models_[m], ranks, frozen));
    const auto add = [&](SlicedTensors& to, PartitionedTensor& entry) {
      RankSlice slice{.shape = entry.tensor.shape};
      if (auto* where = std::get_if<Locator>(&entry.place)) {
        slice.copies.emplace_back(std::move(*where));
      } else {
        slice.copies.emplace_back(PartitionIndex::InPartition{std::get<PartitionIndex::Partitioned>(entry.place), 0});
      }
      return to.add(in_tag(model_name(m)), std::move(entry.tensor), rank_of(m), std::move(slice));
    };
    for (PartitionedTensor& weight : laid_out.weights) {
      if (weight.is_master_cast) cast_.insert(weight.tensor.name);
      CKPT_CHECK(add(weights_, weight));
    }
    for (PartitionedTensor& slot : laid_out.slots) CKPT_CHECK(add(slots_, slot));
    if (m == 0) aliases_ = std::move(laid_out.aliases);
    return {};
  }

  /// Files of layers use the layer's names of tensors; the optimizer has those of the pipeline.
  Result<> add_layers() {
    for (const ModelStates& model : models_) layer_names_.add(model);
    for (const PipelineLayers::Layer& layer : layers_.all()) {
      if (per_rank_) {
        return fail({.code = Errc::corrupt,
                     .message = layer.path + ": a layer of a pipeline, beside model files of ZeRO stage 3",
                     .file = layer.path});
      }
      const std::string prefix = layer_names_.prefix_of(std::to_string(layer.number) + ".", layer.tensors);
      for (NamedTensor entry : layer.tensors) {
        entry.name = prefix + entry.name;
        const auto stages = trained_.find(entry.name);
        // Any stage will do for tensors that the optimizer does not have: each layer is stored once.
        const std::uint64_t stage = stages == trained_.end() ? 0 : *stages->second.begin();
        CKPT_CHECK(weights_.add(layer.path, module_tensor(entry, buffers_.count(entry.name) != 0),
                                {stage, layer.tensor_rank}, {entry.tensor.type.shape, {entry.tensor.where}}));
      }
    }
    return {};
  }

  /// Every parameter that the optimizer has must have a weight: its layer's file is there.
  Result<> check_weights() {
    for (const auto& [name, stages] : trained_) {
      if (weights_.find(name) != nullptr) continue;
      if (!models_.front().module.empty()) {  // no pipeline
        builder_.find(Severity::warning, name + ": the optimizer has a master for it, the module has no weight", {},
                      name);
        continue;
      }
      const auto layer = split_layer_name(name);
      const std::string file = layer ? layers_.path_of(layer->first, 0) : in_tag(files_.model_name(0));
      return fail({.code = Errc::incomplete,
                   .message = layer ? file + ": the file is missing"
                                    : name + ": no file of a layer holds its weight, or nothing tells which",
                   .file = file,
                   .tensor = name,
                   .hint = "each rank writes its own file: copy the missing ones from the nodes that wrote them"});
    }
    return {};
  }

  /// Every rank's slices for themselves.
  Result<> place_apart() {
    apart_->tensor_ranks = mesh_.tensor_ranks;
    apart_->ranks.resize(mesh_.model_ranks);
    const auto weight_placed = [&](const Tensor& tensor, std::uint64_t rank) {
      if (cast_.count(tensor.name)) cast_at_.emplace(ranked_name(tensor.name, rank), builder_.tensor_count() - 1);
    };
    const SlicedTensors::Ties ties{models_.front().shared, aliases_};
    CKPT_CHECK(layers_.empty() ? weights_.place_apart(builder_, mesh_, ties, *apart_, weight_placed)
                               : place_layers_apart());
    return slots_.place_apart(builder_, mesh_, {}, *apart_, [&](const Tensor& tensor, std::uint64_t rank) {
      const auto weight =
          tensor.slot == kMasterSlot ? cast_at_.find(ranked_name(tensor.parameter, rank)) : cast_at_.end();
      if (weight != cast_at_.end()) builder_.add_derived(weight->second);
    });
  }

  /// A layer's file belongs to a tensor-parallel rank, and what it holds to the stages that know it.
  Result<> place_layers_apart() {
    std::set<std::pair<std::uint64_t, std::string>> held;
    for (const PipelineLayers::Layer& layer : layers_.all()) {
      const auto file = std::ranges::find_if(files_.layers, [&](const LayerFile& entry) {
        return entry.layer == layer.number && entry.tensor_rank == layer.tensor_rank;
      });
      HeldLayer& out = apart_->layers.emplace_back(HeldLayer{.file = file->name});
      const std::string number = std::to_string(layer.number) + ".";
      const std::string prefix = layer_names_.prefix_of(number, layer.tensors);
      for (const NamedTensor& entry : layer.tensors) {
        const auto index = static_cast<std::uint32_t>(builder_.tensor_count());
        const std::string name = prefix + entry.name;
        Tensor tensor = module_tensor(entry, buffers_.count(name) != 0);
        tensor.name = ranked_name(number + entry.name, layer.tensor_rank);
        CKPT_CHECK(builder_.add_whole(std::move(tensor), entry.tensor.where));
        out.tensors.push_back({index, entry.name});
        for (std::uint64_t m = layer.tensor_rank; m < mesh_.model_ranks; m += mesh_.tensor_ranks) {
          if (knows(m, name) && held.emplace(m, name).second) apart_->ranks[m].push_back({index, name});
        }
      }
    }
    return {};
  }

  bool knows(std::uint64_t model_rank, const std::string& name) const {
    const auto stages = trained_.find(name);
    const ModelStates& model = models_[model_rank];
    return (stages != trained_.end() && stages->second.count(stage_of(model_rank)) != 0) ||
           model.buffer_names.count(name) != 0 ||
           std::ranges::any_of(model.frozen, [&](const NamedShape& frozen) { return frozen.name == name; });
  }

  Result<> place_joined() {
    const auto ruled = [&](const std::string& name) {
      return mesh_.tensor_ranks == 1 || trained_.count(name) != 0 || rules_.user_join(name).has_value();
    };
    for (const SlicedTensors::Entry& entry : weights_.entries()) {
      const std::string& name = entry.tensor.name;
      if (!ruled(name)) {
        CKPT_CHECK(weights_.place_unruled(builder_, entry, mesh_, models_.front().shared, ruled));
        continue;
      }
      CKPT_CHECK(SlicedTensors::place(builder_, entry, mesh_));
      if (cast_.count(name)) cast_at_.emplace(name, builder_.tensor_count() - 1);
    }
    for (const Alias& alias : aliases_) {
      if (weights_.find(alias.target) != nullptr) builder_.add_alias(alias.name, alias.target);
    }
    if (!cast_at_.empty()) note_cast_weights(builder_);
    return place_slots();
  }

  Result<> place_slots() {
    for (const SlicedTensors::Entry& entry : slots_.entries()) {
      CKPT_CHECK(SlicedTensors::place(builder_, entry, mesh_));
      const auto weight = entry.tensor.slot == kMasterSlot ? cast_at_.find(entry.tensor.parameter) : cast_at_.end();
      if (weight != cast_at_.end()) builder_.add_derived(weight->second);
    }
    return {};
  }

  Result<Map> finish() {
    CKPT_CHECK(objects_.finish());
    if (reordered_ranks_ > 0) builder_.find(Severity::note, reordered_text(reordered_ranks_));
    Map map = builder_.take();
    map.format = "deepspeed";
    map.module_order = apart_ != nullptr;  // of each rank
    const std::uint64_t stages = mesh_.model_ranks / mesh_.tensor_ranks;
    const bool bf16_optimizer = !fragment_shapes_.empty();
    if (bf16_optimizer) stage_ = 0;  // its files are those of stage 1
    map.variant = bf16_optimizer ? "BF16_Optimizer" : "zero-" + std::to_string(stage_);
    if (without_optimizer_) map.variant = "model states";
    map.chosen = tag_.chosen;
    const std::uint64_t data_parallel = facts_.data_parallel.value_or(1);
    map.meta.step = facts_.global_steps;
    CKPT_TRY(map.meta.world_size, checked_mul(data_parallel, mesh_.model_ranks));
    map.meta.mesh = {{"dp", data_parallel}, {"tp", mesh_.tensor_ranks}, {"pp", stages}, {"zero", stage_}};
    std::uint64_t expert_ranks = 0;
    for (std::size_t m = 0; m < experts_.size(); ++m) {
      if (!models_[m].num_experts.empty())
        expert_ranks = std::max(expert_ranks, experts_[m].most_expert_ranks(models_[m]));
    }
    if (expert_ranks != 0) map.meta.mesh.emplace_back("ep", expert_ranks);
    map.meta.framework = "deepspeed";
    map.meta.framework_version = facts_.version;
    CKPT_CHECK(set_.check_names());
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
  SliceMesh mesh_{};
  PipelineLayers layers_{};
  bool unnamed_pipeline_ = false;  // without ZeRO
  /// Of such a pipeline whose optimizers store no names: by tensor-parallel rank, then by stage.
  std::vector<std::vector<std::vector<NamedTensor>>> stage_modules_{};
  std::vector<std::vector<GroupShapes>> fragment_shapes_{};  // of one in bf16, by model-parallel rank
  bool per_rank_ = false;                                    // stage 3: a model file for each data-parallel rank
  const bool weights_alone_;
  bool without_optimizer_ = false;  // of stages 1 and 2
  std::uint64_t stage_ = 0;
  std::vector<ModelStates> models_{};
  std::vector<RankExperts> experts_{};  // of models_
  std::uint64_t reordered_ranks_ = 0;
  GroupNames names_{};  // of the model-parallel rank whose files are being read
  std::unordered_map<std::string, std::set<std::uint64_t>> trained_{};  // the stages whose optimizers have a parameter
  LayerNames layer_names_{};
  std::set<std::string> buffers_{};
  SlicedTensors weights_{};
  SlicedTensors slots_{};
  std::unordered_set<std::string> cast_{};                  // weights of stage 3: their masters, cast
  std::unordered_map<std::string, std::size_t> cast_at_{};  // their place in the map
  std::vector<Alias> aliases_{};                            // of stage 3
  std::shared_ptr<RankLayout> apart_{};                     // null: slices are joined
};

}  // namespace

Result<Map> read_model_parallel(Io& io, const std::string& root, const Tag& tag, const ReadOptions& options) {
  return ModelParallelReader(io, root, tag, options).read();
}

}  // namespace ckpt::deepspeed
