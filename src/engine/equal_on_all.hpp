#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/comm.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Collective: whether all ranks give the same, for each of `words`; they give as many.
Result<std::vector<bool>> equal_on_all(Comm& comm, Deadline deadline, std::span<const std::uint64_t> words);

}  // namespace ckpt
