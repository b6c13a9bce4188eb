#include "writers/save_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "format/checked.hpp"
#include "format/index_file.hpp"
#include "format/writer_layout.hpp"

namespace ckpt {
namespace {

using universal::Layout;

Error usage(const std::string& tensor, std::string reason) {
  return {.code = Errc::usage, .message = fmt::format("save: {}: {}", tensor, reason), .tensor = tensor};
}

/// Bytes of chunks, of a dtype whose groups they do not cut.
std::uint64_t chunk_bytes(std::span<const Chunk> chunks, Dtype dtype) {
  std::uint64_t elements = 0;
  for (const Chunk& chunk : chunks) elements += chunk.volume();
  return elements * dtype_bits(dtype) / 8;
}

/// The dimension along which the boxes of a local array follow each other: the only one in which they differ.
std::size_t joined_dim(const std::vector<Chunk>& held) {
  for (std::size_t d = 0; d < held[0].box.size.size(); ++d) {
    if (held[0].box.offset[d] != held[1].box.offset[d]) return d;
  }
  return 0;
}

/// Where the held chunks stand in a rank's array: flat ranges one after another, boxes as parts of one row-major array.
std::vector<Locator> locate(const std::vector<Chunk>& held, Dtype dtype, std::uint32_t file) {
  std::vector<Locator> places(held.size(), Locator{.file = file, .dtype = dtype});
  const bool flat = std::any_of(held.begin(), held.end(), [](const Chunk& c) { return c.flat.has_value(); });
  if (held.size() == 1) return places;
  if (flat || joined_dim(held) == 0) {
    std::uint64_t elements = 0;
    for (std::size_t i = 0; i < held.size(); ++i) {
      places[i].offset = elements * dtype_bits(dtype) / 8;
      elements += held[i].volume();
    }
    return places;
  }
  const std::size_t dim = joined_dim(held);
  Shape local = held[0].box.size;
  local[dim] = 0;
  for (const Chunk& chunk : held) local[dim] += chunk.box.size[dim];
  const std::vector<std::int64_t> strides = row_major_strides(local);
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < held.size(); ++i) {
    places[i].offset = before * static_cast<std::uint64_t>(strides[dim]) * unit_bytes(dtype);
    places[i].strides = strides;
    before += held[i].box.size[dim];
  }
  return places;
}

class Builder {
 public:
  Builder(const SaveTable& table, const Hash128& id, std::uint32_t writer) : table_(table), id_(id), writer_(writer) {}

  Result<std::unique_ptr<SaveFiles>> build(std::span<const Piece> pieces) {
    index_ = std::make_shared<ChunkTable>(table_.rows.size());
    given_.assign(table_.rows.size(), false);
    for (const universal::TensorRow& row : table_.rows) out_->source.tensors.push_back(row.tensor);
    for (const Piece& piece : pieces) CKPT_CHECK(add(piece));
    index_->seal();
    out_->source.format = "memory";
    out_->source.index = index_;
    CKPT_CHECK(lay_out());
    return std::move(out_);
  }

 private:
  Result<> add(const Piece& piece) {
    const std::string& name = piece.described ? piece.described->name : piece.name;
    const auto found = table_.find(name);
    if (!found) {
      return fail(usage(name, piece.described ? "no rank holds its first element" : "it is not in the model"));
    }
    const universal::TensorRow& row = table_.rows[*found];
    const Layout& layout = table_.layouts[row.layout];
    std::vector<Chunk> held;
    if (piece.described) {
      if (!fits(piece.chunk.box, row.tensor.shape)) return fail(usage(name, "its part lies outside of the tensor"));
      if (piece.chunk.flat && piece.chunk.flat->end > volume(piece.chunk.box.size)) {
        return fail(usage(name, "its flat range passes the end of its box"));
      }
      held.push_back(piece.chunk);
      irregular_[*found].push_back(piece.chunk);
    } else {
      if (layout.kind != Layout::Kind::mesh) return fail(usage(name, "it is not in the model"));
      if (given_[*found]) return fail(usage(name, "given twice"));
      CKPT_TRY(held, universal::held_chunks(layout, row.tensor, row.begin, writer_));
    }
    given_[*found] = true;
    const std::uint64_t bytes = chunk_bytes(held, row.tensor.dtype);
    if (bytes != piece.memory.bytes) {
      return fail(usage(name, fmt::format("{} bytes were given, this rank's part has {}", piece.memory.bytes, bytes)));
    }
    if (held.empty()) return {};
    const auto file = static_cast<std::uint32_t>(out_->memory.size());
    out_->memory.push_back(piece.memory);
    out_->source.files.push_back({.path = name, .bytes = bytes});
    const std::vector<Locator> places = locate(held, row.tensor.dtype, file);
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (held[i].volume() != 0) index_->add(*found, row.tensor.shape, held[i], places[i]);
    }
    return {};
  }

