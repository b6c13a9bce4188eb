#include "convert/dcp/safetensors_blobs.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/files/safetensors.hpp"
#include "format/files/safetensors_metadata.hpp"
#include "format/text/error_context.hpp"

namespace ckpt::dcp {
namespace {

/// A stored chunk of a tensor.
struct Item {
  std::uint32_t file = 0;
  std::uint32_t entry = 0;
  std::uint64_t item = 0;
};

/// One file's blob while its tensors are looked up. `at` is its offset, bytes from the start of the file.
struct Blob {
  std::string path{};
  std::uint64_t at = 0;
  safetensors::Header header{};
  std::unordered_map<std::string_view, const safetensors::Entry*> entries{};  // of the header
  safetensors::SavedOffsets saved{};

  tl::unexpected<Error> corrupt(const std::string& tensor, std::string reason) const {
    return fail(Error{.code = Errc::corrupt,
                      .message = path + ": safetensors at " + std::to_string(at) + ": " + std::move(reason),
                      .file = path,
                      .offset = at,
                      .tensor = tensor});
  }
};

Result<std::string> read_header(Io& io, const std::string& path, std::uint64_t at, std::uint64_t bytes,
                                std::uint64_t& limit) {
  CKPT_TRY(const FileHandle file, io.open(path, {}));
  const auto read = [&]() -> Result<std::string> {
    std::string head(std::min<std::uint64_t>(bytes, safetensors::kLengthBytes), '\0');
    CKPT_CHECK(io.read_at(file, at, std::as_writable_bytes(std::span(head))));
    CKPT_TRY(const std::uint64_t whole, safetensors::header_bytes(std::as_bytes(std::span(head)), bytes));
    if (whole > limit) {
      return fail(Error{.code = Errc::memory, .message = "its header exceeds the limit of metadata"});
    }
    limit -= whole;
    head.resize(whole);
    CKPT_CHECK(io.read_at(file, at, std::as_writable_bytes(std::span(head))));
    return head;
  };
  auto head = read();
  CKPT_CHECK(io.close(file));
  return head;
}

Result<Blob> open_blob(Io& io, const std::string& path, std::uint64_t at, std::uint64_t file_bytes,
                       std::uint64_t& limit, Hasher& hasher) {
  Blob blob{.path = path, .at = at};
  const std::uint64_t bytes = file_bytes - std::min(at, file_bytes);
  const auto in_file = [&](Error error) {
    if (!error.file.empty()) return fail(std::move(error));  // of Io, which knows the place
    error.file = path;
    error.offset = at + error.offset.value_or(0);
    return fail(with_context(std::move(error), path + ": safetensors at " + std::to_string(at)));
  };
  auto head = read_header(io, path, at, bytes, limit);
  if (!head) return in_file(std::move(head).error());
  hasher.update(*head);
  auto header = safetensors::parse_header(std::as_bytes(std::span(*head)), bytes);
  if (!header) return in_file(std::move(header).error());
  blob.header = *std::move(header);
  for (const safetensors::Entry& entry : blob.header.entries) blob.entries.emplace(entry.name, &entry);
  for (const auto& [key, text] : blob.header.metadata) {
    if (key != safetensors::kSlicesKey) continue;
    auto saved = safetensors::parse_saved_offsets(text);
    if (!saved) return in_file(std::move(saved).error());
    blob.saved = *std::move(saved);
  }
  return blob;
}

/// The tensor's place in the blob, once blob and `.metadata` agree on it.
Result<Locator> locate(const Blob& blob, const Metadata& metadata, const Entry& entry, const StoredType& type,
                       const Item& item) {
  const auto found = blob.entries.find(entry.fqn);
  if (found == blob.entries.end()) return blob.corrupt(entry.fqn, "it has no tensor of this name");
  const safetensors::Entry& stored = *found->second;
  if (stored.dtype != type.dtype) {
    return blob.corrupt(entry.fqn, "its dtype is " + std::string(dtype_name(stored.dtype)) + ", .metadata says " +
                                       metadata.dtypes[entry.dtype]);
  }
  const Box box = metadata.box(entry, item.item);
  if (stored.shape != in_model(box, type).size) {
    return blob.corrupt(entry.fqn, "its shape differs from the chunk in .metadata");
  }
  if (const auto saved = blob.saved.find(entry.fqn); saved != blob.saved.end() && saved->second != box.offset) {
    return blob.corrupt(entry.fqn, "its saved_offsets differ from the chunk in .metadata: another rank's file?");
  }
  return Locator{.file = item.file, .offset = blob.at + blob.header.data_begin + stored.begin, .dtype = type.dtype};
}

std::vector<Item> tensors_by_file(const Metadata& metadata) {
  std::vector<Item> items;
  for (std::uint32_t e = 0; e < metadata.entries.size(); ++e) {
    const Entry& entry = metadata.entries[e];
    for (std::uint64_t i = entry.first_item; entry.is_tensor && i < entry.first_item + entry.item_count; ++i) {
      items.push_back({metadata.item_file[i], e, i});
    }
  }
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return std::tie(a.file, a.entry, a.item) < std::tie(b.file, b.entry, b.item);
  });
  return items;
}

}  // namespace

