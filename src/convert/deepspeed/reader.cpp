#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "convert/deepspeed/files/detect.hpp"
#include "convert/deepspeed/files/file_set.hpp"
#include "convert/deepspeed/files/files.hpp"
#include "convert/deepspeed/files/kept_objects.hpp"
#include "convert/deepspeed/files/map_builder.hpp"
#include "convert/deepspeed/files/model_parallel_files.hpp"
#include "convert/deepspeed/files/model_states.hpp"
#include "convert/deepspeed/files/objects.hpp"
#include "convert/deepspeed/files/optim_states.hpp"
#include "convert/deepspeed/files/state_file.hpp"
#include "convert/deepspeed/files/version.hpp"
#include "convert/deepspeed/model_parallel/model_parallel.hpp"
#include "convert/deepspeed/stages/experts.hpp"
#include "convert/deepspeed/stages/flat_groups.hpp"
#include "convert/deepspeed/stages/partitioned_params.hpp"
#include "convert/deepspeed/stages/swapped_state.hpp"
#include "convert/deepspeed/stages/weights.hpp"
#include "convert/deepspeed/stages/whole_optimizer.hpp"
#include "convert/deepspeed/writer/writer.hpp"
#include "convert/formats.hpp"
#include "format/checked.hpp"
#include "format/model/object_tree.hpp"
#include "format/text/name_list.hpp"

namespace ckpt::deepspeed {
namespace {

constexpr std::array<std::string_view, 4> kOwnNames{"latest", "*model_states.pt", "*optim_states.pt", kIdFile};
constexpr std::array<std::string_view, 1> kSteps{"global_step#"};
constexpr std::array<std::string_view, 1> kLatest{"latest"};  // holds the tag to resume from

/// Opens one checkpoint. Files are opened one after another and dropped when their facts are taken.
class Reader {
 public:
  Reader(Io& io, std::string root, Tag tag, const ReadOptions& options)
      : tag_(std::move(tag)), set_(io, std::move(root), options, builder_), weights_alone_(options.weights_alone) {}

  Result<Map> read() {
    auto sorted = sort_files(tag_.entries);
    if (!sorted) {
      Error error = std::move(sorted).error();
      error.file = in_tag(error.file);
      return fail(std::move(error));
    }
    files_ = *std::move(sorted);
    if (files_.empty()) {
      return fail({.code = Errc::incomplete,
                   .message = where() + ": holds no model states",
                   .file = tag_.directory,
                   .hint = "copy the files of this tag here, or choose another tag"});
    }
    CKPT_CHECK(learn_what_must_exist());
    CKPT_CHECK(stage_ == 0 ? read_whole() : read_partitioned());
    return finish();
  }

 private:
  std::string in_tag(const std::string& name) const { return path_in(tag_, name); }
  std::string where() const { return tag_.directory.empty() ? set_.root() : tag_.directory; }

  Result<StateFile> open(const std::string& name) { return set_.open(in_tag(name)); }

