#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/comm.hpp"
#include "engine/run/staging.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/result.hpp"
#include "format/universal/declared_model.hpp"
#include "format/universal/manifest.hpp"

namespace ckpt {

/// One rank's contribution to a save: its part of a tensor of the model, or a tensor or blob that it describes itself.
struct Piece {
  std::optional<Tensor> described{};  ///< none: a tensor of the model
  std::string name{};
  Chunk chunk{};  ///< of a described tensor: its part here
  MemorySource memory{};
};

class ReplicaGroups;

/// Every tensor of one save, equal on all ranks. Rows beyond the model's have the last layout, irregular.
struct SaveTable {
  std::vector<universal::Layout> layouts{};
  std::vector<universal::TensorRow> rows{};       ///< sorted by name
  std::vector<std::uint64_t> shared{};            ///< keys of the descriptions that several ranks share, ascending
  std::shared_ptr<const ReplicaGroups> groups{};  ///< this rank's, by the model

  std::optional<std::uint32_t> find(std::string_view name) const;
};

/// Makes the table of a save. Collective. If neither the model nor the descriptions have changed since the call that
/// returned `last`, one small all-reduce proves it and nothing else is sent; `last_hash` is kept between calls. A rank
/// whose own preparations failed passes that as `mine`.
///
/// errors  usage: ranks whose models differ, two descriptions of one tensor that differ, or that leave out a part of it
///         or hold one twice; peer_failed
Result<std::shared_ptr<const SaveTable>> agree_on_table(Comm& comm, Deadline deadline, const Model& model,
                                                        std::span<const Piece> pieces, Result<> mine,
                                                        std::shared_ptr<const SaveTable> last, Hash128& last_hash);

}  // namespace ckpt
