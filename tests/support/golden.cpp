#include "support/golden.hpp"

#include <gtest/gtest.h>

#include <zstd.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>

#include "format/files/safetensors.hpp"
#include "format/hash.hpp"
#include "format/model/cast.hpp"

namespace ckpt {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  EXPECT_TRUE(in.is_open()) << path;
  std::string out(in.is_open() ? static_cast<std::size_t>(in.tellg()) : 0, '\0');
  in.seekg(0).read(out.data(), static_cast<std::streamsize>(out.size()));
  return out;
}

/// Whole files, each read once.
class Files {
 public:
  explicit Files(const ReadFile& read) : read_(read) {}
  /// All that the locator's offsets count in: the file, or the decoded bytes of a compressed range.
  std::string_view all(const std::string& path, const Locator& where) {
    return where.compressed ? decoded(path, *where.compressed) : whole(path);
  }

 private:
  std::string_view whole(const std::string& path) {
    const auto [at, is_new] = files_.try_emplace(path);
    if (is_new) at->second = read_(path);
    return at->second;
  }
  /// Decoded once, in one call.
  std::string_view decoded(const std::string& path, const Compressed& compressed) {
    const auto [at, is_new] = decoded_.try_emplace({path, compressed.stored.begin});
    if (is_new) {
      const std::string_view stored = whole(path).substr(compressed.stored.begin, compressed.stored.size());
      at->second.resize(compressed.bytes);
      const std::size_t got = ZSTD_decompress(at->second.data(), at->second.size(), stored.data(), stored.size());
      EXPECT_EQ(got, compressed.bytes) << path;
    }
    return at->second;
  }

  const ReadFile& read_;
  std::map<std::string, std::string> files_;
  std::map<std::pair<std::string, std::uint64_t>, std::string> decoded_;
};

/// Packed types are moved in groups along the last dimension: so many elements in so many bytes.
struct Unit {
  std::uint64_t elements = 1;
  std::uint64_t bytes = 1;
};
Unit unit_of(Dtype dtype) {
  if (dtype == Dtype::f4) return {2, 1};
  if (is_packed(dtype)) return {4, 3};
  return {1, unit_bytes(dtype)};
}
Shape in_units(Shape shape, Unit unit) {
  if (!shape.empty()) shape.back() /= unit.elements;
  return shape;
}

}  // namespace

std::string golden_root(const std::string& name) {
  return std::string(CKPT_GOLDEN_DIR) + "/" + name + "/ckpt";
}

GoldenCase load_golden(const std::string& name) {
  const std::string directory = std::string(CKPT_GOLDEN_DIR) + "/" + name;
  GoldenCase out{
      .root = directory + "/ckpt",
      .about = std::make_shared<nlohmann::json>(nlohmann::json::parse(read_file(directory + "/about.json")))};
  const std::string file = read_file(directory + "/truth.safetensors");
  const auto header = safetensors::parse_header(std::as_bytes(std::span(file)), file.size());
  if (!header) {
    ADD_FAILURE() << header.error().message;
    return out;
  }
  for (const safetensors::Entry& entry : header->entries) {
    const nlohmann::json names = out.about->value("names", nlohmann::json::object());
    GoldenCase::Truth truth{.key = entry.name, .dtype = entry.dtype, .shape = entry.shape};
    const std::string key = entry.name.substr(0, entry.name.find("#c128"));
    truth.name = names.value(key, key.substr(key.find('/') + 1));
    truth.bytes = file.substr(header->data_begin + entry.begin, entry.end - entry.begin);
    out.truth.push_back(std::move(truth));
  }
  return out;
}

