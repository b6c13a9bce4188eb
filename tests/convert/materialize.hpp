#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "convert/write_request.hpp"
#include "engine/io/io.hpp"
#include "format/checked.hpp"
#include "format/model/model.hpp"

namespace ckpt {

inline std::string slurp(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

inline void spill(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

/// The bytes of a whole tensor, row-major, gathered from the boxes that the map names: slow, plain, and independent of
/// the planner and the engine. Packed dtypes must lie whole in one file.
inline std::string materialize(const Map& map, const std::string& root, std::size_t index) {
  const Tensor& tensor = map.tensors[index];
  std::string out(tensor_bytes(tensor.dtype, tensor.shape).value(), '\xee');
  const std::uint64_t unit = unit_bytes(tensor.dtype);
  const auto strides = row_major_strides(tensor.shape);
  const auto visited =
      map.index->chunks(index, {0, checked_volume(tensor.shape).value()}, [&](const PlacedChunk& placed) -> Result<> {
        const MapFile& file = map.files[placed.where.file];
        const std::string bytes = slurp(file.path.empty() ? root : root + "/" + file.path).substr(placed.where.offset);
        if (is_packed(tensor.dtype)) {
          out = bytes.substr(0, out.size());
          return {};
        }
        const Box& box = placed.chunk.box;
        if (placed.chunk.flat) {
          EXPECT_EQ(box, Box::whole(tensor.shape));
          const Extent flat = *placed.chunk.flat;
          std::memcpy(out.data() + flat.begin * unit, bytes.data(), flat.size() * unit);
          return {};
        }
        std::uint64_t from = 0;
        for (Shape at = box.offset; from < placed.chunk.volume(); ++from) {
          std::uint64_t to = 0;
          for (std::size_t d = 0; d < at.size(); ++d) to += at[d] * static_cast<std::uint64_t>(strides[d]);
          std::memcpy(out.data() + to * unit, bytes.data() + from * unit, unit);
          for (std::size_t d = at.size(); d-- > 0;) {
            if (++at[d] < box.offset[d] + box.size[d]) break;
            at[d] = box.offset[d];
          }
        }
        return {};
      });
  EXPECT_TRUE(visited.has_value());
  return out;
}

inline std::size_t index_of(const Map& map, std::string_view name) {
  for (std::size_t i = 0; i < map.tensors.size(); ++i) {
    if (map.tensors[i].name == name) return i;
  }
  return map.tensors.size();
}

/// Writes what a writer laid out, one placement after the other, and its small files from the leaves of that.
inline void write_out(const Skeleton& skeleton, const Map& source, const std::string& source_root,
                      const std::string& target) {
  std::vector<Hash128> leaves;
  for (const TargetFile& file : skeleton.files) {
    std::string bytes(file.bytes, '\0');
    for (const Placement& placement : file.placements) {
      const std::string part = placement.from == Placement::From::literal
                                   ? placement.literal
                                   : materialize(source, source_root, placement.tensor);
      ASSERT_EQ(part.size(), placement.bytes) << file.path;
      ASSERT_LE(placement.offset + placement.bytes, bytes.size()) << file.path;
      bytes.replace(placement.offset, part.size(), part);
    }
    spill(file.path.empty() ? target : target + "/" + file.path, bytes);
    for (std::uint64_t at = 0; at < file.bytes; at += kLeafBytes)
      leaves.push_back(hash128(std::string_view(bytes).substr(at, kLeafBytes)));
  }
  if (!skeleton.finish) return;
  const auto small = skeleton.finish(leaves);
  ASSERT_TRUE(small.has_value());
  for (const SmallFile& file : *small) spill(target + "/" + file.path, file.bytes);
}

}  // namespace ckpt