  /// One model file and one optimizer file show the stage and the number of ranks; then every file must exist.
  Result<> learn_what_must_exist() {
    Expected expected;
    std::optional<OptimHead> head;
    if (!files_.optims.empty()) {
      CKPT_TRY(StateFile file, open(files_.optims.front().name));
      CKPT_TRY(head, read_optim_head(file));
      lead_optim_.emplace(std::move(file));
    }
    if (files_.has_model || !files_.rank_models.empty()) {
      CKPT_TRY(StateFile file, open(files_.has_model ? std::string(kModelName) : files_.rank_models.front().name));
      CKPT_TRY(model_, read_model_states(file));
      if (!head && (model_.param_shapes || !files_.has_model)) {
        // The optimizer's files are all missing: there are as many as ranks.
        constexpr std::uint64_t kMaxRanks = std::uint64_t{1} << 24;
        expected.rank_models = !files_.has_model;
        expected.optim_count = std::min(model_.facts.data_parallel.value_or(1), kMaxRanks);
        expected.optim_prefix = model_.facts.optim_prefix;
        without_optimizer_ = weights_alone_ && files_.has_model;
        if (!without_optimizer_) return require(expected, files_.has_model ? kOrWeightsAlone : "");
        builder_.find(Severity::note, kWithoutOptimizer);
      }
      if (head && !model_.param_shapes) {
        if (is_before(model_.facts.version, 6))
          return fail(
              file.error(Errc::unsupported, "DeepSpeed " + model_.facts.version +
                                                " kept the shapes of parameters elsewhere; files of stages 1 to "
                                                "3 are read from 0.6 on"));
        return fail(file.error(Errc::corrupt, "param_shapes: missing beside partitioned optimizer states"));
      }
      lead_model_.emplace(std::move(file));
    }
    if (head) {
      stage_ = head->stage;
      bf16_optimizer_ = head->bf16_optimizer;
      rank_count_ = count_ranks(*head);
    }
    expected.rank_models = stage_ == 3;
    expected.optim_count = rank_count_;
    expected.experts = model_.num_experts;
    if (stage_ == 0 && !model_.num_experts.empty() && !without_optimizer_) {
      CKPT_TRY(expected.expert_optim_count, count_expert_ranks());
    }
    CKPT_CHECK(require(expected));
    CKPT_CHECK(add_experts(set_, tag_, files_.experts, {}, model_));
    if (!head) return {};
    const std::string doubt = check_part_counts(model_, head->part_counts, rank_count_);
    if (!doubt.empty()) return fail(lead_optim_->error(Errc::corrupt, doubt));
    return {};
  }

  /// The widest group is shared by all ranks, unless it too is one of experts.
  std::uint64_t count_ranks(const OptimHead& head) const {
    if (!model_.param_shapes) return head.part_count;  // there is no model file: reported next
    const std::vector<GroupShapes>& groups = *model_.param_shapes;
    const bool experts_only = std::all_of(groups.begin(), groups.end(), [](const GroupShapes& group) {
      return !group.empty() && expert_name(group.front().name).has_value();
    });
    const bool known = !model_.num_experts.empty() && !groups.empty() && experts_only;
    return known ? model_.facts.data_parallel.value_or(head.part_count) : head.part_count;
  }

  /// Stage 0: each expert-parallel rank writes its optimizer; their number is the only record of the degree.
  Result<std::uint64_t> count_expert_ranks() const {
    const std::uint64_t ranks = files_.expert_optims.empty() ? 1 : files_.expert_optims.back().rank + 1;
    const std::uint64_t most = *std::max_element(model_.num_experts.begin(), model_.num_experts.end());
    if (ranks <= most) return ranks;
    return fail(
        {.code = Errc::corrupt,
         .message = in_tag(files_.expert_optims.back().name) + ": there are only " + std::to_string(most) + " experts",
         .file = in_tag(files_.expert_optims.back().name)});
  }

  /// or_else  what else helps where a file is missing
  Result<> require(const Expected& expected, const std::string& or_else = {}) {
    const Missing missing = missing_files(files_, expected);
    if (missing.count > 0) {
      NameList names(missing.names.size());
      for (const std::string& name : missing.names) names.add(name);
      names.add_unnamed(missing.count - missing.names.size());
      return fail(
          {.code = Errc::incomplete,
           .message = where() + ": " + std::to_string(missing.count) +
                      (missing.count == 1 ? " file is missing: " : " files are missing: ") + names.text(),
           .file = in_tag(missing.names.front()),
           .hint = "each rank writes its own file: copy the missing ones from the nodes that wrote them" + or_else});
    }
    const auto surplus = surplus_files(files_, expected);
    if (surplus.empty()) return {};
    return fail({.code = Errc::corrupt,
                 .message = where() + ": " + name_list(surplus) + (surplus.size() == 1 ? " belongs" : " belong") +
                            " to a save with other ranks, experts or another stage than " +
                            std::to_string(expected.optim_count) + " ranks",
                 .file = in_tag(surplus.front()),
                 .hint = "move the files of the older save away"});
  }

