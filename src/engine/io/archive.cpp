#include "engine/io/archive.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "engine/io/real_path.hpp"
#include "format/files/tar.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kMostMembers = std::size_t{1} << 18;
constexpr std::size_t kMostNameBytes = std::size_t{64} << 20;  // of all members together
constexpr std::size_t kMostPathBytes = 4096;                   // PATH_MAX of Linux

std::uint64_t whole_blocks(std::uint64_t bytes) {
  return (bytes + tar::kBlockBytes - 1) / tar::kBlockBytes * tar::kBlockBytes;
}

/// Reads an open archive from its begin to its end.
class ArchiveReader {
 public:
  ArchiveReader(Io& io, FileHandle file, Archive& out) : io_(io), file_(file), out_(out) {}

  Result<> run() {
    for (;;) {
      if (out_.info.bytes - at_ < tar::kBlockBytes) return cut_short("it ends without its end mark");
      std::array<char, tar::kBlockBytes> block{};
      CKPT_CHECK(io_.read_at(file_, at_, std::as_writable_bytes(std::span(block))));
      auto header = tar::parse_header({block.data(), block.size()});
      if (!header) return located(std::move(header).error());
      if (header->kind == tar::Header::Kind::end) {
        auto followed = follow_links();
        return followed ? followed : located(std::move(followed).error());
      }
      CKPT_CHECK(take(*std::move(header)));
    }
  }

 private:
  using Kind = tar::Header::Kind;

  /// A symbolic link.
  struct Link {
    std::string path;
    std::string says;
  };

  /// A header, and the data after it.
  Result<> take(tar::Header header) {
    const bool is_member = header.kind == Kind::file || header.kind == Kind::directory ||
                           header.kind == Kind::hard_link || header.kind == Kind::symlink || header.kind == Kind::other;
    if (header.kind == Kind::file && next_.has_bytes) header.bytes = next_.bytes;
    const std::uint64_t data = at_ + tar::kBlockBytes;
    if (header.bytes > out_.info.bytes - data || whole_blocks(header.bytes) > out_.info.bytes - data)
      return cut_short(fmt::format("'{}' continues past its end", next_.name.empty() ? header.name : next_.name));
    if (is_member) {
      if (!next_.name.empty()) header.name = next_.name;
      if (!next_.link.empty()) header.link = next_.link;
      next_ = {};
      if (auto added = add(header, {data, data + header.bytes}); !added) return located(std::move(added).error());
    } else if (auto said = describe(header, data); !said) {
      return located(std::move(said).error());
    }
    at_ = data + whole_blocks(header.bytes);
    return {};
  }

  /// A member that describes the next one.
  Result<> describe(const tar::Header& header, std::uint64_t data) {
    if (header.bytes > tar::kMostTextBytes) return fail(Errc::corrupt, "a name or records of over 1 MiB");
    std::string text(static_cast<std::size_t>(header.bytes), '\0');
    CKPT_CHECK(io_.read_at(file_, data, std::as_writable_bytes(std::span(text))));
    if (header.kind == Kind::long_name) next_.name = text.substr(0, text.find('\0'));
    if (header.kind == Kind::long_link) next_.link = text.substr(0, text.find('\0'));
    if (header.kind != Kind::records && header.kind != Kind::defaults) return {};
    CKPT_TRY(tar::Records records, tar::parse_records(text));
    if (header.kind == Kind::defaults) return {};  // comments; no writer states one path for all members
    if (!records.name.empty()) next_.name = std::move(records.name);
    if (!records.link.empty()) next_.link = std::move(records.link);
    next_.has_bytes = records.has_bytes;
    next_.bytes = records.bytes;
    return {};
  }

