#include "support/mesh_checkpoint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "format/universal/index_file.hpp"
#include "format/universal/seal.hpp"
#include "support/random_mesh.hpp"

namespace ckpt::test {
namespace {

using namespace universal;

void spill(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Cuts a tensor into boxes and flat pieces of boxes, and gives each to a writer.
void cut_anyhow(MeshCheckpoint& checkpoint, std::mt19937_64& random) {
  const auto row = static_cast<std::uint32_t>(checkpoint.manifest.tensors.size() - 1);
  const Tensor& tensor = checkpoint.manifest.tensors[row].tensor;
  std::vector<Box> boxes{Box::whole(tensor.shape)};
  for (std::size_t d = 0; d < tensor.shape.size() && volume(tensor.shape) != 0; ++d) {
    std::vector<Box> halves;
    for (const Box& box : boxes) {
      const std::uint64_t at = random() % (box.size[d] + 1);
      Box low = box;
      Box high = box;
      low.size[d] = at;
      high.offset[d] += at;
      high.size[d] -= at;
      if (low.size[d] != 0) halves.push_back(std::move(low));
      if (high.size[d] != 0) halves.push_back(std::move(high));
    }
    boxes = std::move(halves);
  }
  std::map<std::uint32_t, GivenChunks> given;
  const auto give = [&](Chunk chunk) {
    GivenChunks& mine = given[static_cast<std::uint32_t>(random() % 3)];
    mine.row = row;
    mine.chunks.push_back(std::move(chunk));
  };
  for (const Box& box : boxes) {
    const std::uint64_t elements = volume(box.size);
    const std::uint64_t at = random() % 2 == 0 || elements < 2 ? 0 : 1 + random() % (elements - 1);
    if (at == 0) {
      give({.box = box});
    } else {
      give({.box = box, .flat = Extent{at, elements}});
      give({.box = box, .flat = Extent{0, at}});
    }
  }
  for (auto& [writer, chunks] : given) checkpoint.irregular[writer].push_back(std::move(chunks));
}

}  // namespace

void MeshCheckpoint::add(Tensor tensor, std::uint32_t layout, std::uint64_t begin, std::mt19937_64& random) {
  std::string values(tensor_bytes(tensor.dtype, tensor.shape).value(), '\0');
  for (char& value : values) value = static_cast<char>(random());
  bytes.push_back(std::move(values));
  manifest.tensors.push_back({.tensor = std::move(tensor), .layout = layout, .begin = begin});
}

std::uint32_t MeshCheckpoint::writer_count() const {
  std::uint64_t count = irregular.empty() ? 1 : irregular.rbegin()->first + std::uint64_t{1};
  for (const Layout& layout : manifest.layouts) count = std::max(count, layout.mesh.writer_count().value());
  return static_cast<std::uint32_t>(count);
}

MeshCheckpoint random_mesh_checkpoint(std::mt19937_64& random) {
  static constexpr Role kRoles[] = {Role::param, Role::buffer, Role::slot, Role::blob};
  MeshCheckpoint out;
  out.manifest.id = hash128(std::to_string(random()));
  out.manifest.created = utc_text(0);
  out.manifest.layouts.clear();
  const std::uint64_t count = 1 + random() % 8;
  for (std::uint64_t i = 0; i < count; ++i) {
    MeshCase drawn = random_mesh_case(random);
    drawn.tensor.name = std::to_string(100 + i) + drawn.tensor.name;
    drawn.tensor.role = kRoles[random() % 4];
    if (drawn.tensor.dtype != Dtype::u8 || drawn.tensor.shape.size() != 1) drawn.tensor.role = kRoles[random() % 3];
    const std::uint64_t kind = random() % 6;
    if (kind == 0) drawn = {.layout = {}, .tensor = drawn.tensor};
    if (kind == 1) drawn = {.layout = {.kind = Layout::Kind::irregular}, .tensor = drawn.tensor};
    out.manifest.layouts.push_back(drawn.layout);
    out.add(std::move(drawn.tensor), static_cast<std::uint32_t>(i), drawn.begin, random);
    if (kind == 0) out.manifest.tensors.back().volume = static_cast<std::uint32_t>(random() % 3);
    if (kind == 1) cut_anyhow(out, random);
  }
  return out;
}

std::string chunk_bytes(const std::string& tensor_bytes, const Tensor& tensor, const Chunk& chunk) {
  const std::uint64_t bits = dtype_bits(tensor.dtype);
  const std::vector<std::uint64_t> elements = elements_of(chunk, tensor.shape);
  std::string out;
  if (bits % 8 == 0) {
    for (const std::uint64_t element : elements)
      out.append(tensor_bytes, static_cast<std::size_t>(element * bits / 8), static_cast<std::size_t>(bits / 8));
    return out;
  }
  // Whole bytes of a packed type: each begins with an element at a multiple of 8 bits, but for F6, whose second and
  // third bytes begin inside one.
  for (const std::uint64_t element : elements) {
    const std::uint64_t group_bytes = bits == 4 ? 1 : 3;
    if (element * bits % (8 * group_bytes) == 0)
      out.append(tensor_bytes, static_cast<std::size_t>(element * bits / 8), static_cast<std::size_t>(group_bytes));
  }
  return out;
}

void write_mesh_checkpoint(const MeshCheckpoint& checkpoint, const std::string& root) {
  const Manifest& manifest = checkpoint.manifest;
  std::vector<Shape> shapes;
  for (const TensorRow& row : manifest.tensors) shapes.push_back(row.tensor.shape);
  std::map<FileKey, std::pair<FileRecord, std::string>> files;
  for (std::uint32_t writer = 0; writer < checkpoint.writer_count(); ++writer) {
    const auto given = checkpoint.irregular.find(writer);
    WriterRequest request{.rows = manifest.tensors, .layouts = manifest.layouts, .id = manifest.id, .writer = writer};
    if (given != checkpoint.irregular.end()) request.irregular = given->second;
    const auto laid_out = lay_out_writer(request);
    ASSERT_TRUE(laid_out) << laid_out.error().message;
    IndexFile index{.id = manifest.id, .writer = writer};
    for (const WriterFile& file : *laid_out) {
      std::string bytes = file.header;
      for (const WriterEntry& entry : file.entries) {
        ASSERT_EQ(bytes.size(), entry.offset);
        const TensorRow& row = manifest.tensors[entry.row];
        bytes += chunk_bytes(checkpoint.bytes[entry.row], row.tensor, entry.chunk);
        if (manifest.layouts[row.layout].kind == Layout::Kind::irregular)
          index.chunks.push_back({entry.row, file.key.volume, entry.chunk, entry.offset});
      }
      ASSERT_EQ(bytes.size(), file.bytes);
      files[file.key] = {{.key = file.key, .bytes = file.bytes, .data_begin = file.data_begin}, std::move(bytes)};
    }
    if (index.chunks.empty()) continue;
    const auto text = build_index_file(index, shapes);
    ASSERT_TRUE(text) << text.error().message;
    const FileKey key{FileClass::index, writer, 0};
    files[key] = {{.key = key, .bytes = text->size()}, *text};
  }
  if (!checkpoint.objects.empty()) {
    const FileKey key{FileClass::objects, 0, 0};
    files[key] = {{.key = key, .bytes = checkpoint.objects.size()}, checkpoint.objects};
  }
  std::vector<FileRecord> records;
  std::vector<Hash128> leaves;
  for (const auto& [key, file] : files) {
    records.push_back(file.first);
    constexpr std::size_t kLeaf = std::size_t{1} << kLeafShift;
    for (std::size_t at = 0; at < file.second.size(); at += kLeaf)
      leaves.push_back(hash128(std::string_view(file.second).substr(at, kLeaf)));
    spill(root + "/" + key.path(), file.second);
  }
  const auto sealed = seal(manifest, std::move(records), std::move(leaves));
  ASSERT_TRUE(sealed) << sealed.error().message;
  spill(root + "/" + std::string(kSumsPath), sealed->sums);
  spill(root + "/" + std::string(kManifestCopyPath), sealed->manifest);
  spill(root + "/" + std::string(kManifestPath), sealed->manifest);
}

}  // namespace ckpt::test
