#include "convert/extras.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/io/real_path.hpp"
#include "engine/run/checks.hpp"
#include "format/files/extra_names.hpp"
#include "format/model/joined_index.hpp"
#include "format/text/utf8.hpp"

namespace ckpt {
namespace {

tl::unexpected<Error> no_extra(const std::string& path, std::string reason) {
  return fail({.code = Errc::refused,
               .message = fmt::format("{}: {}", path, reason),
               .file = path,
               .hint = "--no-extras leaves out the model's extra files (config.json, tokenizer, ...)"});
}

/// "below" of "/a/b" and "/a/b/below/c".
bool is_below(const std::string& path, const std::string& folder) {
  return path.starts_with(folder + "/");
}

/// A link may lead to another file of the folder; in a Hugging Face cache snapshots/REVISION/config.json leads to
/// blobs/HASH.
/// source  huggingface_hub: file_download.py _create_symlink
Result<> check_link(const std::string& folder, const std::string& path) {
  const auto real = real_path(path);
  const auto home = real_path(folder);
  if (!real || !home) return no_extra(path, "a link to a file that is missing");
  const std::string above = parent_path(*home);
  const bool in_cache = base_name(above) == "snapshots" && is_below(*real, join_path(parent_path(above), "blobs"));
  if (is_below(*real, *home) || in_cache) return {};
  return no_extra(path, "a link that leads out of its folder");
}

struct FoundExtra {
  std::string name;  // relative to the folder
  FileInfo info;
};

class Folder {
 public:
  Folder(Io& io, std::string path) : io_(io), path_(std::move(path)) {}

  Result<std::vector<FoundExtra>> look(const std::set<std::string>& known) {
    CKPT_TRY(const auto entries, io_.list(path_));
    const bool is_model = std::ranges::any_of(entries, [](const DirEntry& e) { return marks_model_folder(e.name); });
    if (!is_model) return std::vector<FoundExtra>();
    for (const DirEntry& entry : entries) {
      if (entry.kind == FileInfo::Kind::directory) {
        if (entry.name == kChatTemplatesFolder) CKPT_CHECK(look_below(entry, known));
      } else if (is_extra_name(entry.name) && !known.contains(entry.name)) {
        CKPT_CHECK(take(entry.name, entry));
      }
    }
    return std::move(found_);
  }

 private:
  Result<> look_below(const DirEntry& folder, const std::set<std::string>& known) {
    if (folder.is_link) CKPT_CHECK(check_link(path_, join_path(path_, folder.name)));
    CKPT_TRY(const auto entries, io_.list(join_path(path_, folder.name)));
    for (const DirEntry& entry : entries) {
      const std::string name = join_path(folder.name, entry.name);
      if (entry.kind != FileInfo::Kind::directory && is_extra_name(name) && !known.contains(name))
        CKPT_CHECK(take(name, entry));
    }
    return {};
  }

  Result<> take(const std::string& name, const DirEntry& entry) {
    const std::string path = join_path(path_, name);
    if (entry.is_link) CKPT_CHECK(check_link(path_, path));
    if (entry.kind != FileInfo::Kind::file) return no_extra(path, "not a file");
    CKPT_TRY(const FileInfo info, io_.stat(path));
    if (info.kind != FileInfo::Kind::file) return no_extra(path, "not a file");
    if (info.bytes > kLargestExtra)
      return no_extra(path,
                      fmt::format("{} bytes; the limit for an extra file of a model is {}", info.bytes, kLargestExtra));
    bytes_ += info.bytes;
    if (bytes_ > kLargestExtras || found_.size() == kMostExtras)
      return no_extra(
          path, fmt::format("the extra files of the model exceed {} bytes or {} files", kLargestExtras, kMostExtras));
    found_.push_back({name, info});
    return {};
  }

