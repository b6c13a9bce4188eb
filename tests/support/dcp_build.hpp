#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/model/box.hpp"
#include "format/model/value.hpp"

/// Directories of torch.distributed.checkpoint made by tests, as torch writes them and as it never would.
namespace ckpt::dcp_build {

struct StorageInfo {
  std::string file = "__0_0.distcp";
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::vector<std::string> transforms{};
};

/// One entry of the state dict: a tensor with chunks, or bytes.
struct Entry {
  std::string fqn;
  bool is_tensor = true;
  std::string dtype = "float32";
  std::string layout = "strided";
  Shape shape{};
  std::vector<Box> chunks{};
  std::vector<std::pair<std::optional<Shape>, StorageInfo>> records{};  ///< offset of the index -> place
  std::optional<Path> path{};                                           ///< planner_data
};

/// How `.metadata` is written: by release and Python.
struct Style {
  int protocol = 4;
  std::string metadata_module = "torch.distributed.checkpoint.metadata";
  std::string properties_module = "torch.distributed.checkpoint.metadata";
  std::string filesystem_module = "torch.distributed.checkpoint.filesystem";
  bool enum_by_value = true;  ///< _MEM_FORMAT_ENCODING(0); else getattr by name, as Python 3.12 and later may
  bool with_storage_meta = true;
  bool with_version = true;
  bool with_planner_data = true;
  std::string path_module = "pathlib";  ///< of storage_meta.checkpoint_id; Python 3.13 has pathlib._local
};

std::string metadata(const std::vector<Entry>& entries, const Style& style = {});

/// A torch.save stream of one object, and of one tensor over a storage.
struct Stream {
  std::uint64_t alignment = 64;
  bool with_crc = true;
  std::string_view byteorder = "little";
  unsigned extra_records = 0;  ///< after the others: they make the zip directory long
};
std::string save_object(const std::string& pickle, const Stream& stream = {});
struct View {
  std::string storage_class = "FloatStorage";
  std::uint64_t storage_elements = 0;
  std::uint64_t offset = 0;
  Shape shape{};
  Shape strides{};
};
std::string save_tensor(const View& view, const std::string& storage, const Stream& stream = {});

/// data.pkl of an int.
std::string integer_pickle(std::int64_t value);

}  // namespace ckpt::dcp_build
