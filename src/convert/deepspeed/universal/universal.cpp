#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "convert/deepspeed/files/file_set.hpp"
#include "convert/deepspeed/files/files.hpp"
#include "convert/deepspeed/files/kept_objects.hpp"
#include "convert/deepspeed/files/map_builder.hpp"
#include "convert/deepspeed/files/model_parallel_files.hpp"
#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/files/optim_states.hpp"
#include "convert/deepspeed/stages/partitioned_params.hpp"
#include "convert/deepspeed/stages/weights.hpp"
#include "convert/deepspeed/universal/universal_detect.hpp"
#include "convert/deepspeed/universal/universal_parameter.hpp"
#include "convert/deepspeed/universal/universal_slices.hpp"
#include "convert/deepspeed/writer/writer.hpp"
#include "convert/formats.hpp"
#include "format/checked.hpp"
#include "format/model/same_value.hpp"

namespace ckpt::deepspeed {
namespace {

constexpr std::array<std::string_view, 3> kOwnUniversalNames{"latest_universal", "*_states.pt", kIdFile};

constexpr const char* kAgain = "copy it here, or run ds_to_universal.py again";

/// Opens one universal folder. Files are opened one after another and dropped when their facts are taken.
class UniversalReader {
 public:
  UniversalReader(Io& io, std::string root, UniversalFolder folder, const ReadOptions& options)
      : folder_(std::move(folder)), set_(io, std::move(root), options, builder_) {}

  Result<Map> read() {
    CKPT_CHECK(open_optimizer());
    CKPT_CHECK(read_models());
    CKPT_CHECK(read_parameters());
    CKPT_CHECK(check_same_files());
    CKPT_CHECK(keep_optimizer());
    CKPT_CHECK(per_rank_ ? place_cast_weights() : slices_ ? place_slices() : place_stored_weights());
    return finish();
  }

 private:
  std::string inside(const std::string& name) const {
    return folder_.directory.empty() ? name : join_path(folder_.directory, name);
  }
  std::string folder_of(const std::string& parameter) const { return inside("zero/" + parameter); }

  static Error missing(const std::string& path, const std::string& tensor = {}) {
    return {.code = Errc::incomplete,
            .message = path + ": the file is missing",
            .file = path,
            .tensor = tensor,
            .hint = kAgain};
  }
  static Error corrupt(const std::string& path, const std::string& what, const std::string& tensor) {
    return {.code = Errc::corrupt, .message = path + ": " + what, .file = path, .tensor = tensor};
  }

  Result<> open_optimizer() {
    const std::string path = inside("zero/optimizer_state.pt");
    const bool there = std::any_of(folder_.parameters.begin(), folder_.parameters.end(), [](const DirEntry& entry) {
      return entry.name == "optimizer_state.pt" && entry.kind == FileInfo::Kind::file;
    });
    if (!there) return fail(missing(path));
    CKPT_TRY(StateFile file, set_.open(path));
    CKPT_TRY(const auto stage, file.natural(file.root(), "zero_stage"));
    stage_ = stage.value_or(1);  // BF16_Optimizer names none
    if (stage_ < 1 || stage_ > 3) return fail(file.error(Errc::corrupt, "zero_stage: " + std::to_string(stage_)));
    optimizer_.emplace(std::move(file));
    return {};
  }

