#include "convert/megatron/rank_merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convert/megatron/common_state.hpp"
#include "convert/megatron/optimizer_state.hpp"
#include "convert/megatron/rank_part.hpp"
#include "format/checked.hpp"
#include "format/hash.hpp"
#include "format/model/slot_name.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::megatron {
namespace {

/// The chunk of a name "model.NAME" or "model1.NAME", and NAME.
std::optional<std::pair<std::uint64_t, std::string_view>> in_model(std::string_view name) {
  if (!name.starts_with("model")) return std::nullopt;
  name.remove_prefix(std::string_view("model").size());
  const auto chunk = name.starts_with('.') ? std::optional<std::uint64_t>(0) : take_number<std::uint64_t>(name);
  if (!chunk || !name.starts_with('.')) return std::nullopt;
  return std::pair(*chunk, name.substr(1));
}

/// A tensor of the whole model while its chunks are collected.
struct Whole {
  Tensor tensor;
  std::vector<std::pair<Chunk, Locator>> chunks{};
};

class RankMerge {
 public:
  RankMerge(const Ranks& ranks, const std::string& root) : ranks_(ranks), shape_(ranks.shape), root_(root) {}

  Result<Map> run() {
    add_files();
    CKPT_CHECK(collect());
    CKPT_CHECK(number_layers());
    CKPT_CHECK(check_ends());
    CKPT_CHECK(check_prediction());
    CKPT_CHECK(check_layers());
    note_output_layer();
    stacked_ = !shape_.has_numbered_layers && layers_are_alike();
    for (const Part& part : parts_)
      if (!is_unused(part)) CKPT_CHECK(place(part, weight_tensor(part), part.where));
    CKPT_CHECK(place_state());
    CKPT_CHECK(keep_rest());
    return finish();
  }

 private:
  tl::unexpected<Error> contradiction(const std::string& name, const std::string& reason) const {
    return fail(
        {.code = Errc::corrupt, .message = fmt::format("{}: {}", root_, reason), .file = root_, .tensor = name});
  }

  void add_files() {
    for (const RankFiles& rank : ranks_.files) {
      first_file_.push_back(static_cast<std::uint32_t>(map_.files.size()));
      map_.files.insert(map_.files.end(), rank.model.files.begin(), rank.model.files.end());
      first_optimizer_file_.push_back(static_cast<std::uint32_t>(map_.files.size()));
      if (rank.optimizer)
        map_.files.insert(map_.files.end(), rank.optimizer->files.begin(), rank.optimizer->files.end());
      used_.emplace_back(rank.model.tensors.size(), false);
      used_optimizer_.emplace_back(rank.optimizer ? rank.optimizer->tensors.size() : 0, false);
    }
  }

  Result<> collect() {
    const auto any_has = [&](std::string_view text) {
      return std::ranges::any_of(ranks_.files, [&](const RankFiles& rank) {
        return std::ranges::any_of(rank.model.tensors,
                                   [&](const Tensor& one) { return one.name.find(text) != std::string::npos; });
      });
    };
    // Of multi-latent attention torch_dist has the local layers' own names.
    const bool is_local = any_has(".input_layernorm.") && !any_has(".linear_kv_up_proj.");
    for (std::size_t r = 0; r < ranks_.files.size(); ++r) {
      const Map& model = ranks_.files[r].model;
      for (std::size_t t = 0; t < model.tensors.size(); ++t) {
        const auto named = model.tensors[t].role == Role::blob ? std::nullopt : in_model(model.tensors[t].name);
        // Of Transformer Engine's FP8, as bytes: no weight.
        if (!named || named->second.ends_with("._extra_state")) continue;
        Part part{.rank = r, .tensor = t, .chunk = named->first, .weight = weight_of(named->second, is_local)};
        part.dtype = model.tensors[t].dtype;
        part.shape = model.tensors[t].shape;
        CKPT_TRY(part.where, locate(model, t, first_file_[r]));
        decide_cut(part);
        CKPT_CHECK(check_cut(part));
        CKPT_CHECK(check_gate(part));
        if (part.weight.expert) experts_ = std::max(experts_, *part.weight.expert + 1);
        used_[r][t] = true;
        parts_.push_back(std::move(part));
      }
    }
    return {};
  }

  std::uint64_t cuts_of(const Part& part) const { return part.weight.expert ? shape_.expert_tensor : shape_.tensor; }

