#include "format/universal/writer_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "format/checked.hpp"
#include "format/files/safetensors.hpp"
#include "format/files/safetensors_metadata.hpp"
#include "format/text/json_writer.hpp"
#include "format/universal/whole_layout.hpp"

namespace ckpt::universal {
namespace {

/// A chunk of a row that the writer writes, before it has its place.
struct Piece {
  std::uint32_t row = 0;
  std::uint32_t volume = 0;
  std::uint64_t bytes = 0;
  Chunk chunk{};
};

tl::unexpected<Error> broken_layout(const TensorRow& row, std::string_view reason) {
  return fail(
      {.code = Errc::internal, .message = fmt::format("{}: {}", row.tensor.name, reason), .tensor = row.tensor.name});
}

bool is_inside(const Chunk& chunk, const Shape& shape) {
  return fits(chunk.box, shape) &&
         (!chunk.flat || (chunk.flat->begin <= chunk.flat->end && chunk.flat->end <= volume(chunk.box.size)));
}

Result<std::uint64_t> chunk_bytes(const Chunk& chunk, const TensorRow& row) {
  CKPT_TRY(const std::uint64_t bits, checked_mul(chunk.volume(), dtype_bits(row.tensor.dtype)));
  if (bits % 8 != 0) return broken_layout(row, "a chunk that does not end on a whole byte");
  return bits / 8;
}

/// All pieces of one writer, class by class, rows in order.
class Collector {
 public:
  explicit Collector(const WriterRequest& request) : request_(request) {}

  Result<> run() {
    auto given = request_.irregular.begin();
    for (std::uint32_t i = 0; i < request_.rows.size(); ++i) {
      const TensorRow& row = request_.rows[i];
      if (i != 0 && request_.rows[i - 1].tensor.name >= row.tensor.name)
        return broken_layout(row, "rows are not sorted or not unique");
      if (row.layout >= request_.layouts.size()) return broken_layout(row, "a layout that does not exist");
      const bool is_given = given != request_.irregular.end() && given->row == i;
      const Layout& layout = request_.layouts[row.layout];
      if (is_given && layout.kind != Layout::Kind::irregular)
        return broken_layout(row, "chunks given for a layout with a rule");
      if (is_given) {
        CKPT_CHECK(take(i, given->chunks));
        ++given;
      } else if (layout.kind == Layout::Kind::whole) {
        if (request_.writer == 0) CKPT_CHECK(add(i, row.volume, {.box = Box::whole(row.tensor.shape)}));
      } else if (layout.kind == Layout::Kind::mesh) {
        CKPT_TRY(const std::vector<Chunk> chunks, written_chunks(layout, row.tensor, row.begin, request_.writer));
        CKPT_CHECK(take(i, chunks));
      }
    }
    if (given != request_.irregular.end())
      return fail(Errc::internal, "chunks of irregular layouts out of order, or of rows that do not exist");
    return {};
  }

  std::array<std::vector<Piece>, 3> classes{};  // weights, optim, blobs

 private:
  Result<> take(std::uint32_t row, const std::vector<Chunk>& chunks) {
    for (std::uint32_t k = 0; k < chunks.size(); ++k) CKPT_CHECK(add(row, k, chunks[k]));
    return {};
  }

  Result<> add(std::uint32_t number, std::uint32_t volume, Chunk chunk) {
    const TensorRow& row = request_.rows[number];
    if (!is_inside(chunk, row.tensor.shape)) return broken_layout(row, "a chunk outside of its tensor");
    CKPT_TRY(const std::uint64_t bytes, chunk_bytes(chunk, row));
    classes[static_cast<std::size_t>(row.file_class())].push_back({number, volume, bytes, std::move(chunk)});
    return {};
  }

  const WriterRequest& request_;
};

/// Puts the pieces of one class into files: by volume, then in the order of entries. Rows are in name order already.
void order_pieces(std::vector<Piece>& pieces) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return a.volume != b.volume ? a.volume < b.volume : entry_alignment(a.bytes) > entry_alignment(b.bytes);
  });
}

/// Calls `visit(volume, pieces)` for every file of a class.
template <class Visit>
Result<> each_file(const std::vector<Piece>& pieces, const Visit& visit) {
  for (std::size_t begin = 0; begin < pieces.size();) {
    std::size_t end = begin;
    while (end < pieces.size() && pieces[end].volume == pieces[begin].volume) ++end;
    CKPT_CHECK(visit(pieces[begin].volume, std::span(pieces).subspan(begin, end - begin)));
    begin = end;
  }
  return {};
}

