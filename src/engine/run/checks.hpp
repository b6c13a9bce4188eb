#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "engine/run/crc_joiner.hpp"
#include "engine/run/fetch.hpp"
#include "engine/run/plan.hpp"
#include "format/result.hpp"

namespace ckpt {

/// A defect that a run found in the bytes of its source, and that does not stop it.
struct Discrepancy {
  enum class Kind : std::uint8_t {
    checksum,  ///< an entry's stored and computed CRC-32 differ
    values,    ///< bytes that should agree with those of another place do not
  } kind = Kind::checksum;
  std::uint32_t file = 0;      ///< index into Map::files
  std::uint64_t offset = 0;    ///< bytes: the begin of the entry, or the first element that differs
  std::uint32_t tensor = 0;    ///< index into Map::tensors, whose bytes were checked; kNoTensor for raw ranges
  std::uint32_t stored = 0;    ///< checksum
  std::uint32_t computed = 0;  ///< checksum
  /// values: the leaf of the plan, and the offset in it, of the other value.
  std::uint64_t leaf = 0;
  std::uint64_t leaf_offset = 0;
  std::uint64_t elements = 0;  ///< values: how many differ in this copy
};

/// A discrepancy as the failure of a run: `checksum` or `corrupt`, with file, offset and tensor.
Error as_error(const Discrepancy& discrepancy, const Map& map, const std::string& source_root);

/// The file of a map as the user can find it.
std::string path_of(const Map& map, std::uint32_t file, const std::string& root);

/// The entry whose checksum goes with a copy, which has one.
CrcJoiner::Entry entry_of(const Copy& copy);

/// Raw ranges of the source, in order, that a joiner lacks of partly read entries: running them with
/// the same joiner completes those. Entries that lack more than `most_missing` bytes are skipped, and
/// so are those in compressed streams, where padding is not decoded for itself. Empty: nothing is
/// missing.
TargetFile missing_ranges(const CrcJoiner& joiner, std::uint64_t most_missing);

/// Passes the bytes of a fetch to the joiner, for the checksums of entries that it covers. `segments`: their offsets in
/// the buffer, one for each of the fetch's. `checked` counts completed entries; `found` is called for each wrong one,
/// and its failure is returned.
Result<> check_crcs(const Fetch& fetch, std::span<const Segment> segments, const std::byte* buffer, CrcJoiner& joiner,
                    std::uint64_t& checked, const std::function<Result<>(const Discrepancy&)>& found);

/// Where a copy differs from the bytes already there.
struct Mismatch {
  std::uint64_t source_offset = 0;  ///< of the first element that differs, bytes from the start of the file
  std::uint64_t target_offset = 0;  ///< of its counterpart, bytes from the start of the leaf
  std::uint64_t elements = 0;       ///< that differ; 0 = none
};

/// Compares the elements of a copy (Copy::held is the dtype in the leaf) with the leaf: the leaf's elements, rounded to
/// `copy.to` if that differs, against the source's. For a cast, NaNs are equal whatever their payload. `source` holds
/// the file's bytes from `source_begin` on.
///
/// via  the leaf's elements are rounded to it before
Mismatch compare(const Copy& copy, const std::byte* source, std::uint64_t source_begin, const std::byte* leaf,
                 std::optional<Dtype> via = {});

}  // namespace ckpt