  /// Stages 1 and 2 keep the one model file of the run; stage 3 one per rank, which hold buffers and frozen parts only.
  Result<> read_models() {
    std::vector<DirEntry> names;
    std::copy_if(folder_.entries.begin(), folder_.entries.end(), std::back_inserter(names),
                 [](const DirEntry& entry) { return entry.kind == FileInfo::Kind::file; });
    if (is_model_parallel(names)) return read_slices(names);
    auto sorted = sort_files(names);
    if (!sorted) return fail(in_folder(std::move(sorted).error()));
    if (!sorted->has_model && sorted->rank_models.empty()) {
      return fail(missing(inside(stage_ == 3 ? rank_model_name(0) : std::string(kModelName))));
    }
    per_rank_ = !sorted->has_model;
    if (per_rank_ && sorted->rank_models.front().rank != 0) return fail(missing(inside(rank_model_name(0))));
    CKPT_TRY(const StateFile file, set_.open(inside(per_rank_ ? rank_model_name(0) : std::string(kModelName))));
    CKPT_TRY(model_, read_model_states(file));
    CKPT_CHECK(refuse_experts(file, model_));
    if (!model_.param_shapes) return fail(file.error(Errc::corrupt, "param_shapes: missing"));
    ObjectReader reader(file);
    CKPT_TRY(auto objects, model_objects(file, reader));
    CKPT_CHECK(module_objects(model_, reader, objects));
    objects_.keep(file, 0, reader, KeptObjects::Of::model, std::move(objects));
    collect_shapes();
    if (per_rank_) return read_rank_models(sorted->rank_models);
    // Beside the whole model they are copies for a run of stage 3, and part of the checkpoint all the same.
    for (const auto& copy : sorted->rank_models)
      if (const auto opened = set_.open(inside(copy.name)); !opened) return fail(opened.error());
    return {};
  }

  /// Of several model-parallel ranks: their model files hold slices.
  Result<> read_slices(const std::vector<DirEntry>& names) {
    auto sorted = sort_model_parallel_files(names);
    if (!sorted) return fail(in_folder(std::move(sorted).error()));
    if (sorted->models.count(0) == 0 && sorted->rank_models.empty())
      return fail(missing(inside(sorted->model_name(0))));
    per_rank_ = !sorted->rank_models.empty();
    CKPT_TRY(slices_, UniversalSlices::read(set_, objects_, folder_.directory, *sorted));
    model_ = slices_->model();
    collect_shapes();
    return {};
  }

  Error in_folder(Error error) const {
    error.file = inside(error.file);
    return error;
  }

  void collect_shapes() {
    for (const GroupShapes& group : *model_.param_shapes) {
      for (const NamedShape& shape : group) shapes_.emplace(shape.name, &shape);
    }
  }

  Result<> read_rank_models(const std::vector<RankFile>& ranks) {
    CKPT_TRY(const auto counted, optimizer_->natural(optimizer_->root(), "partition_count"));
    const std::uint64_t part_count = counted.value_or(ranks.size());
    if (model_.frozen.empty()) {
      // DeepSpeed itself reads the first rank's file alone.
      if (ranks.size() < part_count) {
        builder_.find(Severity::note, std::to_string(part_count - ranks.size()) +
                                          " model files of other ranks are not here: nothing of the model is in them");
      }
    } else {
      for (std::uint64_t rank = 0; rank < part_count; ++rank) {
        if (rank < ranks.size() && ranks[rank].rank == rank) continue;
        return fail(missing(inside(rank_model_name(rank))));
      }
      CKPT_TRY(FrozenParts parts, frozen_parts(model_.path, model_.frozen, model_.frozen_fragments, part_count));
      frozen_.push_back(std::move(parts));
    }
    for (const RankFile& rank : ranks) {
      if (rank.rank == 0) continue;
      if (rank.rank >= part_count) {
        return fail(corrupt(inside(rank.name),
                            "a model file of rank " + std::to_string(rank.rank) + " of " + std::to_string(part_count),
                            ""));
      }
      CKPT_TRY(const StateFile file, set_.open(inside(rank.name)));
      CKPT_TRY(const RunFacts facts, read_facts(file));
      CKPT_CHECK(check_same_steps(file, facts, model_.facts));
      if (!model_.frozen.empty()) {
        CKPT_TRY(const auto fragments, read_fragments(file));
        CKPT_TRY(FrozenParts parts, frozen_parts(file.path(), model_.frozen, fragments, part_count));
        frozen_.push_back(std::move(parts));
      }
      ObjectReader reader(file, rank_suffix(rank.rank), &objects_.first_tensors());
      CKPT_TRY(auto objects, model_objects(file, reader));
      objects_.keep(file, rank.rank, reader, KeptObjects::Of::model, std::move(objects));
    }
    return {};
  }