  Result<> read_whole() {
    const StateFile& file = *lead_model_;
    std::unordered_set<std::string> trained;
    if (without_optimizer_) trained = trained_names(*model_.param_shapes);
    CKPT_CHECK(place_weights(builder_, model_, trained));
    ObjectReader reader(file);
    CKPT_TRY(auto objects, model_objects(file, reader));
    CKPT_CHECK(module_objects(model_, reader, objects));
    if (model_.num_experts.empty() && !without_optimizer_) {
      const AddSlot add = [&](Tensor tensor, Locator where) {
        return builder_.add_whole(std::move(tensor), std::move(where));
      };
      CKPT_CHECK(place_whole_optimizer(builder_, model_, file, reader, objects, add, Unnamed::keep_index));
    }
    objects_.keep(file, 0, reader, KeptObjects::Of::model, std::move(objects));
    return model_.num_experts.empty() || without_optimizer_ ? Result<>() : read_expert_optimizers();
  }

  /// Stage 0 with experts: each expert-parallel rank's optimizer has its own experts, and all else as the others do.
  Result<> read_expert_optimizers() {
    SlotCopies slots;
    const AddSlot add = [&](Tensor tensor, Locator where) { return slots.add(std::move(tensor), std::move(where)); };
    const std::uint64_t expert_ranks = files_.expert_optims.size();
    for (const RankFile& rank : files_.expert_optims) {
      CKPT_TRY(const StateFile file, open(rank.name));
      CKPT_CHECK(check_expert_ranks(file, 0, expert_ranks));
      CKPT_TRY(const ModelStates mine, model_of_expert_rank(model_, rank.rank, expert_ranks));
      ObjectReader reader(file, rank_suffix(rank.rank));
      std::vector<NamedObject> objects;
      CKPT_CHECK(place_whole_optimizer(builder_, mine, file, reader, objects, add, Unnamed::refuse));
      objects_.keep(file, rank.rank, reader, KeptObjects::Of::optimizer, std::move(objects));
    }
    return slots.place(builder_);
  }

  Result<> read_partitioned() {
    std::vector<FrozenParts> frozen;
    CKPT_CHECK(read_lead_model(frozen));
    for (std::uint64_t rank = 1; stage_ == 3 && rank < rank_count_; ++rank) CKPT_CHECK(read_rank_model(rank, frozen));
    const bool dealt = model_.facts.round_robin && stage_ != 3 && !bf16_optimizer_;
    names_ = group_names(model_, dealt ? rank_count_ : 0);
    std::vector<OptimStates> ranks;
    for (std::uint64_t rank = 0; rank < rank_count_; ++rank) {
      CKPT_TRY(OptimStates states, read_optim(rank));
      ranks.push_back(std::move(states));
    }
    if (reordered_ranks_ > 0) builder_.find(Severity::note, reordered_text(reordered_ranks_));
    if (model_.facts.round_robin) {
      builder_.find(Severity::note,
                    "round_robin_gradients: parameters lie in the order of param_shapes, not of the module");
    }
    note_other_steps(ranks);
    if (stage_ == 3) return place_partitioned(builder_, model_, ranks, frozen);
    CKPT_CHECK(place_weights(builder_, model_, trained_names(*model_.param_shapes)));
    return place_flat_groups(builder_, model_, ranks);
  }

  /// In stages 1 and 2 nothing else shows, without reading the data, that the one model file is of another save. It may
  /// as well be that training went on with a new optimizer.
  void note_other_steps(const std::vector<OptimStates>& ranks) {
    const RunFacts& facts = model_.facts;
    if (facts.global_steps.value_or(0) == 0 || facts.skipped_steps.value_or(0) > *facts.global_steps) return;
    const std::uint64_t expected = *facts.global_steps - facts.skipped_steps.value_or(0);
    for (const GroupState& group : ranks.front().groups) {
      for (const auto& [key, value] : group.values) {
        const auto taken = key == "step" ? real_number(&value) : std::nullopt;
        if (!taken || *taken == static_cast<double>(expected)) continue;
        // Before 0.13 the optimizer takes one step with gradients of zero when it is made.
        if (is_before(facts.version, 13) && *taken == static_cast<double>(expected + 1)) continue;
        builder_.find(Severity::note,
                      "the optimizer has taken " + fmt::format("{}", *taken) + " steps, but the model states count " +
                          std::to_string(expected) +
                          ": unless training began with a new optimizer, the files are of different saves");
        return;
      }
    }
  }