  /// Which of these cuts the rank has.
  std::uint64_t number_of(const Part& part) const {
    return shape_.stage().part(ranks_.files[part.rank].tensor, part.weight.expert.has_value());
  }

  /// Down projections of multi-latent attention are divided by local layers only: their rows tell.
  void decide_cut(Part& part) const {
    if (part.weight.cut != Cut::unknown || part.shape.empty()) return;
    for (const auto& [module, rows] : shape_.latent_rows) {
      if (!part.weight.name.ends_with(fmt::format("{}.weight", module))) continue;
      if (part.shape[0] == rows) part.weight.cut = Cut::none;
      if (part.shape[0] != rows && rows % shape_.tensor == 0 && part.shape[0] == rows / shape_.tensor)
        part.weight.cut = Cut::columns;
    }
  }

  /// The halves of a gated layer are joined in another way than the rows of one that is not.
  Result<> check_gate(const Part& part) const {
    const std::string& name = part.weight.name;
    if (!part.weight.is_gated || name.find("shared_experts.") != std::string::npos) return {};
    if (!shape_.has_arguments && cuts_of(part) > 1)
      return unsupported(name, "cannot tell whether it is gated (--swiglu): the files hold no training arguments");
    const auto inner = part.weight.expert ? shape_.expert_feed_forward : shape_.feed_forward;
    const std::uint64_t rows = part.shape[0] * cuts_of(part);
    if (!inner || !contradicts_gate(rows, *inner, shape_.is_gated)) return {};
    return contradiction(name, fmt::format("{}: it has {} rows, but the arguments say {} and swiglu {}", name, rows,
                                           *inner, shape_.is_gated ? "True" : "False"));
  }

  Result<> check_cut(const Part& part) const {
    const std::uint64_t cuts = cuts_of(part);
    std::string reason;
    const bool is_of_experts = part.weight.name.find(".experts.") != std::string::npos;
    if (is_of_experts && (part.weight.name.ends_with(".weight1") || part.weight.name.ends_with(".weight2"))) {
      reason = "GroupedMLP's experts, which are transposed, are not supported";
    } else if (part.weight.cut == Cut::unknown && (shape_.tensor > 1 || (shape_.expert > 1 && is_of_experts))) {
      reason = "how ranks divide it is not known";
    } else if (part.weight.cut == Cut::rows && part.shape.size() < 2) {
      reason = "it has no second dimension to divide";
    } else if (is_gated(part) && (part.shape.empty() || part.shape[0] % 2 != 0)) {
      reason = "its gate and up halves are not equal";
    } else if (part.weight.cut == Cut::columns && part.shape.empty()) {
      reason = "it has no dimension to divide";
    } else if (!part.shape.empty() && std::ranges::max(part.shape) > UINT64_MAX / cuts) {
      reason = "it is too large";
    }
    return reason.empty() ? Result<>{} : unsupported(part.weight.name, reason);
  }

  tl::unexpected<Error> unsupported(const std::string& name, const std::string& reason) const {
    return fail({.code = Errc::unsupported,
                 .message = fmt::format("{}: {}: {}", root_, name, reason),
                 .file = root_,
                 .tensor = name,
                 .hint = "save with --ckpt-format torch_dist, which stores whole tensors"});
  }

  bool is_gated(const Part& part) const { return part.weight.is_gated && shape_.is_gated && cuts_of(part) > 1; }

  /// The stages' layers follow each other, chunk by chunk of the interleaved schedule.
  Result<> number_layers() {
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> counts;  // by chunk and stage
    for (const Part& part : parts_) {
      std::uint64_t& count = counts[{part.chunk, ranks_.files[part.rank].pipeline}];
      if (part.weight.layer) count = std::max(count, *part.weight.layer + 1);
    }
    for (const auto& [place, count] : counts) {
      first_layer_[place] = layers_;
      CKPT_TRY(layers_, checked_add(layers_, count));
    }
    if (!shape_.layers || *shape_.layers == layers_) return {};
    return fail({.code = Errc::incomplete,
                 .message = fmt::format("{}: the ranks hold {} layers, the run's arguments say {}", root_, layers_,
                                        *shape_.layers),
                 .file = root_});
  }

