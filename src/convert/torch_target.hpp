#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/run/plan.hpp"
#include "format/model/box.hpp"

namespace ckpt {

/// A storage of a torch archive: the sources of its bytes.
struct TorchStorage {
  std::uint64_t bytes = 0;
  /// By offset from the storage's begin; they do not overlap, and each ends inside it. A tensor's offset is a multiple
  /// of its element size. Uncovered bytes are zero.
  std::vector<Placement> placements{};
};

/// One object as torch.save writes it.
struct TorchObject {
  /// The folder of the archive's entries: torch::archive_root of the file's name, or "archive" as in torch for a
  /// stream.
  std::string root = "archive";
  std::string pickle{};  ///< the object; its storages have the keys 0, 1, ... (pickle::Writer, torch::TensorPickler)
  std::vector<TorchStorage> storages{};  ///< by key
  std::string id{};                      ///< of the conversion: WriteRequest::id
};

/// Appends an object's zip archive to a file, at the next multiple of 64 bytes: its literal bytes, its storages'
/// placements, its checksums as late fields. The file grows to the archive's end.
///
/// returns  the offset of the archive in the file
Extent append_torch_object(TargetFile& file, TorchObject object);

/// A file that is one object.
///
/// path  below the target's root, "" = the root is the file
TargetFile torch_object_file(std::string path, TorchObject object);

}  // namespace ckpt