  Result<> add(const tar::Header& header, Extent data) {
    CKPT_TRY(const std::string path, tar::member_path(header.name));
    if (path.empty()) return {};
    if (path.size() > kMostPathBytes) return fail(Errc::unsupported, "a name of over 4096 bytes");
    Archive::Member member{.kind = FileInfo::Kind::other};
    if (header.kind == Kind::file) member = {.range = data};
    if (header.kind == Kind::symlink) {
      member.is_lost = true;
      links_.push_back({path, header.link});
    }
    if (header.kind == Kind::directory) member.kind = FileInfo::Kind::directory;
    if (header.kind == Kind::hard_link) {
      CKPT_TRY(const std::string target, tar::member_path(header.link));
      const auto found = out_.members.find(target);
      if (found != out_.members.end() && found->second.is_lost) {
        const auto link = std::ranges::find(links_, target, &Link::path);
        links_.push_back({path, link->says});
      } else if (found == out_.members.end() || found->second.kind != FileInfo::Kind::file)
        return fail(Errc::corrupt, fmt::format("hard link '{}': no earlier member is named '{}'", path, target));
      member = found->second;
    }
    for (std::string above = parent_path(path); above != "."; above = parent_path(above)) {
      const auto [folder, is_new] =
          out_.members.emplace(above, Archive::Member{.kind = FileInfo::Kind::directory, .range = {}});
      if (!is_new && folder->second.kind != FileInfo::Kind::directory)
        return fail(Errc::corrupt, fmt::format("'{}' is in '{}', which is no folder", path, above));
      if (!is_new) break;
      CKPT_CHECK(count(above));
    }
    const auto [there, is_new] = out_.members.emplace(path, member);
    if (is_new) return count(path);
    const bool are_folders =
        there->second.kind == FileInfo::Kind::directory && member.kind == FileInfo::Kind::directory;
    // Programs that unpack take the last one, after an update of the archive; which one is meant is not known here.
    return are_folders ? Result<>() : fail(Errc::unsupported, fmt::format("it holds '{}' twice", path));
  }

  /// Symbolic links are the files and folders that they lead to, as in a cache of the Hugging Face Hub: snapshots/REVISION/config.json
  /// leads to ../../blobs/HASH.
  Result<> follow_links() {
    follow_to_files();
    CKPT_CHECK(follow_to_folders());
    follow_to_files();  // through links to folders
    return {};
  }

  void follow_to_files() {
    constexpr int kMostSteps = 40;  // as Linux
    bool is_done = false;
    for (int step = 0; step < kMostSteps && !is_done; ++step) {
      is_done = true;
      for (const Link& link : links_) {
        Archive::Member& own = out_.members[link.path];
        const auto found = own.is_lost ? find_target(link) : out_.members.end();
        if (found == out_.members.end() || found->second.kind != FileInfo::Kind::file) continue;
        own = found->second;
        is_done = false;
      }
    }
  }

  /// What a folder holds is also in its link, but for what links in it lead to.
  Result<> follow_to_folders() {
    std::vector<std::pair<std::string, Archive::Member>> more;
    for (const Link& link : links_) {
      const auto found = find_target(link);
      if (found == out_.members.end() || found->second.kind != FileInfo::Kind::directory) continue;
      const std::string prefix = found->first + "/";
      if (link.path.starts_with(prefix)) continue;  // into itself
      more.emplace_back(link.path, found->second);
      for (auto at = out_.members.lower_bound(prefix); at != out_.members.end() && at->first.starts_with(prefix);
           ++at) {
        more.emplace_back(join_path(link.path, at->first.substr(prefix.size())), at->second);
        if (out_.members.size() + more.size() > kMostMembers) return too_many();
        CKPT_CHECK(count(more.back().first));
      }
    }
    for (auto& [path, member] : more) out_.members.insert_or_assign(std::move(path), member);
    return {};
  }

  std::map<std::string, Archive::Member, std::less<>>::iterator find_target(const Link& link) {
    const auto target = target_of(link.path, link.says);
    return target ? out_.members.find(*target) : out_.members.end();
  }

