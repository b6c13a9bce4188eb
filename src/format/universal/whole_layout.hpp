#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "format/result.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/sums.hpp"

/// Layout `whole` of the universal format: FORMAT.md sections 4 and 6.
namespace ckpt::universal {

/// Data begins at a multiple of this many bytes in every shard, and large entries with it.
constexpr std::uint64_t kDataAlignment = 4096;

/// One tensor as in a shard.
struct Entry {
  std::string_view name;
  std::uint64_t bytes = 0;
  std::uint32_t tensor = 0;  ///< the caller's number
};

/// The first key of the order of entries: log2 of the largest power of two in their size, at most kDataAlignment.
int entry_alignment(std::uint64_t bytes);

/// Puts the entries of one file into their order: descending alignment of their sizes, then names.
void order_entries(std::vector<Entry>& entries);

/// Where a writer starts new volumes.
struct VolumeLimits {
  std::uint64_t file_bytes = 0;      ///< a file is at most this long, unless one tensor alone is longer
  std::uint64_t smallest_bytes = 0;  ///< no volume ends below this many bytes, nor with less to come
  std::uint64_t header_bytes = 0;    ///< a header is at most about this long
};
constexpr VolumeLimits kDefaultVolumes{
    .file_bytes = std::uint64_t{16} << 30, .smallest_bytes = std::uint64_t{256} << 20, .header_bytes = 20'000'000};

/// A tensor that is to get a volume.
struct Candidate {
  std::uint64_t bytes = 0;
  std::uint64_t header_bytes = 0;  ///< an upper bound of its share of the header
};

/// The volume of each tensor of a class, given in name order: 0, 0, 1, ...
/// errors  corrupt: the sizes overflow
Result<std::vector<std::uint32_t>> choose_volumes(std::span<const Candidate> tensors, const VolumeLimits& limits);

/// The location of a tensor.
struct TensorPlace {
  std::uint32_t file = 0;    ///< index into Sums::files
  std::uint64_t offset = 0;  ///< bytes from the start of the file
};

/// The place of every tensor of the manifest in layout `whole`, by arithmetic alone; others keep an empty one.
/// errors  corrupt, with file or tensor: a tensor whose file has no record, a file without tensors, or one whose size
///         is not that of its tensors
Result<std::vector<TensorPlace>> place_whole(const Manifest& manifest, const Sums& sums);

}  // namespace ckpt::universal