  Result<> read_lead_model(std::vector<FrozenParts>& frozen) {
    const StateFile& file = *lead_model_;
    ObjectReader reader(file);
    CKPT_TRY(auto objects, model_objects(file, reader));
    CKPT_CHECK(module_objects(model_, reader, objects));
    objects_.keep(file, 0, reader, KeptObjects::Of::model, std::move(objects));
    if (stage_ == 3) {
      CKPT_TRY(FrozenParts parts, frozen_parts(file.path(), model_.frozen, model_.frozen_fragments, rank_count_));
      frozen.push_back(std::move(parts));
    }
    lead_model_.reset();
    return {};
  }

  Result<> read_rank_model(std::uint64_t rank, std::vector<FrozenParts>& frozen) {
    CKPT_TRY(const StateFile file, open(rank_model_name(rank)));
    CKPT_TRY(const RunFacts facts, read_facts(file));
    CKPT_CHECK(check_same_steps(file, facts, model_.facts));
    CKPT_TRY(const auto fragments, read_fragments(file));
    CKPT_TRY(FrozenParts parts, frozen_parts(file.path(), model_.frozen, fragments, rank_count_));
    frozen.push_back(std::move(parts));
    ObjectReader reader(file, rank_suffix(rank), &objects_.first_tensors());
    CKPT_TRY(auto objects, model_objects(file, reader));
    objects_.keep(file, rank, reader, KeptObjects::Of::model, std::move(objects));
    return {};
  }

  Result<OptimStates> read_optim(std::uint64_t rank) {
    if (rank != 0) {
      CKPT_TRY(const StateFile file, open(files_.optim_name(rank)));
      return read_optim(rank, file);
    }
    CKPT_TRY(OptimStates states, read_optim(rank, *lead_optim_));
    lead_optim_.reset();
    return states;
  }

  Result<OptimStates> read_optim(std::uint64_t rank, const StateFile& file) {
    ObjectReader reader(file, rank_suffix(rank), &objects_.first_tensors());
    CKPT_TRY(OptimStates states, read_optim_states(file, reader));
    if (order_groups(model_, rank_count_, states)) ++reordered_ranks_;
    const std::string doubt = check_part_counts(model_, states.part_counts, rank_count_);
    if (states.stage != stage_ || !doubt.empty()) {
      return fail(file.error(Errc::corrupt, "stage " + std::to_string(states.stage) + " over " +
                                                std::to_string(states.part_count) + " ranks, but rank 0 has stage " +
                                                std::to_string(stage_) + " over " + std::to_string(rank_count_) +
                                                ": the files are of different saves"));
    }
    CKPT_TRY(auto objects, group_objects(states, &names_));
    std::move(states.objects.begin(), states.objects.end(), std::back_inserter(objects));
    states.objects.clear();
    states.hyper_groups.clear();
    if (stage_ == 3) {
      CKPT_TRY(const std::uint64_t taken,
               place_swapped(set_, in_tag(std::string(kSwapFolder)), rank, *model_.param_shapes, states));
      swap_files_ += taken;
    }
    objects_.keep(file, rank, reader, KeptObjects::Of::optimizer, std::move(objects));
    return states;
  }