  /// The first stage has the embedding, the last one the output layer: else the stages' files were exchanged.
  Result<> check_ends() const {
    if (shape_.pipeline == 1) return {};
    std::set<std::uint64_t> with_embedding;  // stages
    for (const Part& part : parts_) {
      const RankFiles& rank = ranks_.files[part.rank];
      if (part.weight.name == kEmbedding) with_embedding.insert(rank.pipeline);
      if (part.weight.name == kOutput && rank.pipeline + 1 != shape_.pipeline) return exchanged(rank, part.weight.name);
    }
    if (with_embedding.empty() || with_embedding.contains(0)) return {};
    return fail({.code = Errc::incomplete,
                 .message = fmt::format("{}: the first pipeline stage has no {}", root_, kEmbedding),
                 .file = root_,
                 .tensor = std::string(kEmbedding),
                 .hint = std::string(kCopyAgain)});
  }

  void note_output_layer() {
    const auto has = [&](std::string_view name) {
      return std::ranges::any_of(parts_, [&](const Part& part) { return part.weight.name == name; });
    };
    if (!shape_.has_arguments || shape_.is_tied || !has(kEmbedding) || has(kOutput)) return;
    map_.findings.push_back(
        {.severity = Severity::warning,
         .text = fmt::format("no rank has {}, but the run was trained with --untie-embeddings-and-output-weights",
                             kOutput)});
  }

  tl::unexpected<Error> exchanged(const RankFiles& rank, const std::string& weight) const {
    const std::string path = join_path(join_path(root_, rank.folder), kModelFile);
    return fail({.code = Errc::corrupt,
                 .message = fmt::format(
                     "{}: contains {}, which belongs to the last pipeline stage: rank files were exchanged or "
                     "copied",
                     path, weight),
                 .file = path,
                 .tensor = weight,
                 .hint = std::string(kCopyAgain)});
  }

  /// Multi-token prediction layers are numbered from 0, as many as the arguments say.
  Result<> check_prediction() const {
    if (!shape_.has_arguments) return {};
    std::set<std::uint64_t> layers;
    for (const Part& part : parts_) {
      std::string_view name = part.weight.name;
      if (!name.starts_with(kPredictionLayers)) continue;
      name.remove_prefix(kPredictionLayers.size());
      if (const auto number = take_number<std::uint64_t>(name)) layers.insert(*number);
    }
    const bool have_all = layers.empty() || *layers.rbegin() + 1 == layers.size();
    if (have_all && layers.size() == shape_.prediction_layers) return {};
    return fail(
        {.code = Errc::incomplete,
         .message = fmt::format("{}: found {} multi-token prediction layers{}, expected {} (mtp_num_layers)", root_,
                                layers.size(), have_all ? "" : ", not numbered from 0", shape_.prediction_layers),
         .file = root_});
  }

  /// Layers of one kind have the same weights.
  Result<> check_layers() const {
    if (shape_.has_own_layers) return {};
    std::map<std::uint64_t, std::set<std::string>> layers;
    for (const Part& part : parts_) {
      if (part.weight.layer) layers[layer_of(part)].insert(part.weight.name.substr(kLayers.size()));
    }
    const auto has = [](const std::set<std::string>& weights, std::string_view module) {
      return std::ranges::any_of(weights, [&](const std::string& weight) { return weight.starts_with(module); });
    };
    // Layers of a hybrid model are a mixer, attention or a multi-layer perceptron; some models have linear attention (a
    // gated delta net) or cross attention in some layers.
    const bool is_hybrid = std::ranges::any_of(layers, [&](const auto& layer) { return has(layer.second, "mixer."); });
    using LayerKind = std::array<bool, 5>;
    const auto kind_of = [&](const std::set<std::string>& weights) {
      return LayerKind{has(weights, "mlp.experts."), has(weights, "self_attention.in_proj."),
                       has(weights, "cross_attention."), is_hybrid && has(weights, "mixer."),
                       is_hybrid && has(weights, "self_attention.")};
    };
    std::map<LayerKind, std::map<std::string, std::uint64_t>> kinds;  // a layer with each weight
    for (const auto& [layer, weights] : layers)
      for (const std::string& weight : weights) kinds[kind_of(weights)].emplace(weight, layer);
    for (const auto& [layer, weights] : layers)
      for (const auto& [weight, other] : kinds[kind_of(weights)])
        if (!weights.contains(weight))
          return fail(
              {.code = Errc::incomplete,
               .message = fmt::format("{}: layer {} has no {}, which layer {} has", root_, layer, weight, other),
               .file = root_,
               .tensor = fmt::format("{}{}.{}", kLayers, layer, weight)});
    return {};
  }