  /// Parameters in the order of param_shapes, then those that it does not name, in the order of their names.
  Result<> read_parameters() {
    std::set<std::string> folders;
    for (const DirEntry& entry : folder_.parameters) {
      if (entry.kind == FileInfo::Kind::directory) folders.insert(entry.name);
    }
    for (const GroupShapes& group : *model_.param_shapes) {
      std::vector<UniversalParameter>& members = groups_.emplace_back();
      for (const NamedShape& shape : group) {
        if (folders.erase(shape.name) == 0) return fail(missing(folder_of(shape.name) + "/fp32.pt", shape.name));
        // For slices, only the file has the shape of the whole.
        const NamedShape* whole = slices_ && slices_->mesh().tensor_ranks > 1 ? nullptr : &shape;
        CKPT_TRY(UniversalParameter parameter, read_universal_parameter(set_, folder_of(shape.name), whole));
        members.push_back(std::move(parameter));
      }
    }
    std::unordered_map<std::string, std::string> shared(model_.shared.begin(), model_.shared.end());
    for (const std::string& name : folders) {
      const auto tied = shared.find(name);
      const auto shape = tied == shared.end() ? shapes_.end() : shapes_.find(tied->second);
      CKPT_TRY(UniversalParameter parameter,
               read_universal_parameter(set_, folder_of(name), shape == shapes_.end() ? nullptr : shape->second));
      // Of a tied name the converter writes the weight again, as fp32: not the master, which the other name has.
      builder_.find(shape == shapes_.end() ? Severity::warning : Severity::note,
                    name + (shape == shapes_.end() ? ": param_shapes does not name it; its state is kept"
                                                   : ": tied to " + tied->second + "; its own fp32.pt is kept"),
                    folder_of(name), name);
      others_.push_back(std::move(parameter));
    }
    return {};
  }

  /// The parameters of one group have the same slots, and the same step. In stage 3 all have the same slots, because a
  /// group there is a part of one, and its loader reads the same files for each parameter.
  Result<> check_same_files() const {
    std::set<std::string> slots;
    for (const auto& members : groups_) {
      if (!per_rank_) slots.clear();
      collect_slots(members, slots);
      if (!per_rank_) CKPT_CHECK(check_same_files(members, slots));
    }
    for (const auto& members : groups_) {
      if (per_rank_) CKPT_CHECK(check_same_files(members, slots));
    }
    return {};
  }

  static void collect_slots(const std::vector<UniversalParameter>& members, std::set<std::string>& slots) {
    for (const UniversalParameter& member : members) {
      for (const auto& [slot, tensor] : member.slots) slots.insert(slot);
    }
  }

  static Result<> check_same_files(const std::vector<UniversalParameter>& members, const std::set<std::string>& slots) {
    std::set<std::string> values;
    for (const UniversalParameter& member : members) {
      for (const auto& [key, value] : member.values) values.insert(key);
    }
    for (const UniversalParameter& member : members) {
      for (const std::string& slot : slots) {
        if (member.find(slot) == nullptr) return fail(missing(member.folder + "/" + slot + ".pt", member.name));
      }
      for (const std::string& key : values) CKPT_CHECK(check_value(members, member, key));
    }
    return {};
  }

  static Result<> check_value(const std::vector<UniversalParameter>& members, const UniversalParameter& member,
                              const std::string& key) {
    const std::string path = member.folder + "/" + key + ".pt";
    const Value* mine = value_of(member, key);
    if (mine == nullptr) return fail(missing(path, member.name));
    const Value* first = value_of(members.front(), key);
    if (first == nullptr || same_value(*first, *mine)) return {};
    return fail(corrupt(
        path,
        "another " + key + " than " + members.front().folder + "/" + key + ".pt: the files are of different saves",
        member.name));
  }

  static const Value* value_of(const UniversalParameter& parameter, const std::string& key) {
    for (const auto& [name, value] : parameter.values) {
      if (name == key) return &value;
    }
    return nullptr;
  }

