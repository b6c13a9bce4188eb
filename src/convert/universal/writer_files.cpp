#include "convert/universal/writer_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "format/checked.hpp"
#include "format/universal/format_check.hpp"
#include "format/universal/mesh_pieces.hpp"

namespace ckpt::universal {
namespace {

tl::unexpected<Error> bad_place(Check check, const FileKey& key, std::string_view reason) {
  return violates(check,
                  Error{.message = fmt::format("{}: place tensors: {}", key.path(), reason), .file = key.path()});
}

tl::unexpected<Error> bad_tensor(Check check, const TensorRow& row, std::string_view reason) {
  return violates(check, Error{.message = fmt::format("{}: place tensors: {}", row.tensor.name, reason),
                               .tensor = row.tensor.name});
}

std::uint64_t bytes_of(const Chunk& chunk, Dtype dtype) {
  // Index files were checked against shapes, and those against dtypes: no product overflows.
  return chunk.volume() * dtype_bits(dtype) / 8;
}

}  // namespace

WriterFiles::WriterFiles(Parts parts, std::uint64_t kept_bytes) : parts_(std::move(parts)), kept_limit_(kept_bytes) {}

Result<WriterFiles> WriterFiles::make(Parts parts, std::uint64_t kept_bytes) {
  WriterFiles out(std::move(parts), kept_bytes);
  CKPT_CHECK(out.check_indexed());
  CKPT_CHECK(out.check_room());
  return out;
}

Result<> WriterFiles::check_indexed() const {
  for (const auto& [writer, index] : parts_.irregular) {
    for (const IndexedChunk& chunk : index.chunks) {
      const TensorRow& row = parts_.rows[chunk.row];
      if (parts_.layouts[row.layout].kind != Layout::Kind::irregular)
        return bad_place(Check::index_places, {FileClass::index, writer, 0},
                         row.tensor.name + " is not in an irregular layout");
      CKPT_TRY(const std::uint32_t number, file_of(chunk.row, writer, chunk.volume));
      const FileRecord& file = parts_.files[number];
      const std::uint64_t bytes = bytes_of(chunk.chunk, row.tensor.dtype);
      if (!is_whole_bytes(chunk.chunk, row.tensor))
        return bad_tensor(Check::whole_bytes, row, "a chunk does not begin and end on whole bytes");
      if (chunk.offset < file.data_begin || chunk.offset > file.bytes || bytes > file.bytes - chunk.offset)
        return bad_place(Check::index_places, file.key, row.tensor.name + " is outside the file");
    }
  }
  return {};
}

/// Layouts with a rule write every element once: the totals of files and tensors must be equal.
Result<> WriterFiles::check_room() const {
  if (!parts_.all_indexed) return {};
  std::uint64_t needed = 0;
  for (const TensorRow& row : parts_.rows) {
    if (parts_.layouts[row.layout].kind == Layout::Kind::irregular) continue;
    CKPT_TRY(const std::uint64_t bytes, tensor_bytes(row.tensor.dtype, row.tensor.shape));
    CKPT_TRY(needed, checked_add(needed, bytes));
  }
  for (const auto& [writer, index] : parts_.irregular) {
    for (const IndexedChunk& chunk : index.chunks) {
      CKPT_TRY(needed, checked_add(needed, bytes_of(chunk.chunk, parts_.rows[chunk.row].tensor.dtype)));
    }
  }
  std::uint64_t held = 0;
  for (const FileRecord& file : parts_.files) {
    if (file.data_begin == 0) continue;
    CKPT_TRY(held, checked_add(held, file.bytes - file.data_begin));
  }
  if (held != needed)
    return violates(Check::places,
                    fmt::format("sums.bin: place tensors: files hold {} bytes of tensors, but the manifest needs {}",
                                held, needed));
  return {};
}

WriterRequest WriterFiles::request(std::uint32_t writer, std::vector<GivenChunks>& given) const {
  given.clear();
  if (const auto at = parts_.irregular.find(writer); at != parts_.irregular.end()) {
    for (const IndexedChunk& chunk : at->second.chunks) {
      if (given.empty() || given.back().row != chunk.row) given.push_back({.row = chunk.row});
      std::vector<Chunk>& chunks = given.back().chunks;  // volumes are 0, 1, ... in some order
      if (chunks.size() <= chunk.volume) chunks.resize(chunk.volume + std::size_t{1});
      chunks[chunk.volume] = chunk.chunk;
    }
  }
  return {.rows = parts_.rows, .layouts = parts_.layouts, .id = parts_.id, .writer = writer, .irregular = given};
}

Result<std::uint32_t> WriterFiles::file_of(std::uint32_t row, std::uint32_t writer, std::uint32_t volume) const {
  const FileKey key{parts_.rows[row].file_class(), writer, volume};
  const auto at = std::lower_bound(parts_.files.begin(), parts_.files.end(), key,
                                   [](const FileRecord& file, const FileKey& k) { return file.key < k; });
  if (at == parts_.files.end() || at->key != key)
    return bad_tensor(Check::places, parts_.rows[row], "not listed in sums.bin: " + key.path());
  return static_cast<std::uint32_t>(at - parts_.files.begin());
}

Result<TensorPlace> WriterFiles::place(std::uint32_t row, std::uint32_t writer, std::uint32_t volume) {
  CKPT_TRY(const std::uint32_t file, file_of(row, writer, volume));
  CKPT_TRY(const std::shared_ptr<const Table> table, table_of(writer));
  auto at =
      static_cast<std::size_t>(std::lower_bound(table->rows.begin(), table->rows.end(), row) - table->rows.begin());
  while (at < table->rows.size() && table->rows[at] == row && table->volumes[at] != volume) ++at;
  if (at == table->rows.size() || table->rows[at] != row)
    return fail(Errc::internal, parts_.rows[row].tensor.name + ": place tensors: its writer does not write it");
  return TensorPlace{file, parts_.files[file].data_begin + table->offsets[at]};
}

Result<std::shared_ptr<const WriterFiles::Table>> WriterFiles::table_of(std::uint32_t writer) {
  if (const auto at = kept_.find(writer); at != kept_.end()) {
    uses_.splice(uses_.begin(), uses_, at->second.use);
    return at->second.table;
  }
  std::vector<GivenChunks> given;
  CKPT_TRY(const WriterPlaces places, place_writer(request(writer, given)));
  CKPT_CHECK(check_files(writer, places));
  auto table = std::make_shared<Table>();
  Hasher hasher;
  for (const WriterPlaces::Entry& entry : places.entries) {
    table->rows.push_back(entry.row);
    table->volumes.push_back(entry.volume);
    table->offsets.push_back(entry.offset);
  }
  hasher.update(std::as_bytes(std::span(table->rows)));
  hasher.update(std::as_bytes(std::span(table->volumes)));
  hasher.update(std::as_bytes(std::span(table->offsets)));
  table->hash = hasher.digest();
  std::weak_ptr<const Table>& alike = alike_[table->hash.hex()];
  std::shared_ptr<const Table> shared = alike.lock();
  if (shared == nullptr) {
    shared = std::move(table);
    alike = shared;
    kept_bytes_ += shared->bytes();
  }
  keep(writer, shared);
  return shared;
}

void WriterFiles::keep(std::uint32_t writer, std::shared_ptr<const Table> table) {
  uses_.push_front(writer);
  kept_[writer] = {std::move(table), uses_.begin()};
  while (kept_bytes_ > kept_limit_ && uses_.size() > 1) {
    const auto oldest = kept_.find(uses_.back());
    if (oldest->second.table.use_count() == 1) {
      kept_bytes_ -= oldest->second.table->bytes();
      alike_.erase(oldest->second.table->hash.hex());
    }
    kept_.erase(oldest);
    uses_.pop_back();
  }
}

/// The writer's records must be those of its files, no more and no fewer, each with room for exactly its entries.
Result<> WriterFiles::check_files(std::uint32_t writer, const WriterPlaces& places) const {
  auto file = places.files.begin();
  for (const FileClass file_class : {FileClass::weights, FileClass::optim, FileClass::blobs}) {
    auto record = std::lower_bound(parts_.files.begin(), parts_.files.end(), FileKey{file_class, writer, 0},
                                   [](const FileRecord& r, const FileKey& k) { return r.key < k; });
    for (; record != parts_.files.end() && record->key.file_class == file_class && record->key.writer == writer;
         ++record) {
      if (file == places.files.end() || record->key < file->key)
        return bad_place(Check::places, record->key, "contains no tensor");
      if (file->key < record->key) break;
      if (record->bytes - record->data_begin != file->data_bytes)
        return bad_place(Check::places, record->key,
                         fmt::format("{} bytes of tensors, but the layout gives it {}",
                                     record->bytes - record->data_begin, file->data_bytes));
      ++file;
    }
    if (file != places.files.end() && file->key.file_class == file_class)
      return bad_place(Check::places, file->key, "not listed in sums.bin");
  }
  return {};
}

}  // namespace ckpt::universal
