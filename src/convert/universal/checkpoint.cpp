#include "convert/universal/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ckpt::universal {
namespace {

Error about(const std::string& path, Errc code, std::string reason) {
  return {.code = code, .message = fmt::format("{}: open: {}", path, reason), .file = path};
}

Result<std::string> read_manifest(Io& io, const std::string& root, std::uint64_t limit) {
  const std::string path = join_path(root, kManifestPath);
  auto text = read_small_file(io, path, std::min(limit, kMaxManifestBytes));
  if (text || text.error().code != Errc::not_found) return text;
  Error error = about(root, Errc::uncommitted, "manifest.json is missing: the save or conversion never finished");
  error.hint = "it is not a checkpoint; run the command that was writing it again";
  return fail(std::move(error));
}

Result<Sums> read_sums(Io& io, const std::string& root, const Manifest& manifest, std::uint64_t limit) {
  const std::string path = join_path(root, kSumsPath);
  auto bytes = read_small_file(io, path, limit);
  if (!bytes) {
    if (bytes.error().code == Errc::not_found)
      return fail(about(path, Errc::incomplete, "the table of hashes is missing"));
    return fail(std::move(bytes).error());
  }
  if (bytes->size() != manifest.sums_bytes)
    return fail(about(path, Errc::corrupt,
                      fmt::format("{} bytes, but the manifest says {}", bytes->size(), manifest.sums_bytes)));
  if (const Hash128 hash = hash128(*bytes); hash != manifest.sums_hash)
    return fail(about(path, Errc::checksum,
                      fmt::format("the manifest says {} but the bytes give {}", manifest.sums_hash.hex(), hash.hex())));
  auto sums = parse_sums(std::as_bytes(std::span(*bytes)));
  if (!sums) return fail(with_file(std::move(sums).error(), path));
  if (sums->id != manifest.id) return fail(about(path, Errc::corrupt, "it belongs to another checkpoint"));
  return sums;
}

/// Looks at every file of sums.bin, and at the two that name them.
Result<> look_at_files(Io& io, const std::string& root, Checkpoint& checkpoint) {
  for (const FileRecord& record : checkpoint.sums.files) {
    MapFile file{.path = record.key.path(), .bytes = record.bytes};
    const std::string path = join_path(root, file.path);
    if (const auto info = io.stat(path); info) {
      if (info->kind != FileInfo::Kind::file) return fail(about(path, Errc::corrupt, "is not a file"));
      if (info->bytes != record.bytes)
        return fail(
            about(path, Errc::corrupt, fmt::format("{} bytes, but sums.bin says {}", info->bytes, record.bytes)));
      file.mtime_ns = info->mtime_ns;
    } else if (info.error().code == Errc::not_found) {
      checkpoint.missing.push_back(file.path);
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

}  // namespace

Result<Checkpoint> open_checkpoint(Io& io, const std::string& root, std::uint64_t metadata_limit) {
  if (base_name(root).find(".partial-") != std::string::npos)
    return fail(about(root, Errc::uncommitted, "a save or conversion that never finished"));
  Checkpoint out;
  CKPT_TRY(out.manifest_text, read_manifest(io, root, metadata_limit));
  auto manifest = parse_manifest(out.manifest_text);
  if (!manifest) return fail(with_file(std::move(manifest).error(), join_path(root, kManifestPath)));
  out.manifest = *std::move(manifest);
  CKPT_TRY(out.sums, read_sums(io, root, out.manifest, metadata_limit));
  CKPT_CHECK(look_at_files(io, root, out));
  auto places = place_whole(out.manifest, out.sums);
  if (!places) {
    Error error = std::move(places).error();
    error.file = join_path(root, error.file.empty() ? kManifestPath : std::string_view(error.file));
    return fail(std::move(error));
  }
  out.places = *std::move(places);
  return out;
}

}  // namespace ckpt::universal
