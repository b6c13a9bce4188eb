#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert/dcp/item.hpp"
#include "convert/dcp/ranges.hpp"
#include "format/model/model.hpp"

namespace ckpt::dcp {

/// The meaning of a save's transforms: nothing if there is none.
/// errors  unsupported: any but one "stream.zstd/1"
/// source  torch/distributed/checkpoint/_extension.py (ZStandard)
Result<std::optional<Codec>> codec_of(const std::vector<std::string>& transforms);

/// Decodes an item once, from begin to end, and keeps its first and last bytes in `held` under its file, counted from
/// its first decoded byte: there a zip stream has all but the tensor. Held are at most kEndsBytes.
///
/// returns  how many bytes it decodes to
/// errors   as Decompressor; `compressed.bytes` bounds the decoded bytes
constexpr std::uint64_t kEndsBytes = 192 << 10;
Result<std::uint64_t> decode_ends(RangeReader& reader, std::uint32_t file, const Compressed& compressed,
                                  HeldRanges& held);

/// Opens an item whose ends are in memory: offsets in the result count decoded bytes. corrupt also if its directory or
/// its pickle is longer than the part in memory.
Result<OpenedItem> open_decoded(ItemOpener& opener, const HeldRanges& held, std::uint32_t file, std::uint64_t bytes);

}  // namespace ckpt::dcp