  std::uint64_t layer_of(const Part& part) const {
    return first_layer_.at({part.chunk, ranks_.files[part.rank].pipeline}) + *part.weight.layer;
  }

  bool layers_are_alike() const {
    std::map<std::uint64_t, std::set<std::pair<std::string, Shape>>> layers;
    for (const Part& part : parts_)
      if (part.weight.layer) layers[layer_of(part)].emplace(part.weight.name, part.shape);
    return layers.size() == layers_ &&
           std::ranges::all_of(layers, [&](const auto& layer) { return layer.second == layers.begin()->second; });
  }

  std::string name_of(const Part& part) const {
    // The last stage's copy of the embedding.
    if (part.weight.name == kOutput && shape_.is_tied && shape_.pipeline > 1) return std::string(kEmbedding);
    if (!part.weight.layer || stacked_) return part.weight.name;
    return fmt::format("{}{}.{}", kLayers, layer_of(part), part.weight.name.substr(kLayers.size()));
  }

  bool is_stacked(const Part& part) const { return part.weight.layer && stacked_; }

  Shape whole_shape(const Part& part) const {
    Shape out;
    if (is_stacked(part)) out.push_back(layers_);
    if (part.weight.expert) out.push_back(experts_ * shape_.expert);
    Shape own = part.shape;
    if (part.weight.cut == Cut::columns) own[0] *= cuts_of(part);
    if (part.weight.cut == Cut::rows) own[1] *= cuts_of(part);
    out.insert(out.end(), own.begin(), own.end());
    return out;
  }

  Tensor weight_tensor(const Part& part) const {
    const bool is_buffer = part.weight.name.ends_with("expert_bias");
    return {.name = name_of(part),
            .dtype = part.dtype,
            .shape = whole_shape(part),
            .role = is_buffer ? Role::buffer : Role::param};
  }

  Tensor slot_tensor(const Part& part, const std::string& slot, Dtype dtype) const {
    return {.name = ckpt::slot_name(name_of(part), slot),
            .dtype = dtype,
            .shape = whole_shape(part),
            .role = Role::slot,
            .parameter = name_of(part),
            .slot = slot};
  }

  Result<Whole*> whole(Tensor tensor) {
    const auto [found, is_new] = by_name_.emplace(tensor.name, wholes_.size());
    if (is_new) {
      CKPT_CHECK(tensor_bytes(tensor.dtype, tensor.shape));
      wholes_.push_back({.tensor = std::move(tensor)});
      return &wholes_.back();
    }
    Whole& known = wholes_[found->second];
    if (known.tensor.dtype != tensor.dtype || known.tensor.shape != tensor.shape)
      return contradiction(tensor.name, fmt::format("{} has another dtype or shape on another rank", tensor.name));
    return &known;
  }

  /// Adds what one rank holds of a tensor with the weight's shape.
  Result<> place(const Part& part, Tensor tensor, const Locator& where) {
    const RankFiles& rank = ranks_.files[part.rank];
    CKPT_TRY(Whole* const into, whole(std::move(tensor)));
    Box box{.offset = {}, .size = {}};
    if (is_stacked(part)) {
      box.offset.push_back(layer_of(part));
      box.size.push_back(1);
    }
    if (part.weight.expert) {
      box.offset.push_back(rank.expert * experts_ + *part.weight.expert);
      box.size.push_back(1);
    }
    Locator at = where;
    if (!at.strides.empty()) at.strides.insert(at.strides.begin(), box.size.size(), 0);
    const std::size_t first = box.size.size();
    box.offset.resize(first + part.shape.size(), 0);
    box.size.insert(box.size.end(), part.shape.begin(), part.shape.end());
    const std::uint64_t number = number_of(part);
    if (part.weight.cut == Cut::columns) box.offset[first] = number * part.shape[0];
    if (part.weight.cut == Cut::rows) box.offset[first + 1] = number * part.shape[1];
    if (!is_gated(part)) {
      into->chunks.emplace_back(Chunk{.box = std::move(box)}, std::move(at));
      return {};
    }
    const std::uint64_t half = part.shape[0] / 2;
    const std::uint64_t row =
        where.strides.empty() ? volume(part.shape) / part.shape[0] : static_cast<std::uint64_t>(where.strides.front());
    for (const std::uint64_t which : {0U, 1U}) {  // gate, up
      Chunk chunk{.box = box};
      chunk.box.size[first] = half;
      chunk.box.offset[first] = (which * cuts_of(part) + number) * half;
      Locator piece = at;
      piece.offset += which * half * row * unit_bytes(where.dtype);
      into->chunks.emplace_back(std::move(chunk), std::move(piece));
    }
    return {};
  }

