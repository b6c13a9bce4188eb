#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "helper/h5_file.hpp"

/// Rows [begin, end) of a dataset, and their destination.
struct Rows {
  std::string dataset{};      ///< its path, for messages
  std::uint64_t address = 0;  ///< of its header, as printed by `map`
  std::uint64_t begin = 0;    ///< a multiple of a chunk's rows; of a scalar 0 to 1
  std::uint64_t end = 0;
  std::uint64_t offset = 0;  ///< bytes from the start of the target
};

/// Writes rows of datasets, decoded, row-major and little-endian, into an open file. The request on standard
/// input: u64 bytes that this gives, u32 count, then each: text dataset, u64 address, u64 begin, u64 end, u64 offset.
/// At most one chunk, or 16 MiB, are held at a time, and every chunk is decoded once.
int decode(const Range& range, const std::vector<Rows>& wanted, int target);