  /// The path in the archive that a link leads to; nothing if it leads out of it.
  static std::optional<std::string> target_of(const std::string& path, std::string_view link) {
    if (link.starts_with('/') || link.size() > kMostPathBytes) return std::nullopt;
    std::string out = parent_path(path);
    while (!link.empty()) {
      const std::size_t slash = std::min(link.find('/'), link.size());
      const std::string_view part = link.substr(0, slash);
      link.remove_prefix(std::min(slash + 1, link.size()));
      if (part.empty() || part == ".") continue;
      if (part == ".." && out == ".") return std::nullopt;
      out = part == ".." ? parent_path(out) : out == "." ? std::string(part) : join_path(out, part);
    }
    return out;
  }

  Result<> count(const std::string& path) {
    name_bytes_ += path.size();
    return out_.members.size() <= kMostMembers && name_bytes_ <= kMostNameBytes ? Result<>() : too_many();
  }

  static tl::unexpected<Error> too_many() {
    return fail(Errc::unsupported, fmt::format("more than {} members, or more than 64 MiB of names", kMostMembers));
  }

  tl::unexpected<Error> cut_short(const std::string& reason) const {
    return fail({.code = Errc::incomplete,
                 .message = fmt::format("{}: the tar archive is cut short: {}", out_.path, reason),
                 .file = out_.path,
                 .hint = "copy or download it again"});
  }

  tl::unexpected<Error> located(Error error) const {
    error.message = fmt::format("{}: the tar archive, at {}: {}", out_.path, at_, error.message);
    error.file = out_.path;
    if (error.code == Errc::unsupported && error.hint.empty())
      error.hint = "unpack it, and give the path of the folder";
    return fail(std::move(error));
  }

  Io& io_;
  FileHandle file_;
  Archive& out_;
  std::uint64_t at_ = 0;
  tar::Records next_{};
  std::vector<Link> links_{};
  std::size_t name_bytes_ = 0;
};

/// Of a file. Null if it is no archive.
Result<std::shared_ptr<const Archive>> read_archive(Io& io, const std::string& path) {
  CKPT_TRY(const FileHandle file, io.open(path, {}));
  auto out = std::make_shared<Archive>();
  bool is_archive = false;
  const auto read = [&]() -> Result<> {
    CKPT_TRY(out->info, io.info(file));
    if (out->info.bytes < tar::kBlockBytes) return {};
    std::array<char, tar::kBlockBytes> head{};
    CKPT_CHECK(io.read_at(file, 0, std::as_writable_bytes(std::span(head))));
    is_archive = tar::is_tar({head.data(), head.size()});
    if (!is_archive) return {};
    out->path = path;
    return ArchiveReader(io, file, *out).run();
  }();
  const auto closed = io.close(file);
  CKPT_CHECK(read);
  CKPT_CHECK(closed);
  if (!is_archive) return nullptr;
  out->real_path = real_path(path).value_or(path);
  return out;
}

/// "a/b" of "ARCHIVE/a/b", "" of the archive itself.
std::optional<std::string> rest_of(std::string_view whole, std::string_view archive) {
  if (!whole.starts_with(archive)) return std::nullopt;
  whole.remove_prefix(archive.size());
  if (whole.empty()) return "";
  if (whole.front() != '/') return std::nullopt;
  auto path = tar::member_path(whole);
  return path ? std::optional(*std::move(path)) : std::nullopt;
}

}  // namespace

std::optional<std::string> Archive::below(std::string_view whole) const {
  auto rest = rest_of(whole, path);
  return rest ? rest : rest_of(whole, real_path);
}

Result<std::shared_ptr<const Archive>> find_archive(Io& io, const std::string& path) {
  std::string at = join_path(path, "");
  for (;;) {
    const auto info = io.stat(at);
    if (info && info->kind == FileInfo::Kind::file) return read_archive(io, at);
    const std::string above = parent_path(at);
    if (info || above == at || at == "." || at.empty()) return nullptr;
    at = above;
  }
}

}  // namespace ckpt
