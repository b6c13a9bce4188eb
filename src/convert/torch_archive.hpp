#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/io/io.hpp"
#include "format/files/zip.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"
#include "format/torch/pickle.hpp"
#include "format/torch/torch_object.hpp"

namespace ckpt {

/// The location of one storage's bytes.
struct StoragePlace {
  std::uint64_t offset = 0;  ///< bytes from the start of the file
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;
};

/// One opened torch.save stream: in the zip form directory, local headers and data.pkl are read, in the legacy form the
/// pickles; no storage bytes. The stream may be the whole file or an item inside a larger one (.distcp).
struct TorchArchive {
  pickle::Graph graph;
  std::unordered_map<std::string, StoragePlace> storages{};
  bool has_crc = true;  ///< false: every entry has CRC 0, or the format has none
  bool big_endian = false;
  Extent pickle_bytes{};    ///< of the object's pickle, bytes from the start of the file
  Hash128 metadata_hash{};  ///< over the directory and data.pkl
  /// For a zip file: the folder of its entries. torch.save uses the name of the file, without the suffix, or "archive"
  /// if it writes to a stream.
  std::string folder{};

  /// The locator of a view: corrupt if its storage entry is missing or has another length than in the pickle, or the
  /// view's dtype is unknown. Dense views get no strides.
  Result<Locator> locate(const torch::TensorView& view, std::uint32_t file) const;
};

/// Opens the stream at bytes [stream.begin, stream.end) of an open file; `path` is for messages. Checks the CRC of
/// data.pkl. unsupported: tar, TorchScript; corrupt, refused as zip.hpp and pickle.hpp.
Result<TorchArchive> open_torch_archive(Io& io, FileHandle file, const std::string& path, Extent stream,
                                        const pickle::Budget& budget = {});

/// The text of .data/serialization_id of a file in the zip form; "" where it has none, as in the legacy form.
Result<std::string> read_serialization_id(Io& io, FileHandle file, const std::string& path, std::uint64_t file_bytes);

/// How a torch view becomes a tensor of the model: dtype, logical shape and true dtype (complex128 -> F64 with a last
/// dimension of 2, float4_e2m1fn_x2 -> F4 with the last dimension doubled). unsupported for quantised and bits types.
struct ModelType {
  Dtype dtype = Dtype::f32;
  Shape shape{};
  std::string true_dtype{};
};
Result<ModelType> model_type(const torch::TensorView& view);

}  // namespace ckpt