Result<bool> holds_safetensors(Io& io, const std::string& root, const Metadata& metadata,
                               std::span<const MapFile> files) {
  const auto tensor = std::find_if(metadata.entries.begin(), metadata.entries.end(),
                                   [](const Entry& entry) { return entry.is_tensor && entry.item_count > 0; });
  if (tensor == metadata.entries.end()) return false;
  const MapFile& file = files[metadata.item_file[tensor->first_item]];
  const std::uint64_t begin = metadata.item_offset[tensor->first_item];
  std::array<std::byte, 9> head{};  // length of the header, and its first character
  if (file.bytes < head.size() || begin > file.bytes - head.size()) return false;
  CKPT_TRY(const FileHandle handle, io.open(join_path(root, file.path), {}));
  const Result<> done = io.read_at(handle, begin, head);
  CKPT_CHECK(io.close(handle));
  CKPT_CHECK(done);
  return std::memcmp(head.data(), "PK\3\4", 4) != 0 && head[8] == std::byte{'{'};
}

Result<std::shared_ptr<const ChunkIndex>> index_safetensors(Io& io, const std::string& root, const Metadata& metadata,
                                                            std::span<const StoredType> types,
                                                            std::span<const MapFile> files, std::uint64_t limit,
                                                            Hasher& hasher) {
  auto table = std::make_shared<ChunkTable>(metadata.entries.size());
  for (std::size_t e = 0; e < metadata.entries.size(); ++e) {
    const Entry& entry = metadata.entries[e];
    if (entry.is_tensor) continue;
    const Shape shape{metadata.item_length[entry.first_item]};
    if (shape[0] == 0) continue;
    table->add(e, shape, Chunk{.box = Box::whole(shape)},
               {.file = metadata.item_file[entry.first_item],
                .offset = metadata.item_offset[entry.first_item],
                .dtype = Dtype::u8});
  }
  const std::vector<Item> items = tensors_by_file(metadata);
  for (std::size_t begin = 0; begin < items.size();) {
    const std::uint32_t file = items[begin].file;
    const std::uint64_t at = metadata.item_offset[items[begin].item];
    CKPT_TRY(const Blob blob, open_blob(io, join_path(root, files[file].path), at, files[file].bytes, limit, hasher));
    std::size_t end = begin;
    for (; end < items.size() && items[end].file == file; ++end) {
      const Item& item = items[end];
      const Entry& entry = metadata.entries[item.entry];
      if (metadata.item_offset[item.item] != at) return blob.corrupt(entry.fqn, ".metadata has two blobs in this file");
      if (end > begin && items[end - 1].entry == item.entry) {
        return blob.corrupt(entry.fqn,
                            "two chunks of one tensor were saved to this file, but safetensors keeps only the last; "
                            "the others are lost");
      }
      const StoredType& type = types[item.entry];
      CKPT_TRY(Locator where, locate(blob, metadata, entry, type, item));
      table->add(item.entry, in_model(Box::whole(entry.shape), type).size,
                 Chunk{.box = in_model(metadata.box(entry, item.item), type)}, std::move(where));
    }
    begin = end;
  }
  table->seal();
  return table;
}

}  // namespace ckpt::dcp
