#include "convert/universal/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "convert/metadata_memory.hpp"
#include "engine/publish/publish.hpp"
#include "engine/store/run_directory.hpp"
#include "format/universal/format_check.hpp"

namespace ckpt::universal {
namespace {

tl::unexpected<Error> bad_file(Check check, const std::string& path, std::string_view reason) {
  return violates(check, Error{.message = fmt::format("{}: {}", path, reason), .file = path});
}

Result<std::string> read_manifest(Io& io, const std::string& root, std::uint64_t limit) {
  const std::string path = join_path(root, kManifestPath);
  auto text = read_metadata_file(io, path, MetadataCost::json, limit, kMaxManifestBytes);
  if (text || text.error().code != Errc::not_found) return text;
  if (io.stat(join_path(root, kManifestCopyPath)) && CheckpointName::parse(base_name(root)))
    return violates(
        Check::committed,
        Error{.message = fmt::format("{}: manifest.json is missing; its copy {} is there", root, kManifestCopyPath),
              .file = root,
              .hint = fmt::format("'ckpt repair {}' restores it from a whole copy", root)});
  return violates(Check::committed,
                  Error{.message = root + ": manifest.json is missing: the save or conversion never finished",
                        .file = root,
                        .hint = "this is not a checkpoint; run the command that was writing it again"});
}

Result<Sums> read_sums(Io& io, const std::string& root, const Manifest& manifest, std::uint64_t limit) {
  const std::string path = join_path(root, kSumsPath);
  auto bytes = read_metadata_file(io, path, MetadataCost::sums, limit);
  if (!bytes) {
    if (bytes.error().code == Errc::not_found)
      return bad_file(Check::sums_present, path, "the table of hashes is missing");
    return fail(std::move(bytes).error());
  }
  if (bytes->size() != manifest.sums_bytes)
    return bad_file(Check::sums_hash, path,
                    fmt::format("{} bytes, but the manifest says {}", bytes->size(), manifest.sums_bytes));
  if (const Hash128 hash = hash128(*bytes); hash != manifest.sums_hash)
    return bad_file(
        Check::sums_hash, path,
        fmt::format("the manifest has the hash {}, but the file has {}", manifest.sums_hash.hex(), hash.hex()));
  const auto table = std::as_bytes(std::span(*bytes));
  auto sums = parse_sums(table);
  if (!sums) return fail(with_file(std::move(sums).error(), path));
  if (sums->id != manifest.id || is_old_table(table) != (manifest.version == kOldVersion))
    return bad_file(Check::sums_id, path, "it belongs to another checkpoint");
  return sums;
}

/// The positions of a manifest's rows without those of dropped classes; empty if none was dropped.
struct Renumbering {
  static constexpr std::uint32_t kGone = UINT32_MAX;
  std::vector<Shape> shapes{};           ///< of all rows, as index files know them
  std::vector<std::uint32_t> numbers{};  ///< of all rows: the new one, or kGone
};

/// Removes dropped classes: FORMAT.md section 13.
Renumbering take_away_dropped(Checkpoint& checkpoint) {
  Manifest& manifest = checkpoint.manifest;
  Renumbering out;
  if (manifest.dropped.empty()) return out;
  std::uint32_t next = 0;
  std::set<std::string> gone;
  for (const TensorRow& row : manifest.tensors) {
    const bool dropped = manifest.is_dropped(row.file_class());
    if (dropped) gone.insert(row.tensor.name);
    out.shapes.push_back(row.tensor.shape);
    out.numbers.push_back(dropped ? Renumbering::kGone : next++);
  }
  std::erase_if(manifest.tensors, [&](const TensorRow& row) { return manifest.is_dropped(row.file_class()); });
  std::erase_if(manifest.aliases, [&](const Alias& alias) { return gone.contains(alias.target); });
  Sums kept{.id = checkpoint.sums.id};
  for (FileRecord& file : checkpoint.sums.files) {
    if (manifest.is_dropped(file.key.file_class)) continue;
    const auto leaves = checkpoint.sums.leaves_of(file);
    file.first_leaf = kept.leaves.size();
    kept.leaves.insert(kept.leaves.end(), leaves.begin(), leaves.end());
    kept.files.push_back(file);
  }
  checkpoint.sums = std::move(kept);
  return out;
}

/// Looks at every file of sums.bin, and at the two that name them.
Result<> look_at_files(Io& io, const std::string& root, bool salvage, Checkpoint& checkpoint) {
  for (const FileRecord& record : checkpoint.sums.files) {
    MapFile file{.path = record.key.path(), .bytes = record.bytes};
    const std::string path = join_path(root, file.path);
    const auto info = io.stat(path);
    const bool is_whole = info && info->kind == FileInfo::Kind::file && info->bytes == record.bytes;
    if (info && (is_whole || !salvage)) {
      if (info->kind != FileInfo::Kind::file) return bad_file(Check::file_size, path, "not a regular file");
      if (info->bytes != record.bytes)
        return bad_file(Check::file_size, path,
                        fmt::format("{} bytes, but sums.bin says {}", info->bytes, record.bytes));
      file.mtime_ns = info->mtime_ns;
    } else if (info || info.error().code == Errc::not_found) {
      checkpoint.missing.push_back(file.path);
      checkpoint.missing_records.push_back(checkpoint.files.size());
    } else {
      return fail(info.error());
    }
    checkpoint.files.push_back(std::move(file));
  }
  for (const std::string_view path : {kManifestPath, kSumsPath}) {
    CKPT_TRY(const FileInfo info, io.stat(join_path(root, path)));
    checkpoint.files.push_back({.path = std::string(path), .bytes = info.bytes, .mtime_ns = info.mtime_ns});
  }
  return {};
}

/// The existing index files, by writer. In a salvage a damaged one counts as missing: the data of its writer can no
/// longer be placed, and is lost.
Result<std::map<std::uint32_t, IndexFile>> read_indices(Io& io, const std::string& root, std::uint64_t limit,
                                                        bool salvage, Checkpoint& checkpoint, const Renumbering& rows) {
  std::map<std::uint32_t, IndexFile> out;
  std::vector<Shape> shapes = rows.shapes;
  for (std::size_t i = 0; i < checkpoint.sums.files.size(); ++i) {
    const FileRecord& file = checkpoint.sums.files[i];
    if (file.key.file_class != FileClass::index || checkpoint.is_missing(i)) continue;
    if (shapes.empty()) {
      for (const TensorRow& row : checkpoint.manifest.tensors) shapes.push_back(row.tensor.shape);
    }
    const std::uint64_t needed = memory_for(file.bytes, MetadataCost::index_file);
    if (needed > limit) return fail(over_metadata_limit(join_path(root, file.key.path()), file.bytes, needed, limit));
    limit -= needed;
    const auto read = read_hashed_file(io, root, checkpoint.sums, file, file.bytes);
    if (!read && salvage && read.error().code == Errc::checksum) {
      checkpoint.count_as_missing(i);
      continue;
    }
    CKPT_TRY(const std::string bytes, read);
    auto index = parse_index_file(std::as_bytes(std::span(bytes)), shapes);
    if (!index) return fail(with_file(std::move(index).error(), file.key.path()));
    if (index->id != checkpoint.manifest.id || index->writer != file.key.writer)
      return bad_file(Check::index_id, file.key.path(), "it belongs to another checkpoint or writer");
    if (!rows.numbers.empty()) {
      std::erase_if(index->chunks,
                    [&](const IndexedChunk& chunk) { return rows.numbers[chunk.row] == Renumbering::kGone; });
      for (IndexedChunk& chunk : index->chunks) chunk.row = rows.numbers[chunk.row];
    }
    out.emplace(file.key.writer, *std::move(index));
  }
  return out;
}

/// Step 5: rows against records.
Result<> place(Io& io, const std::string& root, std::uint64_t limit, bool salvage, Checkpoint& checkpoint,
               const Renumbering& rows) {
  const Manifest& manifest = checkpoint.manifest;
  const bool whole = std::all_of(manifest.tensors.begin(), manifest.tensors.end(), [&](const TensorRow& row) {
    return manifest.layouts[row.layout].kind == Layout::Kind::whole;
  });
  if (whole || manifest.is_virtual()) {
    CKPT_TRY(checkpoint.places, place_whole(manifest, checkpoint.sums));
    return {};
  }
  WriterFiles::Parts parts{
      .rows = manifest.tensors, .layouts = manifest.layouts, .id = manifest.id, .files = checkpoint.sums.files};
  CKPT_TRY(parts.irregular, read_indices(io, root, limit, salvage, checkpoint, rows));
  for (std::size_t i = 0; i < parts.files.size(); ++i) {
    if (parts.files[i].key.file_class == FileClass::index && checkpoint.is_missing(i)) parts.all_indexed = false;
  }
  CKPT_TRY(checkpoint.writers, WriterFiles::make(std::move(parts)));
  return {};
}

}  // namespace

Result<std::string> read_hashed_file(Io& io, const std::string& root, const Sums& sums, const FileRecord& file,
                                     std::uint64_t limit) {
  const std::string path = join_path(root, file.key.path());
  CKPT_TRY(std::string bytes, read_small_file(io, path, limit));
  const std::span<const Hash128> leaves = sums.leaves_of(file);
  constexpr std::uint64_t kLeaf = std::uint64_t{1} << kLeafShift;
  bool same = bytes.size() == file.bytes;
  std::size_t i = 0;
  for (; same && i < leaves.size(); ++i) same = hash128(std::string_view(bytes).substr(i * kLeaf, kLeaf)) == leaves[i];
  if (same) return bytes;
  const Check check = file.key.file_class == FileClass::index ? Check::index_hash : Check::objects_hash;
  return violates(check, Error{.message = path + ": the content does not match the hashes in sums.bin",
                               .file = path,
                               .offset = i == 0 ? 0 : (i - 1) * kLeaf});
}

void Checkpoint::count_as_missing(std::size_t record) {
  missing.push_back(files[record].path);
  missing_records.insert(std::ranges::lower_bound(missing_records, record), record);
}

Result<Checkpoint> open_checkpoint(Io& io, const std::string& root, std::uint64_t metadata_limit, bool salvage) {
  if (parse_partial_name(base_name(root)))
    return bad_file(Check::committed, root, "a save or conversion that never finished");
  Checkpoint out;
  CKPT_TRY(out.manifest_text, read_manifest(io, root, metadata_limit));
  auto manifest = parse_manifest(out.manifest_text);
  if (!manifest) return fail(with_file(std::move(manifest).error(), join_path(root, kManifestPath)));
  out.manifest = *std::move(manifest);
  CKPT_TRY(out.sums, read_sums(io, root, out.manifest, metadata_limit));
  const Renumbering rows = take_away_dropped(out);
  CKPT_CHECK(look_at_files(io, root, salvage, out));
  auto placed = place(io, root, metadata_limit, salvage, out, rows);
  if (!placed) {
    Error error = std::move(placed).error();
    if (!error.file.starts_with(root))
      error.file = join_path(root, error.file.empty() ? kManifestPath : std::string_view(error.file));
    return fail(std::move(error));
  }
  return out;
}

}  // namespace ckpt::universal