  Io& io_;
  std::string path_;
  std::vector<FoundExtra> found_{};
  std::uint64_t bytes_ = 0;
};

/// Where the bytes of an extra are.
struct Stored {
  std::string path{};
  Extent range{};
};

Result<Stored> find_stored(const Map& map, const std::string& root, const Extra& extra) {
  const std::uint64_t bytes = map.tensors[extra.tensor].shape.front();
  std::optional<Locator> where;
  CKPT_CHECK(map.index->chunks(extra.tensor, {0, bytes}, [&](const PlacedChunk& placed) -> Result<> {
    if (!where && placed.chunk.volume() == bytes) where = placed.where;
    return {};
  }));
  if (bytes == 0) return Stored{};
  if (!where || where->compressed || !where->strides.empty())
    return fail(Errc::unsupported, extra.path + ": not stored contiguously");
  return Stored{.path = path_of(map, where->file, root), .range = {where->offset, where->offset + bytes}};
}

}  // namespace

std::string name_of_extra(const std::string& path, const std::unordered_set<std::string_view>& taken) {
  std::string name = "extras/" + path;
  while (taken.contains(name)) name.insert(0, "extras/");
  return name;
}

Result<> take_extras(Io& io, const std::string& root, const std::string& folder, Map& map) {
  std::set<std::string> known;
  for (const Extra& extra : map.extras) known.insert(extra.path);
  if (folder.empty()) {
    for (const MapFile& file : map.files) known.insert(file.path);
  }
  CKPT_TRY(const std::vector<FoundExtra> found, Folder(io, folder.empty() ? root : folder).look(known));
  if (found.empty()) return {};
  const auto first_tensor = static_cast<std::uint32_t>(map.tensors.size());
  const auto first_file = static_cast<std::uint32_t>(map.files.size());
  std::unordered_set<std::string> names;
  std::unordered_set<std::string_view> taken;
  for (const Tensor& tensor : map.tensors) names.insert(tensor.name);
  for (const Alias& alias : map.aliases) names.insert(alias.name);
  for (const std::string& name : names) taken.insert(name);
  ChunkTable table(found.size());
  Hasher elsewhere;
  elsewhere.update(map.metadata_hash);
  for (std::uint32_t i = 0; i < found.size(); ++i) {
    const auto& [name, info] = found[i];
    if (!is_utf8(name)) return no_extra(name, "a name that is not UTF-8");
    std::string blob = name_of_extra(name, taken);
    table.add(i, {info.bytes}, {.box = Box::whole({info.bytes})}, {.file = i, .dtype = Dtype::u8});
    map.tensors.push_back({.name = std::move(blob), .dtype = Dtype::u8, .shape = {info.bytes}, .role = Role::blob});
    map.files.push_back({.path = folder.empty() ? name : join_path(folder, name),
                         .bytes = info.bytes,
                         .mtime_ns = info.mtime_ns,
                         .device = info.device,
                         .inode = info.inode,
                         .ctime_ns = info.ctime_ns});
    map.extras.push_back({name, first_tensor + i});
    for (const std::uint64_t number :
         {static_cast<std::uint64_t>(name.size()), info.bytes, static_cast<std::uint64_t>(info.mtime_ns), info.inode})
      elsewhere.update_u64(number);
    elsewhere.update(name);
  }
  if (!folder.empty()) map.metadata_hash = elsewhere.digest().hex();
  table.seal();
  auto joined = std::make_shared<JoinedIndex>();
  joined->add(map.index, 0, 0);
  joined->add(std::make_shared<ChunkTable>(std::move(table)), first_tensor, first_file);
  map.index = std::move(joined);
  return {};
}

Result<std::string> read_extra(Io& io, const Map& map, const std::string& root, const Extra& extra,
                               std::uint64_t limit) {
  CKPT_TRY(const Stored stored, find_stored(map, root, extra));
  if (stored.range.size() > limit)
    return fail(
        {.code = Errc::corrupt, .message = fmt::format("{}: {} is over {} bytes", stored.path, extra.path, limit)});
  std::string text(static_cast<std::size_t>(stored.range.size()), '\0');
  if (text.empty()) return text;
  CKPT_TRY(const FileHandle file, io.open(stored.path, {}));
  const auto read = io.read_at(file, stored.range.begin, std::as_writable_bytes(std::span(text)));
  const auto closed = io.close(file);
  CKPT_CHECK(read);
  CKPT_CHECK(closed);
  return text;
}

Result<Hash128> hash_extra(Io& io, const Map& map, const std::string& root, const Extra& extra) {
  CKPT_TRY(const Stored stored, find_stored(map, root, extra));
  return hash_range(io, stored.path, stored.range);
}

Result<Hash128> hash_range(Io& io, const std::string& path, Extent range) {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
  Hasher hasher;
  if (range.size() == 0) return hasher.digest();
  CKPT_TRY(const FileHandle file, io.open(path, {}));
  std::vector<std::byte> room(static_cast<std::size_t>(std::min(kPiece, range.size())));
  Result<> read;
  for (std::uint64_t at = range.begin; read && at < range.end; at += room.size()) {
    const auto piece = std::span(room).first(static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, range.end - at)));
    read = io.read_at(file, at, piece);
    hasher.update(piece);
  }
  const auto closed = io.close(file);
  CKPT_CHECK(read);
  CKPT_CHECK(closed);
  return hasher.digest();
}

}  // namespace ckpt
