#include "convert/megatron/rank_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "convert/formats.hpp"
#include "convert/megatron/run_arguments.hpp"
#include "format/checked.hpp"
#include "format/model/object_tree.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::megatron {
namespace {

constexpr std::string_view kFolder = "mp_rank";

tl::unexpected<Error> incomplete(const std::string& path, const std::string& reason) {
  return fail({.code = Errc::incomplete,
               .message = fmt::format("{}: {}", path, reason),
               .file = path,
               .hint = "each rank writes its own files: copy the missing ones from the nodes that wrote them"});
}

/// 1, 3 of mp_rank_01_003.
std::vector<std::uint64_t> numbers_of(std::string_view name) {
  name.remove_prefix(kFolder.size());
  std::vector<std::uint64_t> out;
  while (name.starts_with('_')) {
    name.remove_prefix(1);
    const auto number = take_number<std::uint64_t>(name);
    if (!number) return {};
    out.push_back(*number);
  }
  return name.empty() ? out : std::vector<std::uint64_t>{};
}

Result<Map> open_file(Io& io, const std::string& root, const std::string& folder, std::string_view name,
                      const ReadOptions& options) {
  const std::string path = join_path(folder, name);
  CKPT_TRY(Map map, torch_format().reader->open(io, join_path(root, path), options));
  for (MapFile& file : map.files) file.path = path;
  return map;
}

/// Without arguments, of files before 2019, the folders' names tell the sizes.
RunShape shape_of(const RankFiles& first, const std::vector<std::uint64_t>& most) {
  RunShape out;
  Dict top;
  for (const NamedObject& object : first.model.objects)
    if (object.name == "args" || object.name == "iteration")
      top.items.emplace_back(std::make_shared<Value>(Value{object.name}), std::make_shared<Value>(object.value));
  const Value common{std::move(top)};
  read_run_arguments(common, out.meta);
  const Value* args = member(common, "args");
  const Value none{};
  const Value& run = args == nullptr ? none : *args;
  const auto size = [&](std::string_view name, std::uint64_t otherwise) {
    return count_argument(run, name).value_or(otherwise);
  };
  const auto by_name = [&](std::size_t axis) { return axis < most.size() ? most[axis] + 1 : 1; };
  out.tensor = size("tensor_model_parallel_size", by_name(0));
  out.pipeline = size("pipeline_model_parallel_size", by_name(1));
  out.expert = size("expert_model_parallel_size", by_name(2));
  out.expert_tensor = size("expert_tensor_parallel_size", out.tensor);
  out.chunks = size("virtual_pipeline_model_parallel_size", 1);
  out.layers = count_argument(run, "num_layers");
  out.is_gated = has_gated_layers(run);
  out.has_numbered_layers = has_numbered_layers(run);
  out.buckets = bucket_rules(run);
  out.has_arguments = args != nullptr;
  out.feed_forward = count_argument(run, "ffn_hidden_size");
  const auto of_expert = count_argument(run, "moe_ffn_hidden_size");
  out.expert_feed_forward = of_expert ? of_expert : out.feed_forward;
  if (const auto rank = count_argument(run, "q_lora_rank")) out.latent_rows.emplace("linear_q_down_proj", *rank);
  if (const auto rank = count_argument(run, "kv_lora_rank"))
    out.latent_rows.emplace("linear_kv_down_proj", *rank + size("qk_pos_emb_head_dim", 0));
  out.has_distributed_state = is_set(run, "use_distributed_optimizer") && !is_set(run, "no_save_optim");
  out.is_tied = args != nullptr && !is_set(run, "untie_embeddings_and_output_weights");
  out.prediction_layers = count_argument(run, "mtp_num_layers").value_or(0);
  out.has_prediction = out.prediction_layers != 0;
  for (const std::string_view name : {"heterogeneous_layers_config_path", "heterogeneous_layers_config_encoded_json"})
    out.has_own_layers = out.has_own_layers || text_of(member(run, name)) != nullptr;
  return out;
}

bool has_experts(const RankFiles& rank) {
  return std::ranges::any_of(rank.model.tensors,
                             [](const Tensor& one) { return one.name.find(".experts.") != std::string::npos; });
}

/// The folders of all ranks, each once.
Result<> check_grid(const std::string& root, const Ranks& ranks) {
  const RunShape& shape = ranks.shape;
  std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> seen;
  for (const RankFiles& rank : ranks.files) seen.emplace(rank.tensor, rank.pipeline, rank.expert);
  const StageRanks stage = shape.stage();
  if (!stage.is_possible())
    return fail({.code = Errc::unsupported,
                 .message = fmt::format("{}: experts with {} tensor-parallel ranks, the rest of the model with {}: "
                                        "several ranks write to one folder",
                                        root, stage.expert_tensor, stage.tensor),
                 .file = root,
                 .hint = "save with --ckpt-format torch_dist, which stores whole tensors"});
  CKPT_TRY(const std::uint64_t groups, checked_mul(stage.expert_tensor, stage.expert));
  CKPT_TRY(std::uint64_t count, checked_mul(stage.tensor / std::gcd(stage.tensor, groups), groups));
  CKPT_TRY(count, checked_mul(count, shape.pipeline));
  const std::string experts = stage.expert_tensor == stage.tensor ? "" : fmt::format(" x {}", stage.expert_tensor);
  if (seen.size() != ranks.files.size() || seen.size() != count)
    return incomplete(
        root, fmt::format("{} folders of ranks, not {} (tensor {} · pipeline {} · expert {}{})", ranks.files.size(),
                          count, shape.tensor, shape.pipeline, shape.expert, experts));
  const auto numbers = stage.numbers();
  for (const auto& [tensor, pipeline, expert] : seen)
    if (pipeline >= shape.pipeline || !std::ranges::binary_search(numbers, std::pair(tensor, expert)))
      return incomplete(root, "the folders' numbers do not fit the run's arguments");
  return {};
}

/// The save that a rank's file is of, and the rank that wrote it.
struct Origin {
  std::optional<std::uint64_t> iteration{};
  std::optional<std::uint64_t> rank{};
};
Origin origin_of(const RankFiles& rank) {
  Origin out;
  for (const NamedObject& object : rank.model.objects) {
    const auto* number = object.name == "iteration" ? std::get_if<std::int64_t>(&object.value.v) : nullptr;
    if (number != nullptr && *number >= 0) out.iteration = static_cast<std::uint64_t>(*number);
    const Value* writer = object.name == "args" ? member(object.value, "rank") : nullptr;
    if (const auto whole = whole_number(writer); whole && *whole >= 0) out.rank = static_cast<std::uint64_t>(*whole);
  }
  return out;
}

/// Files that were mixed up: of several saves, or in the folders of other ranks. The numbers of ranks grow along every
/// dimension of the grid. Converters write one number into all files.
Result<> check_one_save(const std::string& root, const Ranks& ranks) {
  using Place = std::array<std::uint64_t, 3>;
  std::vector<Origin> origins;
  std::map<Place, std::size_t> at;
  for (const RankFiles& rank : ranks.files) {
    at.emplace(Place{rank.tensor, rank.pipeline, rank.expert}, origins.size());
    origins.push_back(origin_of(rank));
  }
  const Origin& first = origins.front();
  const bool have_numbers =
      std::ranges::any_of(origins, [&](const Origin& one) { return one.rank && one.rank != first.rank; });
  const auto mixed = [&](std::size_t i, const std::string& reason) {
    const std::string path = join_path(join_path(root, ranks.files[i].folder), kModelFile);
    return fail({.code = Errc::corrupt,
                 .message = fmt::format("{}: {}", path, reason),
                 .file = path,
                 .hint = std::string(kCopyAgain)});
  };
  for (const auto& [place, i] : at) {
    const Origin& own = origins[i];
    if (first.iteration && own.iteration && first.iteration != own.iteration)
      return mixed(i, fmt::format("of iteration {}, while {} is of iteration {}", *own.iteration,
                                  ranks.files.front().folder, *first.iteration));
    // Tensor-parallel numbers are a rank's fastest ones, in the model's grid and in that of the experts.
    const RunShape& shape = ranks.shape;
    const std::uint64_t number = own.rank.value_or(0);
    const bool is_its_place =
        number % std::max<std::uint64_t>(1, shape.tensor) == place[0] &&
        (shape.expert == 1 || number / std::max<std::uint64_t>(1, shape.expert_tensor) % shape.expert == place[2]);
    if (have_numbers && own.rank && !is_its_place)
      return mixed(
          i, fmt::format("written by rank {}, but in the folder of another rank: rank files were exchanged or copied",
                         number));
    for (std::size_t axis = 0; have_numbers && own.rank && axis < place.size(); ++axis) {
      if (place[axis] == 0) continue;
      Place neighbour = place;
      --neighbour[axis];
      const auto found = at.find(neighbour);
      if (found == at.end()) continue;
      const std::size_t before = found->second;
      if (origins[before].rank && *origins[before].rank >= *own.rank)
        return mixed(
            i, fmt::format("written by rank {}, but {} was written by rank {}: rank files were exchanged or copied",
                           *own.rank, ranks.files[before].folder, *origins[before].rank));
    }
  }
  return {};
}

}  // namespace

