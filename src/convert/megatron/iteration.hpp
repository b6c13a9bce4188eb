#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "convert/place.hpp"
#include "engine/io/io.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"

/// The directory of a run: one of each iteration, and a tracker that names the one to resume from.
namespace ckpt::megatron {

inline constexpr std::string_view kTracker = "latest_checkpointed_iteration.txt";
inline constexpr std::string_view kRelease = "release";  ///< instead of an iteration: weights to start from

/// The directory that the tracker in `root` names: iter_0000100, or release.
///
/// errors  incomplete: the tracker is empty, names no iteration, or one that is missing; those of reading it
/// source  megatron/training/checkpointing.py: read_metadata, get_checkpoint_name
Result<std::string> tracked_iteration(Io& io, const std::string& root);

/// The directory of an iteration, and the tracker's text that names it; without a step those of a release.
std::string iteration_folder(std::optional<std::uint64_t> step);
std::string tracker_text(std::optional<std::uint64_t> step);

/// Adds a warning if the directory is named after another iteration than its files are of: it was copied or renamed.
void note_renamed(const std::string& root, Map& map);

/// How the tensors of an iteration's directory are stored.
enum class Layout : std::uint8_t {
  none,        ///< nothing of it is there
  rank_files,  ///< mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt
  torch_dist,  ///< .metadata and metadata.json
  zarr,        ///< metadata.json, and a folder of each tensor: megatron-core before 0.16
  other        ///< metadata.json names another back end
};
Result<Layout> layout_of(const Place& place);

/// The same of the iteration that the tracker of `root` names, where there is a tracker.
struct Iteration {
  std::string directory;  ///< below the root; empty: the root itself, or the tracker is wrong
  Layout layout = Layout::none;
  std::string why{};
};
/// Nothing if `place` is neither a run with a tracker nor an iteration.
Result<std::optional<Iteration>> find_iteration(const Place& place);

}  // namespace ckpt::megatron
