#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "engine/run/checks.hpp"
#include "format/model/model.hpp"

/// Checks of a checkpoint against itself. One plan and one run of the engine: every tensor is read once,
/// together with its replicas and the weights rounded from it; then the unused parts of checksummed
/// entries.
namespace ckpt {

/// Which of `count` things are in a sample: those whose XXH64 of seed and number is among the lowest share; at least
/// one.
std::vector<bool> choose_sample(const Sample& sample, std::size_t count);

struct SourceCheckRequest {
  bool everything = true;  ///< false: only compared tensors
  bool masters = true;     ///< compare masters with the weights that were rounded from them, and not replicas alone
  bool finite = false;     ///< also count NaNs and infinities, by tensor
  std::optional<Sample> sample{};
};

struct SourceCheck {
  std::uint64_t bytes = 0;           ///< that were checked
  std::uint64_t leaves = 0;          ///< there are, of 4 MiB of values each at most
  std::uint64_t leaves_checked = 0;  ///< fewer under a sample
  std::uint64_t crc_checked = 0;
  std::uint64_t crc_unread = 0;   ///< not read completely: with a sample, or with very many at once
  std::uint64_t without_crc = 0;  ///< tensors of which a part has no checksum
  std::uint64_t masters = 0;      ///< fp32 masters that were compared with their weight
  std::uint64_t replicated = 0;   ///< tensors of which several files hold a part, all of which were compared
  std::vector<Finding> damage{};  ///< at most kMostDamage, each with file, offset and tensor
  std::vector<NotFiniteTensor> not_finite{};
};

/// Not collective: this process works alone. `root`: of the map's files. The map's tensors must be covered.
/// errors  those that stop a run: io, memory, interrupted, and files that end inside a tensor
Result<SourceCheck> check_source(Session& session, const Map& map, const std::string& root,
                                 const SourceCheckRequest& request, const std::string& phase);

/// Masters of stored parameters, to be compared as the parameter's type. Derived parameters, which are made from their
/// master, are left out.
struct MasterPair {
  std::uint32_t param = 0;   ///< index into Map::tensors
  std::uint32_t master = 0;  ///< that were checked
};
std::vector<MasterPair> master_pairs(const Map& map);

}  // namespace ckpt
