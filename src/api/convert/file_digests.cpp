#include "api/convert/file_digests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "engine/io/stat_if_present.hpp"
#include "format/sha256.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;

struct StatedFile {
  const FileDigest* digest;
  std::uint64_t bytes;
};

class DigestReader {
 public:
  DigestReader(Session& session, Io& io, std::string root, std::string phase)
      : session_(session), io_(io), root_(std::move(root)), phase_(std::move(phase)) {}

  Result<DigestCheck> run(const std::vector<FileDigest>& digests) {
    std::vector<StatedFile> files;
    for (const FileDigest& digest : digests) {
      const std::string path = join_path(root_, digest.path);
      CKPT_TRY(const auto info, stat_if_present(io_, path));
      if (info && info->kind == FileInfo::Kind::file) {
        files.push_back({&digest, info->bytes});
        total_ += info->bytes;
      } else {
        check_.damage.push_back(
            {.severity = Severity::damage, .text = "a digest of it is stated, but it is missing", .file = path});
      }
    }
    for (const StatedFile& file : files) CKPT_CHECK(compare(file));
    return std::move(check_);
  }

 private:
  Result<> compare(const StatedFile& file) {
    const std::string path = join_path(root_, file.digest->path);
    CKPT_TRY(const FileHandle handle, io_.open(path, {}));
    auto digest = read(handle, file);
    auto closed = io_.close(handle);
    if (!digest) return fail(std::move(digest).error());
    CKPT_CHECK(std::move(closed));
    ++check_.files;
    if (*digest != file.digest->sha256)
      check_.damage.push_back({.severity = Severity::damage,
                               .text = fmt::format("sha256: expected {}, got {}", file.digest->sha256, *digest),
                               .file = path});
    return {};
  }

  Result<std::string> read(FileHandle handle, const StatedFile& file) {
    Sha256 hash;
    room_.resize(static_cast<std::size_t>(std::min(kPieceBytes, file.bytes)));
    for (std::uint64_t at = 0; at < file.bytes; at += room_.size()) {
      if (session_.is_stopped()) return fail(Errc::interrupted, "stopped");
      const auto piece =
          std::span(room_).first(static_cast<std::size_t>(std::min<std::uint64_t>(room_.size(), file.bytes - at)));
      CKPT_CHECK(io_.read_at(handle, at, piece));
      hash.update(piece);
      check_.bytes += piece.size();
      if (session_.progress) session_.progress({phase_, check_.bytes, total_, file.digest->path});
    }
    return hash.finish();
  }

  Session& session_;
  Io& io_;
  std::string root_;
  std::string phase_;
  std::uint64_t total_ = 0;
  std::vector<std::byte> room_{};
  DigestCheck check_{};
};

}  // namespace

Result<DigestCheck> check_digests(Session& session, Io& io, const std::string& root,
                                  const std::vector<FileDigest>& digests, const std::string& phase) {
  return DigestReader(session, io, root, phase).run(digests);
}

}  // namespace ckpt
