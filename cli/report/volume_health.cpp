#include "cli/report/volume_health.hpp"

#include "format/text/quantity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ckpt::cli {
namespace {

constexpr std::array<std::string_view, 12> kShared{"nfs",  "nfs4", "lustre", "ceph", "beegfs",    "gpfs",
                                                   "cifs", "smb3", "afs",    "9p",   "glusterfs", "virtiofs"};
constexpr std::uint64_t kFewInodes = 10000;

/// Advice that changes the mount or its disk. That of the root file system concerns the whole machine: `system`, if it
/// was asked for.
std::string with_scope(const Mount& mount, const std::string& mend, bool system) {
  if (mount.point != "/") return mend;
  if (!system) return "'ckpt doctor --system' shows a change to the root file system of this machine";
  return "for the administrator of this machine: " + mend;
}

bool is_shared(const std::string& type) {
  return std::ranges::find(kShared, type) != kShared.end() || type.starts_with("fuse.");
}

void diagnose_type(const VolumeFacts& facts, std::vector<Diagnosis>& out) {
  constexpr std::string_view about = "file system";
  if (!facts.mount) {
    out.push_back({Health::note, std::string(about), "unknown file system"});
    return;
  }
  const Mount& mount = *facts.mount;
  const std::string what = fmt::format("{} at {}, from {}", mount.type, mount.point, mount.source);
  if (mount.type == "tmpfs" || mount.type == "ramfs") {
    out.push_back(
        {Health::warn, std::string(about), what + ": in memory, lost at reboot", "keep checkpoints on a disk"});
  } else if (mount.type == "overlay") {
    out.push_back({Health::warn, std::string(about), what + ": a container layer, slow and lost with the container",
                   "mount a volume into the container"});
  } else if (is_shared(mount.type)) {
    out.push_back({Health::note, std::string(about), what + ": shared with other hosts"});
  } else {
    out.push_back({Health::ok, std::string(about), what});
  }
}

void diagnose_options(const VolumeFacts& facts, bool system, std::vector<Diagnosis>& out) {
  if (!facts.mount) return;
  const Mount& mount = *facts.mount;
  const std::string again = fmt::format("mount -o remount,{{}} {}", mount.point);
  const auto add = [&](Health health, std::string text, const std::string& mend) {
    out.push_back({health, "mount options", std::move(text), with_scope(mount, mend, system)});
  };
  const auto remount = [&](std::string_view options) { return fmt::format(fmt::runtime(again), options); };
  if (mount.has("ro")) add(Health::fail, "mounted read-only", remount("rw"));
  if (mount.has("nobarrier") || mount.value_of("barrier") == "0") {
    add(Health::fail, "mounted without barriers: synced data can be lost at a power failure", remount("barrier=1"));
  }
  if (mount.has("discard")) {
    add(Health::note, "mounted with discard: deleting large files is slow",
        fmt::format("{}; then systemctl enable --now fstrim.timer", remount("nodiscard")));
  }
  if (mount.value_of("data") == "journal") {
    add(Health::warn, "data=journal: every byte is written twice", "remount with data=ordered");
  }
  if (mount.has("sync")) add(Health::warn, "mounted with sync: every write waits for the disk", remount("async"));
  if (mount.has("strictatime"))
    add(Health::note, "strictatime: every read updates the access time", remount("relatime"));
  const bool is_nfs = mount.type == "nfs" || mount.type == "nfs4";
  const std::string local_lock = mount.value_of("local_lock");
  if (is_nfs && (mount.has("nolock") || local_lock == "all" || local_lock == "flock")) {
    add(Health::fail,
        "locks do not reach other hosts: two hosts could save into one run; readers are known by claims only",
        "mount without nolock and with local_lock=none");
  }
  if (is_nfs && mount.has("soft")) {
    add(Health::warn, "soft mount: a slow server can fail a save", "mount with hard");
  }
  if (mount.type == "lustre" && !mount.has("flock")) {
    add(Health::fail,
        mount.has("localflock") ? "localflock: locks do not reach other hosts; readers are known by claims only"
                                : "mounted without flock: locks are refused",
        "mount with -o flock");
  }
}

void diagnose_try(const VolumeFacts& facts, std::vector<Diagnosis>& out) {
  const ProbeResult& tried = facts.tried;
  if (!tried.writable) {
    out.push_back({Health::fail, "writing", "cannot write here: " + tried.refused});
    return;
  }
  if (tried.direct) {
    out.push_back({Health::ok, "direct I/O", "O_DIRECT works: saves do not evict other data from the page cache"});
  } else {
    out.push_back({Health::note, "direct I/O", "O_DIRECT is refused: saves go through the page cache"});
  }
  if (tried.locks) {
    out.push_back({Health::ok, "locks", "locks work between processes of this host"});
  } else {
    out.push_back({Health::fail, "locks", "no locks: writers cannot be detected, and readers are known by claims only",
                   "use a file system with flock"});
  }
  if (!tried.renames) {
    out.push_back({Health::note, "renames", "RENAME_NOREPLACE is not supported: hard links are used instead"});
  }
  if (!tried.exchange) {
    out.push_back({Health::note, "renames",
                   "RENAME_EXCHANGE is not supported: --overwrite of a directory is refused here",
                   "convert to a new name"});
  }
}

void diagnose_device(const VolumeFacts& facts, bool system, std::vector<Diagnosis>& out) {
  if (facts.lustre) {
    const std::string stripes =
        fmt::format("Lustre, stripe count {} of {}", facts.lustre->count, size_text(facts.lustre->bytes));
    if (facts.lustre->count == 1) {
      out.push_back({Health::warn, "striping", stripes + " in this directory: one server's bandwidth",
                     fmt::format("lfs setstripe -c 8 -S 16M {}", facts.path)});
    } else {
      out.push_back({Health::ok, "striping", stripes});
    }
  }
  if (!facts.device) return;
  const DeviceFacts& device = *facts.device;
  if (!device.raid_level.empty()) {
    out.push_back(
        {Health::ok, "RAID",
         fmt::format("{} of {} disks, chunk {}", device.raid_level, device.raid_disks, size_text(device.raid_chunk))});
  }
  if (device.raid_missing > 0) {
    out.push_back({Health::fail, "RAID",
                   fmt::format("degraded: {} of {} disks are missing", device.raid_missing, device.raid_disks),
                   "cat /proc/mdstat, and replace the disk"});
  }
  if (device.scheduler.empty()) return;
  if (device.scheduler == "bfq" && !device.rotational) {
    const std::string mend = "echo none > /sys/block/DISK/queue/scheduler";
    out.push_back({Health::warn, "scheduler", "the bfq scheduler costs throughput on an SSD",
                   facts.mount ? with_scope(*facts.mount, mend, system) : mend});
  } else {
    out.push_back({Health::ok, "scheduler", fmt::format("scheduler {}", device.scheduler)});
  }
}

void diagnose_space(const VolumeFacts& facts, std::optional<std::uint64_t> need, std::vector<Diagnosis>& out) {
  if (facts.total_bytes == 0) return;
  std::uint64_t left = facts.free_bytes;
  std::string what = fmt::format("{} free of {}", size_text(facts.free_bytes), size_text(facts.total_bytes));
  if (facts.quota_left && *facts.quota_left < left) {
    left = *facts.quota_left;
    what = fmt::format("quota: {} left, {}", size_text(left), what);
  }
  if (need && left < *need) {
    out.push_back({Health::fail, "space", fmt::format("{}; the next save needs {}", what, size_text(*need)),
                   "ckpt prune --keep-last 3 (in the store: shows what it would delete; --apply deletes)"});
  } else if (need && left / 2 < *need) {
    out.push_back({Health::warn, "space", fmt::format("{}; enough for one save of {} only", what, size_text(*need)),
                   "ckpt prune --keep-last 3 (in the store: shows what it would delete; --apply deletes)"});
  } else if (need) {
    out.push_back(
        {Health::ok, "space",
         fmt::format("{}; enough for {} saves of {}", what, *need == 0 ? 0 : left / *need, size_text(*need))});
  } else {
    out.push_back({Health::ok, "space", what});
  }
  if (facts.total_inodes == 0) return;
  const bool few = facts.free_inodes < kFewInodes;
  out.push_back({few ? Health::warn : Health::ok, "inodes",
                 fmt::format("{} of {} inodes are free", facts.free_inodes, facts.total_inodes),
                 few ? "delete small files" : ""});
}

}  // namespace

std::vector<Diagnosis> diagnose(const VolumeFacts& facts, std::optional<std::uint64_t> need, bool system) {
  std::vector<Diagnosis> out;
  diagnose_type(facts, out);
  diagnose_options(facts, system, out);
  diagnose_try(facts, out);
  diagnose_device(facts, system, out);
  diagnose_space(facts, need, out);
  return out;
}

}  // namespace ckpt::cli