  /// Parameter groups with their parameters' names, the steps, and the rest of optimizer_state.pt. That of stage 3
  /// still has rank 0's shards, which the parameters' own files repeat: only the step is taken from these.
  Result<> keep_optimizer() {
    const StateFile& file = *optimizer_;
    ObjectReader reader(file);
    OptimStates states{.path = file.path()};
    CKPT_TRY(states.hyper_groups, read_hyper_groups(file, file.find(file.root(), "param_groups"), reader));
    const pickle::NodeId shards = file.find(file.root(), "optimizer_state_dict");
    if (shards != pickle::kNone && states.hyper_groups.empty()) {
      CKPT_TRY(states.hyper_groups, read_hyper_groups(file, file.find(shards, "param_groups"), reader));
    }
    std::unordered_map<std::uint64_t, pickle::NodeId> entries;
    if (shards != pickle::kNone) {
      CKPT_TRY(entries, read_state_entries(file, file.find(shards, "state")));
    }
    GroupNames names;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      std::vector<ValuePtr>& members = names.emplace_back();
      for (const UniversalParameter& member : groups_[g]) members.push_back(text_value(member.name));
      GroupState& group = states.groups.emplace_back();
      if (!groups_[g].empty()) group.values = groups_[g].front().values;
      const auto entry = entries.find(g);
      if (!group.values.empty() || entry == entries.end()) continue;
      CKPT_CHECK(read_slots(file, entry->second, "optimizer_state_dict: group " + std::to_string(g), reader, group));
    }
    CKPT_TRY(auto objects, group_objects(states, &names));
    CKPT_TRY(auto rest, optimizer_objects(file, file.root(), reader));
    std::move(rest.begin(), rest.end(), std::back_inserter(objects));
    objects_.keep(file, 0, reader, KeptObjects::Of::optimizer, std::move(objects));
    optimizer_.reset();
    return {};
  }

  Result<> add_slots(const UniversalParameter& parameter) {
    for (const auto& [slot, tensor] : parameter.slots) {
      Tensor named = slot_tensor(parameter.name, slot, tensor.type.dtype, tensor.type.shape);
      named.true_dtype = tensor.type.true_dtype;
      CKPT_CHECK(builder_.add_whole(std::move(named), tensor.where));
    }
    return {};
  }

  /// Stages 1 and 2: weights are in the model file.
  Result<> place_stored_weights() {
    for (const auto& [name, tensor] : model_.module) {
      const auto shape = shapes_.find(name);
      if (shape == shapes_.end() || shape->second->shape == tensor.type.shape) continue;
      return fail(corrupt(model_.path, name + ": its shape in param_shapes differs from the module's", name));
    }
    CKPT_CHECK(place_weights(builder_, model_, trained_names(*model_.param_shapes)));
    for (const auto& group : groups_) {
      for (const UniversalParameter& parameter : group) {
        CKPT_CHECK(add_slots(parameter));
        if (parameter.vocabulary && parameter.slots.front().second.type.shape != shapes_.at(parameter.name)->shape) {
          builder_.find(Severity::note,
                        parameter.name +
                            ": its optimizer state has the rows of the vocabulary only, the weight also "
                            "the padding",
                        {}, parameter.name);
        }
      }
    }
    return place_others();
  }

  /// Weights are joined from slices, as in the checkpoint from which the folder was made.
  Result<> place_slices() {
    std::unordered_map<std::string, Shape> shapes;
    std::unordered_set<std::string> padded;
    for (const auto& group : groups_) {
      for (const UniversalParameter& parameter : group) {
        shapes.emplace(parameter.name, parameter.slots.front().second.type.shape);
        if (parameter.vocabulary) padded.insert(parameter.name);
      }
    }
    CKPT_CHECK(slices_->place(builder_, shapes, padded));
    if (!slices_->has_weights()) {
      builder_.find(Severity::note,
                    "the weights of a pipeline are in files of layers, which ds_to_universal.py does not copy: the "
                    "masters are all that is here");
    }
    for (const auto& group : groups_) {
      for (const UniversalParameter& parameter : group) CKPT_CHECK(add_slots(parameter));
    }
    return place_others();
  }

