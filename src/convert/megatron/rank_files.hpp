#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/megatron/buffer_layout.hpp"
#include "convert/megatron/rank_grid.hpp"
#include "convert/read_options.hpp"
#include "engine/io/io.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"

namespace ckpt::megatron {

inline constexpr std::string_view kModelFile = "model_optim_rng.pt";    ///< of each rank's folder
inline constexpr std::string_view kOptimizerFile = "distrib_optim.pt";  ///< likewise, of the distributed optimizer

inline constexpr std::string_view kCopyAgain = "copy the rank files again from the original checkpoint";  ///< a hint

/// What one model-parallel rank wrote.
struct RankFiles {
  std::string folder;  ///< mp_rank_01_003
  std::uint64_t tensor = 0;
  std::uint64_t pipeline = 0;
  std::uint64_t expert = 0;
  Map model{};                     ///< model_optim_rng.pt
  std::optional<Map> optimizer{};  ///< distrib_optim.pt, of the distributed optimizer
};

/// The run that wrote them, by its arguments.
struct RunShape {
  std::uint64_t tensor = 1;
  std::uint64_t pipeline = 1;
  std::uint64_t expert = 1;
  std::uint64_t expert_tensor = 1;        ///< tensor-parallel ranks of an expert
  std::uint64_t chunks = 1;               ///< of each pipeline stage, with the interleaved schedule
  std::optional<std::uint64_t> layers{};  ///< of the whole model
  bool is_gated = false;                  ///< SwiGLU and the like
  bool has_numbered_layers = false;       ///< torch_dist stacks none, also if they are alike
  bool is_tied = true;                    ///< the output layer is the embedding
  bool has_prediction = false;            ///< multi-token prediction layers
  std::uint64_t prediction_layers = 0;    ///< likewise, how many
  bool has_own_layers = false;            ///< each layer is configured for itself (--heterogeneous-layers-config-path)
  BucketRules buckets{};                  ///< of the distributed optimizer
  bool has_distributed_state = false;     ///< that optimizer's state was saved
  bool has_arguments = false;
  std::optional<std::uint64_t> feed_forward{};         ///< inner size of layers without experts
  std::optional<std::uint64_t> expert_feed_forward{};  ///< likewise, of an expert
  std::map<std::string, std::uint64_t> latent_rows{};  ///< of the down projections of multi-latent attention
  Meta meta{};

  StageRanks stage() const { return {.tensor = tensor, .expert = expert, .expert_tensor = expert_tensor}; }
};

struct Ranks {
  RunShape shape;
  std::vector<RankFiles> files;  ///< of all ranks, in the order of their folders' names
};

/// Reads the metadata of all ranks of an iteration.
/// errors  incomplete: a rank or one of its files is missing; those of reading a torch.save file
Result<Ranks> open_ranks(Io& io, const std::string& root, const ReadOptions& options);

}  // namespace ckpt::megatron
