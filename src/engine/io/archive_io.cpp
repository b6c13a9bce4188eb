#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "engine/io/archive.hpp"
#include "engine/io/forwarding_io.hpp"

namespace ckpt {
namespace {

class ArchiveIo final : public ForwardingIo {
 public:
  ArchiveIo(Io& inner, std::shared_ptr<const Archive> archive) : ForwardingIo(inner), archive_(std::move(archive)) {}
  ArchiveIo(std::unique_ptr<Io> inner, std::shared_ptr<const Archive> archive)
      : ForwardingIo(std::move(inner)), archive_(std::move(archive)) {}

  Result<std::unique_ptr<Io>> new_instance() const override {
    CKPT_TRY(auto own, inner().new_instance());
    return make_archive_io(std::move(own), archive_);
  }

  Result<FileInfo> stat(const std::string& path) override {
    const auto inside = archive_->below(path);
    if (!inside) return ForwardingIo::stat(path);
    CKPT_TRY(const Archive::Member member, find(path, *inside));
    if (member.is_lost)
      return fail({.code = Errc::not_found, .message = path + ": a link to no file in the archive", .file = path});
    CKPT_TRY(const FileInfo whole, ForwardingIo::stat(archive_->path));
    return info_of(member, whole);
  }
  Result<std::vector<DirEntry>> list(const std::string& path) override {
    const auto inside = archive_->below(path);
    if (!inside) return ForwardingIo::list(path);
    CKPT_TRY(const Archive::Member folder, find(path, *inside));
    if (folder.kind != FileInfo::Kind::directory)
      return fail({.code = Errc::io, .message = path + ": list: Not a directory", .file = path});
    const std::string prefix = inside->empty() ? "" : *inside + "/";
    std::vector<DirEntry> out;
    for (auto at = archive_->members.lower_bound(prefix);
         at != archive_->members.end() && at->first.starts_with(prefix); ++at) {
      const std::string_view name = std::string_view(at->first).substr(prefix.size());
      if (name.find('/') == std::string_view::npos)
        out.push_back({std::string(name), at->second.kind, at->second.is_lost});
    }
    return out;
  }
  Result<FileHandle> open(const std::string& path, OpenOptions options) override {
    const auto inside = archive_->below(path);
    if (!inside) return ForwardingIo::open(path, options);
    CKPT_TRY(const Archive::Member member, find(path, *inside));
    if (member.kind != FileInfo::Kind::file || options.mode != OpenOptions::Mode::read)
      return fail({.code = Errc::io, .message = path + ": it is not a file, or is read only", .file = path});
    CKPT_TRY(const FileHandle file, ForwardingIo::open(archive_->path, {}));
    open_.emplace(file.value, member);
    return file;
  }

  Result<FileInfo> info(FileHandle file) override {
    CKPT_TRY(const FileInfo whole, ForwardingIo::info(file));
    const auto found = open_.find(file.value);
    return found == open_.end() ? whole : info_of(found->second, whole);
  }
  Result<> close(FileHandle file) override {
    open_.erase(file.value);
    return ForwardingIo::close(file);
  }
  Result<> read_at(FileHandle file, std::uint64_t offset, std::span<std::byte> data) override {
    const auto found = open_.find(file.value);
    if (found == open_.end()) return ForwardingIo::read_at(file, offset, data);
    const Extent range = found->second.range;
    if (offset > range.size() || data.size() > range.size() - offset)
      return fail(Errc::corrupt,
                  fmt::format("{}: read at {}: the member ends at {}", archive_->path, offset, range.size()));
    return ForwardingIo::read_at(file, range.begin + offset, data);
  }
  Result<> submit(const Request& request) override {
    const auto found = open_.find(request.file.value);
    if (found == open_.end()) return ForwardingIo::submit(request);
    const Extent range = found->second.range;
    Request moved = request;
    // What begins past the member's end reads the archive's: nothing.
    moved.offset = request.offset < range.size() ? range.begin + request.offset : archive_->info.bytes;
    if (request.offset < range.size())
      moved.bytes = static_cast<std::size_t>(std::min<std::uint64_t>(request.bytes, range.size() - request.offset));
    return ForwardingIo::submit(moved);
  }

 private:
  Result<Archive::Member> find(const std::string& path, const std::string& inside) const {
    if (inside.empty()) return Archive::Member{.kind = FileInfo::Kind::directory, .range = {}};
    const auto found = archive_->members.find(inside);
    if (found != archive_->members.end()) return found->second;
    return fail({.code = Errc::not_found, .message = path + ": not in the archive", .file = path});
  }

  static FileInfo info_of(const Archive::Member& member, FileInfo whole) {
    whole.kind = member.kind;
    whole.bytes = member.range.size();
    return whole;
  }

  std::shared_ptr<const Archive> archive_;
  std::unordered_map<int, Archive::Member> open_{};  // by handle
};

}  // namespace

std::unique_ptr<Io> make_archive_io(Io& inner, std::shared_ptr<const Archive> archive) {
  return std::make_unique<ArchiveIo>(inner, std::move(archive));
}

std::unique_ptr<Io> make_archive_io(std::unique_ptr<Io> inner, std::shared_ptr<const Archive> archive) {
  return std::make_unique<ArchiveIo>(std::move(inner), std::move(archive));
}

}  // namespace ckpt