namespace {

Gathered gather_with(const Map& map, const std::string& root, std::size_t tensor, Extent elements,
                     const ReadFile& read) {
  const Tensor& what = map.tensors[tensor];
  const Unit unit = unit_of(what.dtype);
  const Shape shape = in_units(what.shape, unit);
  Files files(read);
  Gathered out;
  out.bytes.assign(volume(shape) * unit.bytes, '\0');
  std::vector<std::uint32_t> seen(volume(shape), 0);
  const Result<> visited = map.index->chunks(tensor, elements, [&](const PlacedChunk& placed) -> Result<> {
    const bool derived = placed.where.dtype != what.dtype;
    EXPECT_TRUE(!derived || (is_castable(placed.where.dtype) && is_castable(what.dtype))) << what.name;
    const std::uint64_t stored_bytes = derived ? unit_bytes(placed.where.dtype) : unit.bytes;
    EXPECT_FALSE(placed.where.big_endian) << what.name;
    const Box box{in_units(placed.chunk.box.offset, unit), in_units(placed.chunk.box.size, unit)};
    Extent flat = placed.chunk.flat.value_or(Extent{0, volume(placed.chunk.box.size)});
    flat = {flat.begin / unit.elements, flat.end / unit.elements};
    const auto strides = placed.where.strides.empty() ? row_major_strides(box.size) : placed.where.strides;
    const std::string path =
        root + (map.files[placed.where.file].path.empty() ? "" : "/") + map.files[placed.where.file].path;
    const std::string_view all = files.all(path, placed.where);
    if (placed.where.crc) {
      const Crc& crc = *placed.where.crc;
      const std::string_view stored = all.substr(crc.begin, crc.end - crc.begin);
      out.crc_agrees = out.crc_agrees && crc32(0, std::as_bytes(std::span(stored))) == crc.value;
    }
    const Box whole = Box::whole(shape);
    Shape point;
    std::string rounded(unit.bytes, '\0');
    for (std::uint64_t i = flat.begin; i < flat.end; ++i) {
      point = box.offset;
      std::uint64_t at = 0;
      std::uint64_t rest = i;
      for (std::size_t d = box.size.size(); d-- > 0;) {
        at += rest % box.size[d] * static_cast<std::uint64_t>(strides[d]);
        point[d] += rest % box.size[d];
        rest /= box.size[d];
      }
      if (placed.where.strides.empty()) at = i - flat.begin;
      const std::uint64_t target = linear_index(whole, point);
      if (target * unit.elements < elements.begin || target * unit.elements >= elements.end) continue;
      std::string_view value = all.substr(placed.where.offset + at * stored_bytes, stored_bytes);
      if (value.size() != stored_bytes) return fail(Errc::corrupt, path + " is too short");
      if (derived) {
        CastCounts counts;
        cast(placed.where.dtype, std::as_bytes(std::span(value)).data(), what.dtype,
             std::as_writable_bytes(std::span(rounded)).data(), 1, counts);
        value = rounded;
      }
      char* slot = out.bytes.data() + target * unit.bytes;
      if (seen[target]++ != 0) {
        out.once = false;
        out.replicas_agree = out.replicas_agree && std::memcmp(slot, value.data(), unit.bytes) == 0;
      }
      std::memcpy(slot, value.data(), unit.bytes);
    }
    return {};
  });
  EXPECT_TRUE(visited.has_value()) << what.name << ": " << (visited ? "" : visited.error().message);
  for (std::uint64_t i = 0; i < seen.size(); ++i) {
    const bool wanted = i * unit.elements >= elements.begin && i * unit.elements < elements.end;
    out.complete = out.complete && (!wanted || seen[i] != 0);
  }
  return out;
}

}  // namespace

Gathered gather(const Map& map, const std::string& root, std::size_t tensor) {
  return gather(map, root, tensor, {0, volume(map.tensors[tensor].shape)});
}

Gathered gather(const Map& map, const std::string& root, std::size_t tensor, Extent elements) {
  return gather_with(map, root, tensor, elements, read_file);
}

Gathered gather(const Map& map, const std::string& root, std::size_t tensor, const ReadFile& read) {
  return gather_with(map, root, tensor, {0, volume(map.tensors[tensor].shape)}, read);
}

std::size_t find_tensor(const Map& map, const std::string& name) {
  for (std::size_t i = 0; i < map.tensors.size(); ++i) {
    if (map.tensors[i].name == name) return i;
  }
  ADD_FAILURE() << "no tensor " << name;
  return 0;
}

}  // namespace ckpt
