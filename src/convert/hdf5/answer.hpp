#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/model/box.hpp"
#include "format/result.hpp"

/// What `ckpt-h5 map` answers (helper/h5_map.hpp).
namespace ckpt::hdf5 {

constexpr unsigned kComplex128 = 254;
constexpr unsigned kNoType = 255;
constexpr std::uint64_t kNoOffset = ~std::uint64_t{0};

using Attributes = std::vector<std::pair<std::string, std::string>>;

struct FoundDataset {
  std::string path{};
  std::uint64_t address = 0;  ///< of its header, for the helper
  unsigned type = kNoType;    ///< a Dtype, or one of the two above
  bool big_endian = false;
  std::string type_text{};  ///< description for people, if there is no type
  Shape shape{};
  std::uint64_t offset = kNoOffset;  ///< from the start of the HDF5 file
  std::uint64_t stored_bytes = 0;
  std::uint64_t chunk_rows = 1;  ///< at least 1
  Attributes attributes{};
};

struct Answer {
  Attributes root{};
  std::vector<FoundDataset> datasets{};
  Attributes names{};  ///< further name, path of its dataset
  std::vector<std::string> notes{};
};

/// errors  corrupt: cut short, or more than that
Result<Answer> parse_answer(std::string_view bytes);

}  // namespace ckpt::hdf5
