#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/process/helper_process.hpp"
#include "format/model/model.hpp"

namespace ckpt::hdf5 {

/// The HDF5 file inside the file that holds it.
struct Range {
  std::string path{};
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t device = 0;  ///< of the file whose header was read; as the next
  std::uint64_t inode = 0;
  std::optional<Crc> crc{};  ///< of the entry of an archive

  /// For the helper, which opens the file by its name again.
  std::vector<std::string> words() const;
};

/// The location of a dataset's bytes.
struct Place {
  Shape shape{};
  Dtype dtype = Dtype::u8;
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> offset{};  ///< in the file that holds it; none: decoded, from `path`
  bool big_endian = false;
  std::string path{};
  std::uint64_t address = 0;
  std::uint64_t rows = 1;        ///< of the dataset as stored: its first dimension, else 1
  std::uint64_t chunk_rows = 1;  ///< datasets that are decoded together
};

/// Limits of the helper while it decodes, and its stop flag.
struct Decoding {
  std::uint64_t memory_bytes = 0;
  const std::atomic<bool>* stop = nullptr;
};

/// One chunk per tensor. Datasets that must be decoded are in a temporary file, which is removed with this: each
/// dataset has its place there, and the helper fills requested rows, about 64 MiB at a time, or many small datasets at
/// once. Regions are known without decoding.
class DecodedIndex final : public ChunkIndex {
 public:
  /// corrupt: sizes whose sum overflows.
  /// `scratch_file`: index in Map::files of the temporary file, 0 is the source
  static Result<DecodedIndex> make(Range range, std::vector<Place> places, std::optional<ScratchFile> scratch,
                                   std::uint32_t scratch_file, Decoding decoding);

  Result<> chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const override;
  Result<> regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const override;

 private:
  /// Rows of one dataset that are decoded together.
  struct Window {
    std::uint32_t tensor = 0;
    Extent rows{};
  };
  /// The windows of a tensor, and their bytes.
  struct Windows {
    std::size_t first = 0;
    std::uint64_t window_bytes = 0;
    std::uint64_t scratch_offset = 0;
  };

  DecodedIndex(Range range, std::vector<Place> places, std::optional<ScratchFile> scratch, std::uint32_t scratch_file,
               Decoding decoding);
  Result<> cut_windows();
  std::uint64_t bytes_of(const Window& window) const;
  Result<> decode(std::size_t batch) const;

  Range range_;
  std::vector<Place> places_;
  std::optional<ScratchFile> scratch_;
  std::uint32_t scratch_file_;
  std::uint64_t scratch_bytes_ = 0;  // once all is decoded
  Decoding decoding_;
  std::vector<Windows> of_tensor_;
  std::vector<Window> windows_;
  std::vector<std::size_t> batches_;   // first window of each: rows that one run of the helper decodes
  mutable std::vector<bool> decoded_;  // by batch
};

}  // namespace ckpt::hdf5