  Result<Map> finish() {
    CKPT_CHECK(objects_.finish());
    note_neighbours();
    note_swapped();
    Map map = builder_.take();
    map.format = "deepspeed";
    map.module_order = true;
    map.variant = bf16_optimizer_ ? "BF16_Optimizer" : "zero-" + std::to_string(stage_);
    if (without_optimizer_) map.variant = "model states";
    map.chosen = tag_.chosen;
    const RunFacts& facts = model_.facts;
    const std::uint64_t data_parallel = facts.data_parallel.value_or(std::max<std::uint64_t>(rank_count_, 1));
    map.meta.step = facts.global_steps;
    CKPT_TRY(map.meta.world_size, checked_mul(data_parallel, facts.model_parallel.value_or(1)));
    map.meta.mesh = {
        {"dp", data_parallel}, {"tp", facts.tensor_parallel}, {"pp", facts.pipeline_parallel}, {"zero", stage_}};
    if (!model_.num_experts.empty()) map.meta.mesh.emplace_back("ep", expert_ranks());
    map.meta.framework = "deepspeed";
    map.meta.framework_version = facts.version;
    CKPT_CHECK(set_.check_names());
    map.metadata_hash = set_.metadata_hash();
    return map;
  }

  /// Expert-parallel ranks, of the group with most of them.
  std::uint64_t expert_ranks() const {
    std::uint64_t most = std::max<std::uint64_t>(files_.expert_optims.size(), 1);
    for (const auto& [index, group] : model_.expert_groups) most = std::max(most, group.rank_count);
    return most;
  }

  void note_swapped() {
    if (swap_files_ > 0) {
      builder_.find(Severity::note,
                    std::to_string(swap_files_) +
                        " raw files hold optimizer state that was swapped to NVMe: they carry no checksum");
      return;
    }
    for (const DirEntry& entry : tag_.entries) {
      if (entry.name != kSwapFolder) continue;
      builder_.find(Severity::note, "no optimizer file says that state was swapped: not read", in_tag(entry.name));
    }
  }

  void note_neighbours() {
    std::string others;
    for (const std::string& other : tag_.others) others += (others.empty() ? "" : ", ") + other;
    if (!others.empty()) builder_.find(Severity::note, "other tags are here, which are not read: " + others);
  }

  Tag tag_;
  MapBuilder builder_{};
  FileSet set_;
  TagFiles files_{};
  const bool weights_alone_;
  bool without_optimizer_ = false;  ///< its files are all missing
  std::uint64_t stage_ = 0;
  bool bf16_optimizer_ = false;
  std::uint64_t rank_count_ = 0;
  std::uint64_t swap_files_ = 0;
  std::uint64_t reordered_ranks_ = 0;
  ModelStates model_{};
  GroupNames names_{};
  std::optional<StateFile> lead_model_{};  // of rank 0; dropped when its facts are taken
  std::optional<StateFile> lead_optim_{};
  KeptObjects objects_{builder_};
};

Result<Map> open(Io& io, const std::string& root, const ReadOptions& options) {
  const auto read = [&]() -> Result<Map> {
    CKPT_TRY(Tag tag, find_tag(io, root));
    if (is_model_parallel(tag.entries)) return read_model_parallel(io, root, tag, options);
    return Reader(io, root, std::move(tag), options).read();
  };
  return with_paths_under(root, read());
}

}  // namespace
}  // namespace ckpt::deepspeed

namespace ckpt {

Format deepspeed_format() {
  return {.name = "deepspeed",
          .summary = "DeepSpeed ZeRO stages 0 to 3",
          .detect = deepspeed::detect,
          .own_names = deepspeed::kOwnNames,
          .has_folders = true,
          .names = {.steps = deepspeed::kSteps, .trackers = deepspeed::kLatest, .markers = deepspeed::kLatest},
          .reader = FormatReader{.open = deepspeed::open, .has_state_beside = true},
          .writer = FormatWriter{.lay_out = deepspeed::lay_out,
                                 .options = deepspeed::kNativeOptions,
                                 .stored_id = deepspeed::stored_id,
                                 .state_beside = true,
                                 .extras = KeepsExtras::beside,
                                 .for_trainers = true,
                                 .reads_steps = true,
                                 .keeps_model_ranks = true,
                                 .tensor_memory = 2400}};
}

}  // namespace ckpt
