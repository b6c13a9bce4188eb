#include "cli/report/machine_health.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace ckpt::cli {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kFewFiles = 1024;  // a conversion keeps fewer open; a trainer has its own in addition

Diagnosis diagnose_uring(const MachineFacts& facts) {
  if (!facts.uring_refused) {
    return {.about = "io_uring", .text = fmt::format("io_uring works, kernel {}", facts.kernel)};
  }
  Diagnosis out{
      .health = Health::warn,
      .about = "io_uring",
      .text = fmt::format("no io_uring ({}): ckpt uses threads, which cost more CPU time", *facts.uring_refused)};
  if (facts.uring_disabled.value_or(0) != 0) {
    out.mend = "sysctl -w kernel.io_uring_disabled=0";
  } else {
    out.mend = "in a container: allow io_uring_setup, io_uring_enter and io_uring_register in its seccomp profile";
  }
  return out;
}

Diagnosis diagnose_pages(const MachineFacts& facts) {
  if (facts.huge_pages_free > 0) {
    return {.about = "huge pages", .text = fmt::format("{} hugetlb pages are free", facts.huge_pages_free)};
  }
  if (facts.transparent_pages == "never") {
    return {.health = Health::warn,
            .about = "huge pages",
            .text = "no huge pages: buffers in 4 KiB pages slow down saves and loads",
            .mend = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"};
  }
  if (facts.transparent_pages.empty()) {
    return {.health = Health::note, .about = "huge pages", .text = "unknown: the kernel does not report huge pages"};
  }
  return {.about = "huge pages", .text = fmt::format("transparent huge pages: {}", facts.transparent_pages)};
}

Diagnosis diagnose_files(const MachineFacts& facts) {
  if (facts.open_files >= kFewFiles) {
    return {.about = "open files",
            .text = facts.open_files == kNoLimit ? std::string("open files: no limit")
                                                 : fmt::format("open file limit: {}", facts.open_files)};
  }
  return {.health = Health::warn,
          .about = "open files",
          .text = fmt::format("open file limit: {}", facts.open_files),
          .mend = facts.most_open_files > facts.open_files
                      ? fmt::format("ulimit -n {}", std::min<std::uint64_t>(facts.most_open_files, 65536))
                      : std::string("raise nofile in /etc/security/limits.conf, or LimitNOFILE= of the service")};
}

Diagnosis diagnose_memlock(const MachineFacts& facts) {
  Diagnosis out{.about = "locked memory"};
  if (facts.locked_bytes == kNoLimit) {
    out.text = "locked memory: no limit";
  } else {
    out.text =
        fmt::format("locked memory: {} KiB; buffers are not locked, so this is enough", facts.locked_bytes >> 10);
  }
  return out;
}

}  // namespace

std::vector<Diagnosis> diagnose(const MachineFacts& facts) {
  std::vector<Diagnosis> out{diagnose_uring(facts), diagnose_pages(facts), diagnose_files(facts),
                             diagnose_memlock(facts)};
  if (facts.clock_synchronised) {
    out.push_back(*facts.clock_synchronised
                      ? Diagnosis{.about = "clock", .text = "the clock is synchronised"}
                      : Diagnosis{.health = Health::warn,
                                  .about = "clock",
                                  .text =
                                      "the clock is not synchronised: ages in retention rules may be wrong (the order "
                                      "of checkpoints never depends on it)",
                                  .mend = "timedatectl set-ntp true"});
  }
  return out;
}

}  // namespace ckpt::cli
