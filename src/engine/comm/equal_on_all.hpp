#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/comm/comm.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Collective: for each of `words`, whether all ranks pass the same value; all ranks pass the same number of words.
Result<std::vector<bool>> equal_on_all(Comm& comm, Deadline deadline, std::span<const std::uint64_t> words);

}  // namespace ckpt