  /// State that was found in the file of a rank, and the tensors of that file which have a place.
  struct StateOfFile {
    FoundState found{};
    std::vector<bool>* used = nullptr;
  };

  Result<> place_state() {
    std::vector<StateOfFile> files;
    std::size_t next = 0;
    for (std::size_t r = 0; r < ranks_.files.size(); ++r) {
      std::vector<const Part*> own;  // parts are in the order of their ranks
      for (; next < parts_.size() && parts_[next].rank == r; ++next)
        if (!parts_[next].weight.name.ends_with("expert_bias")) own.push_back(&parts_[next]);
      const RankFiles& rank = ranks_.files[r];
      CKPT_TRY(FoundState numbered, find_numbered_state(rank.model, own, first_file_[r]));
      files.push_back({std::move(numbered), &used_[r]});
      if (!rank.optimizer) continue;
      CKPT_TRY(FoundState flat,
               find_flat_state(*rank.optimizer, own, first_optimizer_file_[r], shape_, rank.pipeline, root_));
      files.push_back({std::move(flat), &used_optimizer_[r]});
    }
    if (shape_.has_distributed_state && !ranks_.files.front().optimizer)
      map_.findings.push_back({.severity = Severity::warning,
                               .text = fmt::format("no optimizer state: {} is missing for every rank", kOptimizerFile),
                               .skipped = Skipped::training_state});
    bool is_kept = false;
    const std::set<std::string> whole = whole_slots(files);
    for (const StateOfFile& file : files) {
      is_kept = is_kept || file.found.is_unknown;
      std::set<std::size_t> left;  // tensors that hold something without a place: they are kept, too
      for (const StateOfPart& state : file.found.states) {
        if (state.is_scalar) {
          CKPT_CHECK(place_scalar(state));
        } else if (!whole.contains(slot_name(state))) {
          left.insert(state.tensor);
          continue;
        } else if (is_main_copy(*state.part)) {
          CKPT_CHECK(place(*state.part, slot_tensor(*state.part, state.slot, state.where.dtype), state.where));
        }
        (*file.used)[state.tensor] = true;
      }
      for (const std::size_t tensor : left) (*file.used)[tensor] = false;
      is_kept = is_kept || !left.empty();
    }
    if (is_kept)
      map_.findings.push_back({.text =
                                   "optimizer state of a form that is not known is kept by rank, under the folders' "
                                   "names"});
    return {};
  }

  /// The names of state that is known of every part of its weight.
  std::set<std::string> whole_slots(const std::vector<StateOfFile>& files) const {
    std::map<std::string, std::size_t> parts;  // of each weight
    for (const Part& part : parts_) parts[name_of(part)] += is_main_copy(part) ? 1U : 0U;
    std::map<std::string, std::pair<const Part*, std::size_t>> known;  // by name of the state
    for (const StateOfFile& file : files)
      for (const StateOfPart& state : file.found.states)
        if (!state.is_scalar && is_main_copy(*state.part)) {
          auto& [part, count] = known[slot_name(state)];
          part = state.part;
          ++count;
        }
    std::set<std::string> out;
    for (const auto& [name, held] : known)
      if (held.second == parts[name_of(*held.first)]) out.insert(name);
    return out;
  }

  std::string slot_name(const StateOfPart& state) const {
    return slot_tensor(*state.part, state.slot, state.where.dtype).name;
  }

  /// Of weights that several ranks hold the optimizer's state is that of the first one, as in torch_dist: it may differ a
  /// little between ranks, whose random generators differ.
  bool is_main_copy(const Part& part) const {
    const RankFiles& rank = ranks_.files[part.rank];
    const bool is_divided = part.weight.cut != Cut::none || number_of(part) == 0;
    const bool is_first = shape_.stage().is_first(rank.tensor, rank.expert, part.weight.expert.has_value());
    return is_divided && is_first && !is_copied_embedding(part);
  }

  /// The last stage's output layer of a tied model, where that stage has the embedding itself: it is made, and that is all.
  bool is_unused(const Part& part) const {
    return part.weight.name == kOutput && name_of(part) == kEmbedding && shape_.has_prediction;
  }

