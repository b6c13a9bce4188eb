#pragma once

#include <string>
#include <vector>

#include "engine/io/io.hpp"
#include "format/files/zarr.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"

namespace ckpt {

/// Arrays of zarr, version 2, as tensors of a map: every chunk is a file of it.
class ZarrArrays {
 public:
  ZarrArrays(Io& io, std::string root) : io_(io), root_(std::move(root)) {}

  /// Adds the array in a folder.
  ///
  /// folder  below the root
  /// tensor  its name; type and shape are filled in
  /// errors  incomplete: a chunk is missing; corrupt: one of another size; those of zarr::parse_array and of Io
  Result<> add(const std::string& folder, Tensor tensor);

  /// Appends tensors, files and index to a map that has none, and every `.zarray` to the hash of its metadata.
  void finish(Map& map, Hasher& hasher);

 private:
  Result<> add_chunk(const zarr::Array& array, const std::string& folder, const Shape& at);

  struct Placed {
    std::size_t tensor = 0;
    Box box{};
    Locator where{};
  };
  Io& io_;
  std::string root_;
  std::vector<Tensor> tensors_{};
  std::vector<MapFile> files_{};
  std::vector<Placed> chunks_{};
  Hasher hasher_{};
};

}  // namespace ckpt
