#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/io.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt::deepspeed {

/// A file that one data-parallel rank wrote.
struct RankFile {
  std::uint64_t rank = 0;
  std::string name;
};

/// The weights of one expert of one layer.
struct ExpertFile {
  std::uint64_t layer = 0;
  std::uint64_t expert = 0;  ///< by global number
  std::string name;
};

/// Sorted by layer, then by expert.
using ExpertFiles = std::vector<ExpertFile>;

/// The files of one tag directory, by kind. No directory entry shows which must exist: that follows from numbers inside
/// the files (`missing_files`).
/// source   deepspeed/runtime/engine.py: _get_ckpt_name, _get_zero_ckpt_name; older spellings by experience
struct TagFiles {
  bool has_model = false;                 ///< mp_rank_00_model_states.pt: stages 0 to 2
  std::vector<RankFile> rank_models{};    ///< zero_pp_rank_D_mp_rank_00_model_states.pt: stage 3; by rank
  std::vector<RankFile> optims{};         ///< ...zero_pp_rank_D_mp_rank_00_optim_states.pt; by rank
  ExpertFiles experts{};                  ///< layer_L_expert_E_mp_rank_00_model_states.pt
  std::vector<RankFile> expert_optims{};  ///< expp_rank_E_mp_rank_00_optim_states.pt: stage 0; by expert-parallel rank
  std::string optim_prefix{};             ///< "", "bf16_" or "fp16_", as the optimizer files spell it
  std::string optim_suffix = "_optim_states.pt";  ///< older releases left out the first underscore

  bool empty() const { return !has_model && rank_models.empty() && optims.empty(); }
  std::string optim_name(std::uint64_t rank) const;
};
/// The hint of every refusal of a layout.
constexpr const char* kWhatIsRead =
    "this release reads ZeRO stages 0 to 3, of tensor-parallel runs too, 0 to 2 of pipelines and experts";
/// Where only the weights are asked for, the optimizer's files of stages 0 to 2 may be missing: the note, and else the hint.
constexpr const char* kWithoutOptimizer = "optimizer files are missing; using the weights of the model files";
constexpr const char* kOrWeightsAlone = ", or convert the weights alone with --only weights";
constexpr std::string_view kModelName = "mp_rank_00_model_states.pt";
std::string rank_model_name(std::uint64_t rank);
std::string expert_file_name(std::uint64_t layer, std::uint64_t expert, std::uint64_t model_rank = 0);
std::string expert_optim_name(std::uint64_t expert_rank, std::uint64_t model_rank = 0);

/// FastPersist appends "-WRITER.WRITERS" to every name, also if one writer wrote everything:
/// `mp_rank_00_model_states.pt-0.1`.
struct WriterNames {
  std::vector<DirEntry> entries{};  ///< without the suffix
  std::string suffix{};             ///< "-0.1", or empty if the names have none
  std::string shared{};             ///< the first file shared by several writers; empty if there is none
};
/// If any of DeepSpeed's files has its plain name, the listing is unchanged.
/// source   deepspeed/runtime/checkpoint_engine/utils.py and fast_checkpoint_engine.py
WriterNames without_writer_suffix(const std::vector<DirEntry>& entries);

/// Sorts a listing. Files that are none of DeepSpeed's, or not spelled as it spells them, are passed over.
/// errors   unsupported, naming the kind: tensor or pipeline parallel ranks, layers of a pipeline, a universal
///          checkpoint; corrupt: files of two saves under different prefixes
Result<TagFiles> sort_files(const std::vector<DirEntry>& entries);

/// True when a listing holds any file of a tag directory, also of kinds that are refused; not for universal
/// checkpoints, which are another format.
bool looks_like_tag(const std::vector<DirEntry>& entries);

/// The required files, by the numbers inside the files.
struct Expected {
  bool rank_models = false;              ///< stage 3: one model file per rank, else the only one
  std::uint64_t optim_count = 0;         ///< ranks that write an optimizer file (and, in stage 3, a model file)
  std::string_view optim_prefix{};       ///< if there is no optimizer file
  std::vector<std::uint64_t> experts{};  ///< of each layer
  std::uint64_t expert_optim_count = 0;  ///< stage 0: expert-parallel ranks
};

/// Names of files that must exist and do not; at most 10, `count` has them all.
struct Missing {
  std::vector<std::string> names{};
  std::uint64_t count = 0;
};
Missing missing_files(const TagFiles& files, const Expected& expected);

/// Files of ranks that `expected` does not know: left over from a save with more ranks.
std::vector<std::string> surplus_files(const TagFiles& files, const Expected& expected);

/// What a reader returned. It names files as in the map; the user needs the whole path.
Result<Map> with_paths_under(const std::string& root, Result<Map> read);

}  // namespace ckpt::deepspeed
