#include "engine/io/volume_facts.hpp"

#include <fmt/format.h>
#include <sys/quota.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/io/system_file.hpp"
#include "format/checked.hpp"
#include "format/little_endian.hpp"

namespace ckpt {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::uint64_t number_in(const std::string& path) {
  return std::strtoull(first_line(path).c_str(), nullptr, 10);
}

std::optional<DeviceFacts> look_at_device(const std::string& root, const std::string& numbers) {
  const std::string device = root + "/sys/dev/block/" + numbers;
  std::error_code none;
  if (!std::filesystem::exists(device, none)) return std::nullopt;
  // A partition has no queue: its disk's queue is one directory up.
  const std::string disk = std::filesystem::exists(device + "/queue", none) ? device : device + "/..";
  return DeviceFacts{.scheduler = chosen_word(first_line(disk + "/queue/scheduler")),
                     .rotational = number_in(disk + "/queue/rotational") == 1,
                     .raid_level = first_line(disk + "/md/level"),
                     .raid_chunk = number_in(disk + "/md/chunk_size"),
                     .raid_disks = number_in(disk + "/md/raid_disks"),
                     .raid_missing = number_in(disk + "/md/degraded")};
}

std::optional<std::uint64_t> quota_left(const Mount& mount) {
  if (!mount.source.starts_with("/dev/")) return std::nullopt;
  dqblk quota{};
  if (::quotactl(QCMD(Q_GETQUOTA, USRQUOTA), mount.source.c_str(), static_cast<int>(::getuid()),
                 reinterpret_cast<caddr_t>(&quota)) != 0) {
    return std::nullopt;
  }
  constexpr std::uint64_t unit = 1024;
  std::uint64_t limit = 0;
  if (quota.dqb_bhardlimit == 0 || __builtin_mul_overflow(quota.dqb_bhardlimit, unit, &limit)) return std::nullopt;
  return limit - std::min<std::uint64_t>(limit, quota.dqb_curspace);
}

/// Creates a directory and probes the operations that saves rely on.
ProbeResult try_directory(Io& io, const std::string& path) {
  ProbeResult out;
  const std::string own = join_path(path, fmt::format(".ckpt-doctor-{}", ::getpid()));
  if (auto made = io.make_dir(own); !made) {
    out.refused = made.error().message;
    return out;
  }
  const std::array<std::string, 3> names{join_path(own, "a"), join_path(own, "b"), join_path(own, "c")};
  const auto create = [&](const std::string& name) -> Result<> {
    CKPT_TRY(const FileHandle file, io.open(name, {.mode = OpenOptions::Mode::write_new, .direct = true}));
    out.direct = io.is_direct(file);
    auto reserved = io.allocate(file, kAlignment);
    auto synced = io.sync(file);
    auto closed = io.close(file);
    if (!reserved) return reserved;
    if (!synced) return synced;
    return closed;
  };
  auto created = create(names[0]);
  if (created) created = create(names[1]);
  out.writable = created.has_value();
  if (!created) out.refused = created.error().message;
  if (auto first = io.lock(own, LockMode::exclusive)) {
    const auto second = io.lock(own, LockMode::shared);
    out.locks = !second && second.error().code == Errc::locked;
  }
  out.renames = io.rename(names[0], names[2], RenameMode::no_replace).has_value();
  out.exchange = io.rename(names[1], names[2], RenameMode::exchange).has_value();
  for (const std::string& name : names) static_cast<void>(io.unlink(name));
  static_cast<void>(io.remove_dir(own));
  return out;
}

}  // namespace

Result<VolumeFacts> read_volume_facts(Io& io, const std::string& path, const std::string& root) {
  CKPT_TRY(const FileInfo info, io.stat(path));
  if (info.kind != FileInfo::Kind::directory) {
    return fail({.code = Errc::usage, .message = path + ": not a directory", .file = path});
  }
  std::error_code none;
  const std::filesystem::path whole = std::filesystem::canonical(path, none);
  VolumeFacts out{.path = path};
  out.mount = mount_of(parse_mounts(read_text(root + "/proc/self/mountinfo")), whole.string());
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) == 0) {
    out.total_bytes = checked_mul(status.f_blocks, status.f_frsize).value_or(0);
    out.free_bytes = checked_mul(status.f_bavail, status.f_frsize).value_or(0);
    out.total_inodes = status.f_files;
    out.free_inodes = status.f_favail;
  }
  if (out.mount) {
    out.quota_left = quota_left(*out.mount);
    out.device = look_at_device(root, out.mount->device);
    if (out.mount->type == "lustre") {
      std::array<char, 4096> attribute{};
      const ssize_t size = ::getxattr(path.c_str(), "lustre.lov", attribute.data(), attribute.size());
      if (size > 0) out.lustre = parse_lustre_stripes({attribute.data(), static_cast<std::size_t>(size)});
    }
  }
  out.tried = try_directory(io, path);
  return out;
}

std::optional<LustreStripes> parse_lustre_stripes(std::string_view attribute) {
  // magic u32, pattern u32, object id 16 bytes, stripe size u32, stripe count u16.
  constexpr std::array<std::uint32_t, 2> magics{0x0bd10bd0, 0x0bd30bd0};
  const auto number = [&](std::size_t at, std::size_t bytes) {
    return static_cast<std::uint32_t>(read_little_endian(attribute, at, bytes));
  };
  if (attribute.size() < 30 || std::ranges::find(magics, number(0, 4)) == magics.end()) return std::nullopt;
  return LustreStripes{.count = number(28, 2), .bytes = number(24, 4)};
}

}  // namespace ckpt