  bool is_copied_embedding(const Part& part) const {
    if (part.weight.name == kEmbedding) return ranks_.files[part.rank].pipeline != 0;
    return part.weight.name == kOutput && name_of(part) == kEmbedding;
  }

  /// The steps of a weight's parts are copies of one.
  Result<> place_scalar(const StateOfPart& state) {
    Tensor tensor = slot_tensor(*state.part, state.slot, state.where.dtype);
    tensor.shape.clear();
    CKPT_TRY(Whole* const into, whole(std::move(tensor)));
    into->chunks.emplace_back(Chunk{.box = Box{}}, state.where);
    return {};
  }

  /// Everything else, by rank, but the loss scale, of which each has a copy.
  Result<> keep_rest() {
    const auto keep = [&](const Map& map, const std::string& folder, std::uint32_t file,
                          const std::vector<bool>& used) -> Result<> {
      for (std::size_t t = 0; t < map.tensors.size(); ++t) {
        if (used[t]) continue;
        // States of random generators are bytes.
        const bool is_bytes = map.tensors[t].dtype == Dtype::u8 && map.tensors[t].shape.size() == 1;
        const bool is_common = map.tensors[t].name.ends_with(kLossScale);
        Tensor tensor{.name = is_common ? map.tensors[t].name : fmt::format("{}/{}", folder, map.tensors[t].name),
                      .dtype = map.tensors[t].dtype,
                      .shape = map.tensors[t].shape,
                      .role = is_bytes ? Role::blob : Role::slot,
                      .true_dtype = map.tensors[t].true_dtype};
        CKPT_TRY(Locator where, locate(map, t, file));
        CKPT_TRY(Whole* const into, whole(std::move(tensor)));
        into->chunks.emplace_back(Chunk{.box = Box::whole(into->tensor.shape)}, std::move(where));
      }
      return {};
    };
    for (std::size_t r = 0; r < ranks_.files.size(); ++r) {
      const RankFiles& rank = ranks_.files[r];
      CKPT_CHECK(keep(rank.model, rank.folder, first_file_[r], used_[r]));
      if (rank.optimizer) CKPT_CHECK(keep(*rank.optimizer, rank.folder, first_optimizer_file_[r], used_optimizer_[r]));
    }
    return {};
  }

  Result<Map> finish() {
    const Map& first = ranks_.files.front().model;
    for (const NamedObject& object : first.objects)
      if (!in_model(object.name)) map_.objects.push_back(object);
    map_.findings.insert(map_.findings.end(), first.findings.begin(), first.findings.end());
    Hasher metadata;
    for (const RankFiles& rank : ranks_.files) {
      metadata.update(rank.model.metadata_hash);
      if (rank.optimizer) metadata.update(rank.optimizer->metadata_hash);
    }
    map_.metadata_hash = metadata.digest().hex();
    map_.meta = shape_.meta;
    map_.meta.framework = "megatron";
    map_.variant = fmt::format("files of {} {}", ranks_.files.size(), ranks_.files.size() == 1 ? "rank" : "ranks");
    auto table = std::make_shared<ChunkTable>(wholes_.size());
    for (std::size_t i = 0; i < wholes_.size(); ++i) {
      for (auto& [chunk, where] : wholes_[i].chunks)
        table->add(i, wholes_[i].tensor.shape, std::move(chunk), std::move(where));
      map_.tensors.push_back(std::move(wholes_[i].tensor));
    }
    table->seal();
    map_.index = std::move(table);
    return std::move(map_);
  }

  const Ranks& ranks_;
  const RunShape& shape_;
  const std::string& root_;
  Map map_{};
  std::vector<std::uint32_t> first_file_{};            // of each rank, in the map
  std::vector<std::uint32_t> first_optimizer_file_{};  // likewise
  std::vector<std::vector<bool>> used_{};              // tensors of each rank's model file that have a place
  std::vector<std::vector<bool>> used_optimizer_{};
  std::vector<Part> parts_{};
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> first_layer_{};  // by chunk and stage
  std::uint64_t layers_ = 0;
  std::uint64_t experts_ = 0;  // of one expert-parallel rank
  bool stacked_ = false;
  std::vector<Whole> wholes_{};
  std::unordered_map<std::string, std::size_t> by_name_{};
};

}  // namespace

Result<Map> merge_ranks(const Ranks& ranks, const std::string& root) {
  return RankMerge(ranks, root).run();
}

}  // namespace ckpt::megatron
