#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/publish/publish.hpp"
#include "format/model/box.hpp"

/// Checkpoints of torch.distributed.checkpoint from the memory of many processes, which torch's planner has divided and
/// which agree without this library: one begins and publishes, all write. See ckpt/dcp.h.
namespace ckpt {

enum class DcpTarget : std::uint8_t { fresh, replace };

/// Begins the publication of a DCP directory; its partial has a name that every process can compute.
/// errors  target_exists, usage, locked: as Publication::begin
Result<std::unique_ptr<Publication>> begin_dcp_save(Io& io, const std::string& target, DcpTarget mode);

/// An item of a data file.
struct DcpItem {
  std::string dtype{};  ///< torch's name without "torch."; "": the bytes are the item
  Shape shape{};        ///< as torch counts elements
  std::span<const std::byte> bytes{};
};

struct DcpWriteOptions {
  unsigned threads = 2;  ///< that copy, and that write
  /// Called in the caller's thread with the bytes finished so far, and of the file; false stops.
  std::function<bool(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress{};
};

/// Writes a data file into the partial of a save that was begun, and syncs it.
///
/// returns  where each item is in the file
/// errors   usage: the name is not a data file's, the bytes of a tensor do not match its shape, the file exists;
///          not_found: no such save; unsupported: a dtype; interrupted: `progress` said so; no_space
Result<std::vector<Extent>> write_dcp_file(Io& io, const std::string& target, const std::string& name,
                                           std::span<const DcpItem> items, const DcpWriteOptions& options);

/// Commits the save.
Result<> publish_dcp_save(Publication& publication, std::string metadata);

}  // namespace ckpt
