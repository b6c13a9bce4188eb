#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/process/helper_process.hpp"

namespace ckpt::hdf5 {

/// The memory of `ckpt-h5` if no more is requested.
constexpr std::uint64_t kHelperMemory = std::uint64_t{1} << 30;

/// Runs `ckpt-h5 MEMORY WORDS` (helper/ckpt_h5.cpp).
/// errors  as run_helper
inline Result<std::string> run_h5(std::uint64_t memory_bytes, std::vector<std::string> words, std::string_view input,
                                  const HelperLimits& limits) {
  words.insert(words.begin(), std::to_string(memory_bytes));
  return run_helper("ckpt-h5", words, input, limits);
}

}  // namespace ckpt::hdf5
