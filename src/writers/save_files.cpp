#include "writers/save_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "format/checked.hpp"
#include "format/universal/index_file.hpp"
#include "format/universal/local_array.hpp"
#include "format/universal/writer_layout.hpp"
#include "writers/descriptions.hpp"

namespace ckpt {
namespace {

using universal::Layout;

Error files_usage(const std::string& tensor, std::string reason) {
  return {.code = Errc::usage, .message = fmt::format("{}: {}", tensor, reason), .tensor = tensor};
}

/// The held part of a tensor, and the added one.
Result<> check_bytes(const Piece& piece, const Tensor& tensor, std::span<const Chunk> held) {
  const std::uint64_t bytes = chunk_bytes(held, tensor.dtype);
  if (bytes == piece.memory.bytes) return {};
  return fail(
      files_usage(tensor.name, fmt::format("{} bytes added, but this rank's part has {}", piece.memory.bytes, bytes)));
}

class Builder {
 public:
  Builder(const SaveTable& table, const Hash128& id, std::uint32_t writer) : table_(table), id_(id), writer_(writer) {}

  Result<std::unique_ptr<SaveFiles>> build(std::span<const Piece> pieces) {
    index_ = std::make_shared<ChunkTable>(table_.rows.size());
    given_.assign(table_.rows.size(), false);
    for (const universal::TensorRow& row : table_.rows) out_->source.tensors.push_back(row.tensor);
    for (const Piece& piece : pieces) CKPT_CHECK(add(piece));
    if (writer_ == 0) add_empty();
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
    if (!found) return fail(files_usage(name, "not in the model"));
    const universal::TensorRow& row = table_.rows[*found];
    const Layout& layout = table_.layouts[row.layout];
    std::vector<Chunk> held;
    if (piece.described) {
      held.push_back(piece.chunk);
      if (piece.chunk.volume() != 0) irregular_[*found].push_back(piece.chunk);
    } else {
      if (layout.kind != Layout::Kind::mesh) return fail(files_usage(name, "not in the model"));
      if (given_[*found]) return fail(files_usage(name, "given twice"));
      CKPT_TRY(held, universal::held_chunks(layout, row.tensor, row.begin, writer_));
    }
    given_[*found] = true;
    CKPT_CHECK(check_bytes(piece, row.tensor, held));
    if (held.empty()) return {};
    const auto file = static_cast<std::uint32_t>(out_->memory.size());
    out_->memory.push_back(piece.memory);
    out_->source.files.push_back({.path = name, .bytes = piece.memory.bytes});
    for (const LocalPart& part : local_parts(held, row.tensor.dtype)) {
      const Chunk& chunk = held[part.chunk];
      if (chunk.volume() == 0) continue;
      index_->add(*found, row.tensor.shape, chunk,
                  {.file = file, .offset = part.offset, .dtype = row.tensor.dtype, .strides = part.strides});
    }
    return {};
  }

  /// A tensor without elements has one chunk, on this rank, whichever rank described it.
  void add_empty() {
    for (std::uint32_t i = 0; i < table_.rows.size(); ++i) {
      const universal::TensorRow& row = table_.rows[i];
      if (table_.layouts[row.layout].kind == Layout::Kind::irregular && volume(row.tensor.shape) == 0)
        irregular_[i].push_back({.box = Box::whole(row.tensor.shape)});
    }
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
    const std::uint64_t bytes = text.size();
    TargetFile& target = new_target(key, bytes, 0);
    target.placements.push_back(
        {.offset = 0, .bytes = bytes, .from = Placement::From::literal, .literal = std::move(text)});
    return {};
  }

  Result<> add_file(universal::WriterFile& file, universal::IndexFile& index) {
    TargetFile& target = new_target(file.key, file.bytes, file.data_begin);
    target.header_bytes = file.data_begin;
    target.placements.push_back(
        {.offset = 0, .bytes = file.data_begin, .from = Placement::From::literal, .literal = std::move(file.header)});
    for (const universal::WriterEntry& entry : file.entries) {
      const universal::TensorRow& row = table_.rows[entry.row];
      if (!given_[entry.row] && entry.bytes != 0) {
        return fail(files_usage(row.tensor.name, "this rank must write a part of it, but none was added"));
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

Result<> check_piece(const Piece& piece, const Model& model, std::uint64_t rank) {
  if (piece.described) {
    CKPT_CHECK(check_description(model, *piece.described, piece.chunk));
    return check_bytes(piece, *piece.described, {&piece.chunk, 1});
  }
  const universal::TensorRow* row = model.find(piece.name);
  if (row == nullptr) return fail(files_usage(piece.name, "not in the model"));
  CKPT_TRY(const auto held, universal::held_chunks(model.layouts[row->layout], row->tensor, row->begin, rank));
  return check_bytes(piece, row->tensor, held);
}

Result<std::unique_ptr<SaveFiles>> lay_out_save(const SaveTable& table, std::span<const Piece> pieces,
                                                const Hash128& id, std::uint32_t writer) {
  return Builder(table, id, writer).build(pieces);
}

}  // namespace ckpt
