#include "convert/universal/layout_index.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "format/model/chunk_form.hpp"
#include "format/universal/mesh_search.hpp"

namespace ckpt::universal {
namespace {

ChunkTable table_of(const WriterFiles& files) {
  ChunkTable table(files.rows().size());
  for (const auto& [writer, index] : files.irregular()) {
    for (const IndexedChunk& chunk : index.chunks) {
      const Tensor& tensor = files.rows()[chunk.row].tensor;
      const auto file = files.file_of(chunk.row, writer, chunk.volume);  // checked when `files` were made
      table.add(chunk.row, tensor.shape, as_run(chunk.chunk, tensor.shape),
                {.file = file.value_or(0), .offset = chunk.offset, .dtype = tensor.dtype});
    }
  }
  table.seal();
  return table;
}

}  // namespace

LayoutIndex::LayoutIndex(WriterFiles files) : files_(std::move(files)), irregular_(table_of(files_)) {}

Result<> LayoutIndex::chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const {
  const auto number = static_cast<std::uint32_t>(tensor);
  const TensorRow& row = files_.rows()[tensor];
  const Layout& layout = files_.layouts()[row.layout];
  if (layout.kind == Layout::Kind::irregular) return irregular_.chunks(tensor, elements, visit);
  if (layout.kind == Layout::Kind::whole) {
    if (volume(row.tensor.shape) == 0) return {};
    CKPT_TRY(const TensorPlace place, files_.place(number, 0, row.volume));
    return visit({.chunk = {.box = Box::whole(row.tensor.shape)},
                  .where = {.file = place.file, .offset = place.offset, .dtype = row.tensor.dtype}});
  }
  std::vector<std::pair<std::uint64_t, PlacedChunk>> found;  // by first element
  CKPT_CHECK(search_mesh(layout, row.tensor, row.begin, elements, [&](WrittenChunk written) -> Result<> {
    CKPT_TRY(const TensorPlace place, files_.place(number, written.writer, written.volume));
    Chunk chunk = as_run(std::move(written.chunk), row.tensor.shape);
    const std::uint64_t first = first_element(chunk, row.tensor.shape);
    found.emplace_back(first,
                       PlacedChunk{.chunk = std::move(chunk),
                                   .where = {.file = place.file, .offset = place.offset, .dtype = row.tensor.dtype}});
    return {};
  }));
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [first, placed] : found) CKPT_CHECK(visit(placed));
  return {};
}

Result<> LayoutIndex::regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const {
  const TensorRow& row = files_.rows()[tensor];
  const Layout& layout = files_.layouts()[row.layout];
  if (layout.kind == Layout::Kind::irregular) return irregular_.regions(tensor, elements, visit);
  if (layout.kind == Layout::Kind::whole) {
    if (volume(row.tensor.shape) == 0) return {};
    CKPT_CHECK(files_.file_of(static_cast<std::uint32_t>(tensor), 0, row.volume));
    return visit({.box = Box::whole(row.tensor.shape)});
  }
  return search_mesh(layout, row.tensor, row.begin, elements, [&](WrittenChunk written) -> Result<> {
    // A chunk without a file ends the search: no manifest can ask for more chunks than there are records.
    CKPT_CHECK(files_.file_of(static_cast<std::uint32_t>(tensor), written.writer, written.volume));
    return visit(as_run(std::move(written.chunk), row.tensor.shape));
  });
}

}  // namespace ckpt::universal