  /// Stage 3: weights are cast from the masters. Each parameter is a separate sub-group, held by one rank.
  Result<> place_cast_weights() {
    ModelStates model = model_;
    model.param_shapes.emplace();
    std::vector<OptimStates> ranks{OptimStates{.path = inside("zero"), .stage = 3, .part_count = 1}};
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (std::size_t i = 0; i < groups_[g].size(); ++i) {
        GroupState state;
        for (const auto& [slot, tensor] : groups_[g][i].slots) {
          CKPT_TRY(const Run run, flat_run(groups_[g][i], slot, tensor));
          if (slot == kMasterSlot) {
            state.master = run;
          } else {
            state.slots.emplace_back(slot, run);
          }
        }
        ranks.front().groups.push_back(std::move(state));
        NamedShape shape = (*model_.param_shapes)[g][i];
        if (slices_) {  // the files have the shape of the whole, param_shapes that of a slice
          shape.shape = groups_[g][i].slots.front().second.type.shape;
          CKPT_TRY(shape.elements, checked_volume(shape.shape));
        }
        model.param_shapes->push_back({std::move(shape)});
      }
    }
    CKPT_CHECK(place_partitioned(builder_, model, ranks, frozen_));
    if (slices_) CKPT_CHECK(slices_->place(builder_, {}, {}));
    return place_others();
  }

  static Result<Run> flat_run(const UniversalParameter& parameter, const std::string& slot, const FileTensor& tensor) {
    const std::string path = parameter.folder + "/" + (slot == kMasterSlot ? "fp32" : slot) + ".pt";
    const auto run = dense_run(tensor);
    if (!run) return fail(corrupt(path, "not a dense tensor", parameter.name));
    return *run;
  }

  Result<> place_others() {
    for (const UniversalParameter& parameter : others_) CKPT_CHECK(add_slots(parameter));
    return {};
  }

  Result<Map> finish() {
    CKPT_CHECK(objects_.finish());
    Map map = builder_.take();
    map.format = "deepspeed-universal";
    map.variant = per_rank_ ? "from zero-3" : "from zero-1 or 2";
    map.chosen = folder_.chosen;
    const RunFacts& facts = model_.facts;
    const std::uint64_t data_parallel = facts.data_parallel.value_or(1);
    const SliceMesh mesh = slices_ ? slices_->mesh() : SliceMesh{};
    map.meta.step = facts.global_steps;
    CKPT_TRY(map.meta.world_size, checked_mul(data_parallel, mesh.model_ranks));
    map.meta.mesh = {{"dp", data_parallel},
                     {"tp", mesh.tensor_ranks},
                     {"pp", mesh.model_ranks / mesh.tensor_ranks},
                     {"zero", stage_}};
    map.meta.framework = "deepspeed";
    map.meta.framework_version = facts.version;
    CKPT_CHECK(set_.check_names());
    map.metadata_hash = set_.metadata_hash();
    return map;
  }

  UniversalFolder folder_;
  MapBuilder builder_{};
  FileSet set_;
  KeptObjects objects_{builder_};
  std::optional<StateFile> optimizer_{};  // dropped when its facts are taken
  std::uint64_t stage_ = 0;
  bool per_rank_ = false;  // the model files are those of stage 3
  ModelStates model_{};
  std::optional<UniversalSlices> slices_{};  // of several model-parallel ranks
  std::vector<FrozenParts> frozen_{};
  std::unordered_map<std::string, const NamedShape*> shapes_{};  // of model_.param_shapes
  std::vector<std::vector<UniversalParameter>> groups_{};        // as model_.param_shapes has them
  std::vector<UniversalParameter> others_{};                     // that param_shapes does not name
};

Result<Map> open_universal(Io& io, const std::string& root, const ReadOptions& options) {
  const auto read = [&]() -> Result<Map> {
    CKPT_TRY(UniversalFolder folder, find_universal(io, root));
    return UniversalReader(io, root, std::move(folder), options).read();
  };
  return with_paths_under(root, read());
}

}  // namespace
}  // namespace ckpt::deepspeed

namespace ckpt {

Format deepspeed_universal_format() {
  return {.name = "deepspeed-universal",
          .summary = "a DeepSpeed universal checkpoint",
          .detect = deepspeed::detect_universal,
          .own_names = deepspeed::kOwnUniversalNames,
          .has_folders = true,
          .reader = FormatReader{.open = deepspeed::open_universal},
          .writer = FormatWriter{.lay_out = deepspeed::lay_out_universal,
                                 .options = deepspeed::kUniversalOptions,
                                 .stored_id = deepspeed::stored_id,
                                 .for_trainers = true,
                                 .reads_steps = true,
                                 .tensor_memory = 3500}};
}

}  // namespace ckpt
