#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// Reverses the filters of a dataset's chunks in our own code: HDF5 accepts a chunk that decodes to fewer bytes than it
/// should have, and lets one that decodes to more grow.
class Filters {
 public:
  using Bytes = std::vector<unsigned char>;

  /// From a dataset's creation list; ends the process, unsupported, if it has a filter that is not supported. `path` is
  /// for that message.
  Filters(hid_t create, const std::string& path);

  /// `bytes` is a chunk as stored, afterwards decoded. False: damaged, or not of `chunk_bytes`.
  /// `skipped`: bit i is set if filter i was not applied.
  bool undo(Bytes& bytes, std::uint32_t skipped, std::size_t chunk_bytes);

 private:
  struct Filter {
    H5Z_filter_t id = 0;
    std::size_t element_bytes = 1;  // of shuffle
  };
  bool undo_one(const Filter& filter, Bytes& bytes, std::size_t most_bytes);

  std::vector<Filter> filters_;
  Bytes spare_;
};
