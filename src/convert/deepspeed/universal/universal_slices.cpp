#include "convert/deepspeed/universal/universal_slices.hpp"

#include <utility>
#include <vector>

#include "convert/deepspeed/files/files.hpp"

namespace ckpt::deepspeed {
namespace {

/// Adds the parameters of a further rank to the groups of the first.
void join_groups(const std::vector<GroupShapes>& from, std::unordered_set<std::string>& known,
                 std::vector<GroupShapes>& to) {
  if (to.size() < from.size()) to.resize(from.size());
  for (std::size_t g = 0; g < from.size(); ++g) {
    for (const NamedShape& shape : from[g]) {
      if (known.insert(shape.name).second) to[g].push_back(shape);
    }
  }
}

auto missing(const std::string& path) {
  return fail({.code = Errc::incomplete,
               .message = path + ": the file is missing",
               .file = path,
               .hint = "copy it here, or run ds_to_universal.py again"});
}

}  // namespace

Result<UniversalSlices> UniversalSlices::read(FileSet& files, KeptObjects& objects, const std::string& directory,
                                              const ModelParallelFiles& names) {
  const auto inside = [&](const std::string& name) { return directory.empty() ? name : join_path(directory, name); };
  UniversalSlices out;
  const bool per_rank = !names.rank_models.empty();
  if (per_rank && !names.models.empty()) {
    const std::string path = inside(names.models.begin()->second);
    return fail({.code = Errc::corrupt,
                 .message = path + ": beside model files of ZeRO stage 3: the files are of two saves",
                 .file = path});
  }
  const std::uint64_t last = per_rank ? names.rank_models.rbegin()->first : names.models.rbegin()->first;
  std::unordered_set<std::string> known;
  for (std::uint64_t m = 0; m < out.mesh_.model_ranks; ++m) {
    const auto ranks = names.rank_models.find(m);
    const bool there =
        per_rank ? ranks != names.rank_models.end() && ranks->second.front().rank == 0 : names.models.count(m) != 0;
    const std::string name = inside(per_rank ? names.rank_model_name(m, 0) : names.model_name(m));
    if (!there) return missing(name);
    CKPT_TRY(const StateFile file, files.open(name));
    CKPT_TRY(ModelStates model, read_model_states(file, ModelRanks::several));
    CKPT_CHECK(refuse_experts(file, model));
    if (!model.param_shapes) return fail(file.error(Errc::corrupt, "param_shapes: missing"));
    if (per_rank && !model.frozen.empty()) {
      return fail(with_hint(file.error(Errc::unsupported,
                                       "a universal folder of ZeRO stage 3 and several tensor-parallel ranks, with "
                                       "frozen parameters: not readable"),
                            "give the checkpoint that it was made from, which can be read"));
    }
    CKPT_TRY(SliceRules rules, SliceRules::read(file, files.user_rules()));
    if (m == 0) {
      CKPT_TRY(out.mesh_, read_mesh(file, model.facts, last, {}));
    } else {
      CKPT_CHECK(check_same_steps(file, model.facts, out.model_.facts));
      if (model.facts != out.model_.facts) {
        return fail(file.error(Errc::corrupt,
                               "counters or degrees differ from those of rank 0: the files are of different saves"));
      }
    }
    const ModelRank rank{m / out.mesh_.tensor_ranks, m % out.mesh_.tensor_ranks};
    out.mesh_.rules.emplace(rank.stage, std::move(rules));
    out.mesh_.rule_files.emplace(rank.stage, file.path());
    for (const NamedTensor& entry : model.module) {
      // In stage 3 a parameter is an empty placeholder: the masters are the weights.
      if (per_rank && model.buffer_names.count(entry.name) == 0) continue;
      Tensor tensor = module_tensor(entry, model.buffer_names.count(entry.name) != 0);
      CKPT_CHECK(
          out.weights_.add(file.path(), std::move(tensor), rank, {entry.tensor.type.shape, {entry.tensor.where}}));
    }
    ObjectReader reader(file, rank_suffix(m));
    CKPT_TRY(auto kept, model_objects(file, reader));
    CKPT_CHECK(module_objects(model, reader, kept));
    objects.keep(file, m, reader, KeptObjects::Of::model, std::move(kept));
    std::vector<GroupShapes> groups = *std::exchange(model.param_shapes, std::nullopt);
    if (m == 0) {
      out.model_ = std::move(model);
      if (!per_rank) out.model_.module.clear();  // the placeholders of stage 3 have the dtypes
      out.model_.param_shapes.emplace();
    }
    join_groups(groups, known, *out.model_.param_shapes);
  }
  if (last >= out.mesh_.model_ranks) {
    const std::string path = inside(per_rank ? names.rank_models.at(last).front().name : names.models.at(last));
    return fail({.code = Errc::corrupt,
                 .message = path + ": belongs to a save with more than " + std::to_string(out.mesh_.model_ranks) +
                            " model-parallel ranks",
                 .file = path});
  }
  return out;
}

Result<> UniversalSlices::place(MapBuilder& builder, const std::unordered_map<std::string, Shape>& shapes,
                                const std::unordered_set<std::string>& padded) const {
  const auto ruled = [&](const std::string& name) {
    return mesh_.tensor_ranks == 1 || shapes.count(name) != 0 ||
           mesh_.rules.begin()->second.user_join(name).has_value();
  };
  for (const SlicedTensors::Entry& entry : weights_.entries()) {
    const std::string& name = entry.tensor.name;
    if (!ruled(name)) {
      CKPT_CHECK(weights_.place_unruled(builder, entry, mesh_, model_.shared, ruled));
      continue;
    }
    CKPT_CHECK(SlicedTensors::place(builder, entry, mesh_));
    const Shape& placed = builder.map().tensors.back().shape;
    const auto master = shapes.find(name);
    if (master == shapes.end() || master->second == placed || padded.count(name)) continue;
    return fail({.code = Errc::corrupt,
                 .message = model_.path + ": " + name + ": its slices do not make up the shape of its master",
                 .file = model_.path,
                 .tensor = name});
  }
  return {};
}

}  // namespace ckpt::deepspeed
