#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/box.hpp"
#include "format/model/value.hpp"

namespace ckpt::dcp {

/// One item of a data file: a tensor's chunk, or a Python object.
struct NewItem {
  Box box{};               ///< tensor: in torch's elements, inside the shape; bytes: empty
  std::uint32_t file = 0;  ///< index into the data files
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

/// One entry of the state dict to be written.
struct NewEntry {
  std::string fqn;      ///< the flattened key, unique
  Path path{};          ///< where its value is in the nested state: dcp.load and dcp_to_torch rebuild that from it
  std::string dtype{};  ///< tensor: torch's name without "torch."; "" = a Python object
  Shape shape{};        ///< tensor: global, as torch counts elements
  std::vector<NewItem> items{};  ///< tensor: chunks that cover it once; bytes: one
};

/// What readers make of the keys.
enum class Keys : std::uint8_t {
  nested,  ///< torch flattened nested state, which readers rebuild by NewEntry::path
  flat,    ///< the state dict is flat, as megatron-core's: there are no paths
};

/// The bytes of `.metadata`, as torch 2.3 and later read it: the classes of torch.distributed.checkpoint.metadata, in
/// pickle protocol 2. About 200 bytes per item, like torch's own.
///
/// files    paths of the data files, relative to the checkpoint
/// save_id  goes into storage_meta: no reader uses it
/// source   torch/distributed/checkpoint/metadata.py, filesystem.py (_StorageInfo)
std::string build_metadata(std::span<const NewEntry> entries, std::span<const std::string> files,
                           std::string_view save_id, Keys keys = Keys::nested);

}  // namespace ckpt::dcp