Result<Ranks> open_ranks(Io& io, const std::string& root, const ReadOptions& options) {
  CKPT_TRY(const std::vector<DirEntry> entries, io.list(root));
  std::vector<std::pair<std::string, std::vector<std::uint64_t>>> folders;
  std::vector<std::uint64_t> most;
  for (const DirEntry& entry : entries) {
    if (entry.kind != FileInfo::Kind::directory || !entry.name.starts_with(kFolder)) continue;
    std::vector<std::uint64_t> numbers = numbers_of(entry.name);
    if (numbers.empty() || (!folders.empty() && numbers.size() != most.size()))
      return incomplete(join_path(root, entry.name), "not named like the other ranks");
    most.resize(numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) most[i] = std::max(most[i], numbers[i]);
    folders.emplace_back(entry.name, std::move(numbers));
  }
  Ranks out;
  for (auto& [folder, numbers] : folders) {
    CKPT_TRY(const std::vector<DirEntry> inside, io.list(join_path(root, folder)));
    const auto has = [&](std::string_view name) {
      return std::ranges::find(inside, name, &DirEntry::name) != inside.end();
    };
    if (!has(kModelFile)) return incomplete(join_path(join_path(root, folder), kModelFile), "missing");
    RankFiles rank{.folder = folder};
    CKPT_TRY(rank.model, open_file(io, root, folder, kModelFile, options));
    if (has(kOptimizerFile)) {
      CKPT_TRY(rank.optimizer, open_file(io, root, folder, kOptimizerFile, options));
    }
    if (out.files.empty()) out.shape = shape_of(rank, most);
    // The second number is the pipeline's only where there is one: else the expert's.
    std::size_t next = 0;
    const auto take = [&next, &own = numbers] { return next < own.size() ? own[next++] : 0; };
    rank.tensor = take();
    if (out.shape.pipeline > 1) rank.pipeline = take();
    if (out.shape.expert > 1) rank.expert = take();
    out.files.push_back(std::move(rank));
  }
  if (out.files.empty()) return incomplete(root, "no folder of a rank");
  const bool has_optimizer =
      std::ranges::any_of(out.files, [](const RankFiles& rank) { return rank.optimizer.has_value(); });
  for (const RankFiles& rank : out.files)
    if (has_optimizer && !rank.optimizer)
      return incomplete(join_path(join_path(root, rank.folder), kOptimizerFile), "missing, while other ranks have it");
  // A run without experts may name any number.
  if (std::ranges::none_of(out.files, has_experts)) out.shape.expert_tensor = out.shape.tensor;
  CKPT_CHECK(check_grid(root, out));
  CKPT_CHECK(check_one_save(root, out));
  return out;
}

}  // namespace ckpt::megatron