/// How PyTorch's HuggingFaceStorageReader finds the place of every entry of a file: it needs all of them or none.
void put_saved_offsets(json::Writer& out, std::string_view name, const Chunk& chunk) {
  out.key(name).begin_object().key("saved_offsets");
  if (chunk.flat) {
    out.begin_array().value(chunk.flat->begin).end_array();
  } else {
    out.value(chunk.box.offset);
  }
  out.end_object();
}

Result<WriterFile> build_file(const WriterRequest& request, const FileKey& key, std::span<const Piece> pieces) {
  std::vector<std::uint64_t> flat_sizes(pieces.size());
  std::vector<safetensors::NewEntry> entries;
  entries.reserve(pieces.size());
  bool partial = false;
  bool flat = false;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Tensor& tensor = request.rows[pieces[i].row].tensor;
    const Chunk& chunk = pieces[i].chunk;
    safetensors::NewEntry entry{.name = tensor.name, .dtype = tensor.dtype, .shape = chunk.box.size};
    if (chunk.flat) {
      flat_sizes[i] = chunk.flat->size();
      entry.shape = std::span(&flat_sizes[i], 1);
      flat = true;
    }
    partial = partial || chunk.flat || chunk.box.size != tensor.shape;
    entries.push_back(entry);
  }
  safetensors::Metadata metadata{
      {std::string(safetensors::kFormatKey), "pt"},
      {std::string(kSeriesKey), series_text({.key = key, .id = request.id, .dcp_readable = !flat})}};
  if (partial) {
    std::string offsets;
    json::Writer out(offsets);
    out.begin_object();
    for (const Piece& piece : pieces) put_saved_offsets(out, request.rows[piece.row].tensor.name, piece.chunk);
    out.end_object();
    metadata.emplace_back(safetensors::kSlicesKey, std::move(offsets));
    metadata.emplace_back(safetensors::kSlicesVersionKey, "1.0");
  }
  CKPT_TRY(safetensors::BuiltHeader header, safetensors::build_header(entries, metadata, kDataAlignment));
  WriterFile file{
      .key = key, .bytes = header.file_bytes, .data_begin = header.bytes.size(), .header = std::move(header.bytes)};
  file.entries.reserve(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i)
    file.entries.push_back({pieces[i].row, pieces[i].chunk, header.offsets[i], pieces[i].bytes});
  return file;
}

}  // namespace

std::string series_text(const Series& series) {
  return fmt::format(R"({{"format":"{}","id":"{}","class":"{}","writer":{},"volume":{}{}}})", series.version,
                     series.id.hex(), class_name(series.key.file_class), series.key.writer, series.key.volume,
                     series.dcp_readable ? "" : R"(,"dcp_readable":false)");
}

Result<std::vector<WriterFile>> lay_out_writer(const WriterRequest& request) {
  Collector collector(request);
  CKPT_CHECK(collector.run());
  std::vector<WriterFile> files;
  for (std::uint32_t c = 0; c < collector.classes.size(); ++c) {
    order_pieces(collector.classes[c]);
    CKPT_CHECK(each_file(collector.classes[c], [&](std::uint32_t volume, std::span<const Piece> pieces) -> Result<> {
      CKPT_TRY(WriterFile file, build_file(request, {static_cast<FileClass>(c), request.writer, volume}, pieces));
      files.push_back(std::move(file));
      return {};
    }));
  }
  return files;
}

Result<WriterPlaces> place_writer(const WriterRequest& request) {
  Collector collector(request);
  CKPT_CHECK(collector.run());
  WriterPlaces places;
  for (std::uint32_t c = 0; c < collector.classes.size(); ++c) {
    order_pieces(collector.classes[c]);
    CKPT_CHECK(each_file(collector.classes[c], [&](std::uint32_t volume, std::span<const Piece> pieces) -> Result<> {
      std::uint64_t end = 0;
      for (const Piece& piece : pieces) {
        places.entries.push_back({piece.row, piece.volume, end, piece.bytes});
        CKPT_TRY(end, checked_add(end, piece.bytes));
      }
      places.files.push_back({.key = {static_cast<FileClass>(c), request.writer, volume},
                              .data_bytes = end,
                              .entry_count = static_cast<std::uint32_t>(pieces.size())});
      return {};
    }));
  }
  std::sort(places.entries.begin(), places.entries.end(),
            [](const auto& a, const auto& b) { return a.row != b.row ? a.row < b.row : a.volume < b.volume; });
  return places;
}

}  // namespace ckpt::universal