  Result<> lay_out() {
    std::vector<universal::GivenChunks> irregular;
    for (auto& [row, chunks] : irregular_) irregular.push_back({.row = row, .chunks = std::move(chunks)});
    CKPT_TRY(
        std::vector<universal::WriterFile> files,
        universal::lay_out_writer(
            {.rows = table_.rows, .layouts = table_.layouts, .id = id_, .writer = writer_, .irregular = irregular}));
    universal::IndexFile index{.id = id_, .writer = writer_};
    for (universal::WriterFile& file : files) CKPT_CHECK(add_file(file, index));
    if (index.chunks.empty()) return {};
    std::vector<Shape> shapes;
    for (const universal::TensorRow& row : table_.rows) shapes.push_back(row.tensor.shape);
    CKPT_TRY(std::string text, universal::build_index_file(std::move(index), shapes));
    const universal::FileKey key{.file_class = universal::FileClass::index, .writer = writer_};
    TargetFile& target = new_target(key, text.size(), 0);
    target.placements.push_back(
        {.offset = 0, .bytes = text.size(), .from = Placement::From::literal, .literal = std::move(text)});
    return {};
  }

  Result<> add_file(universal::WriterFile& file, universal::IndexFile& index) {
    TargetFile& target = new_target(file.key, file.bytes, file.data_begin);
    target.header_bytes = file.data_begin;
    target.placements.push_back({.offset = 0,
                                 .bytes = file.header.size(),
                                 .from = Placement::From::literal,
                                 .literal = std::move(file.header)});
    for (const universal::WriterEntry& entry : file.entries) {
      const universal::TensorRow& row = table_.rows[entry.row];
      if (!given_[entry.row] && entry.bytes != 0) {
        return fail(usage(row.tensor.name, "this rank is to write a part of it, and was given none"));
      }
      if (table_.layouts[row.layout].kind == Layout::Kind::irregular) {
        index.chunks.push_back(
            {.row = entry.row, .volume = file.key.volume, .chunk = entry.chunk, .offset = entry.offset});
      }
      if (entry.bytes == 0) continue;
      target.placements.push_back({.offset = entry.offset,
                                   .bytes = entry.bytes,
                                   .tensor = entry.row,
                                   .chunk = entry.chunk,
                                   .dtype = row.tensor.dtype});
    }
    return {};
  }

  TargetFile& new_target(const universal::FileKey& key, std::uint64_t bytes, std::uint64_t data_begin) {
    out_->records.push_back({.key = key, .bytes = bytes, .data_begin = data_begin});
    out_->bytes += bytes;
    return out_->targets.emplace_back(TargetFile{.path = key.path(),
                                                 .bytes = bytes,
                                                 .file_class = static_cast<std::uint32_t>(key.file_class),
                                                 .writer = key.writer,
                                                 .volume = key.volume});
  }

  const SaveTable& table_;
  Hash128 id_;
  std::uint32_t writer_;
  std::unique_ptr<SaveFiles> out_ = std::make_unique<SaveFiles>();
  std::shared_ptr<ChunkTable> index_{};
  std::vector<bool> given_{};
  std::map<std::uint32_t, std::vector<Chunk>> irregular_{};
};

}  // namespace

Result<std::unique_ptr<SaveFiles>> lay_out_save(const SaveTable& table, std::span<const Piece> pieces,
                                                const Hash128& id, std::uint32_t writer) {
  return Builder(table, id, writer).build(pieces);
}

}  // namespace ckpt
