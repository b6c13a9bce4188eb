#include "helper/confine.hpp"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "helper/h5_file.hpp"

#if defined(__has_feature)
#define CKPT_HAS_FEATURE(name) __has_feature(name)
#else
#define CKPT_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || CKPT_HAS_FEATURE(address_sanitizer) || \
    CKPT_HAS_FEATURE(thread_sanitizer)
#define CKPT_SANITIZED 1  // a sanitizer reserves terabytes of addresses
extern "C" int __lsan_is_turned_off() {
  return 1;  // it searches for leaks from a separate thread, which a confined process cannot start
}
#else
#define CKPT_SANITIZED 0
#endif

namespace {

std::uint64_t memory_limit = 0;

void limit(decltype(RLIMIT_AS) what, rlim_t soft, rlim_t hard, const char* name) {
  rlimit now{};
  ::getrlimit(what, &now);
  const rlimit wanted{std::min(soft, now.rlim_max), std::min(hard, now.rlim_max)};
  if (::setrlimit(what, &wanted) != 0)
    stop(std::string("the limit of ") + name + " cannot be set: " + std::strerror(errno), Verdict::io);
}

// --- Landlock --------------------------------------------------------------------------------------------------------

/// By version of its interface (linux/landlock.h): the rights that a process may have on files.
std::uint64_t known_rights(long version) {
  constexpr std::uint64_t rights[] = {0x1fff, 0x3fff, 0x7fff, 0x7fff, 0xffff};
  return rights[std::min<long>(version, 5) - 1];
}

/// Without Landlock (an old kernel, or disabled at boot) only the system call filter applies.
void restrict_files() {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return;
  landlock_ruleset_attr rules{};
  rules.handled_access_fs = known_rights(version);
  const auto set = static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rules, sizeof rules.handled_access_fs, 0));
  if (set < 0) return;
  ::syscall(SYS_landlock_restrict_self, set, 0);
  ::close(set);
}

// --- seccomp ---------------------------------------------------------------------------------------------------------

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = 0;
#endif

/// System calls of the C library, HDF5 and this program after their files are open.
std::vector<unsigned> allowed_calls() {
  return {
      SYS_read,        SYS_write,     SYS_pread64,    SYS_pwrite64,      SYS_readv,           SYS_writev,
      SYS_lseek,       SYS_fstat,     SYS_newfstatat, SYS_close,         SYS_munmap,          SYS_mremap,
      SYS_madvise,     SYS_brk,       SYS_ftruncate,  SYS_fsync,         SYS_fdatasync,       SYS_flock,
      SYS_fcntl,       SYS_getrandom, SYS_futex,      SYS_rt_sigaction,  SYS_rt_sigprocmask,  SYS_rt_sigreturn,
      SYS_sigaltstack, SYS_exit,      SYS_exit_group, SYS_clock_gettime, SYS_gettimeofday,    SYS_getpid,
      SYS_gettid,      SYS_tgkill,    SYS_getrusage,  SYS_sched_yield,   SYS_restart_syscall, SYS_getcwd,
#ifdef SYS_stat
      SYS_stat,        SYS_lstat,     SYS_time,
#endif
#ifdef SYS_statx
      SYS_statx,
#endif
  };
}

sock_filter load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}

sock_filter answer(std::uint32_t action) {
  return BPF_STMT(BPF_RET | BPF_K, action);
}

sock_filter unless_equal(std::uint32_t value, std::uint8_t skip) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip);
}

/// Other calls fail with ENOSYS, as on a kernel that lacks them: the C library then does without.
void filter_calls() {
  if (kArchitecture == 0) return;
  constexpr std::uint32_t refused = SECCOMP_RET_ERRNO | ENOSYS;
  std::vector<sock_filter> program{load(offsetof(seccomp_data, arch)),
                                   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),  // over the next one
                                   answer(refused), load(offsetof(seccomp_data, nr))};
  for (const unsigned call : allowed_calls()) {
    program.push_back(unless_equal(call, 1));
    program.push_back(answer(SECCOMP_RET_ALLOW));
  }
  // Memory may be mapped and protected in any way but as code.
  constexpr unsigned mapping[] = {SYS_mmap, SYS_mprotect};
  for (const unsigned call : mapping) {
    program.push_back(unless_equal(call, 4));
    program.push_back(load(offsetof(seccomp_data, args) + 2 * sizeof(std::uint64_t)));  // little-endian: its low half
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1));
    program.push_back(answer(SECCOMP_RET_ERRNO | EACCES));
    program.push_back(answer(SECCOMP_RET_ALLOW));
  }
  program.push_back(answer(refused));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);  // refused if the kernel has none
}

}  // namespace

void limit_resources(const Limits& limits) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::signal(SIGXFSZ, SIG_IGN);  // the write that reaches the limit fails and reports it
  memory_limit = limits.memory_bytes;
  if (CKPT_SANITIZED == 0) limit(RLIMIT_AS, memory_limit, memory_limit, "memory");
  const rlim_t file_bytes = limits.file_bytes == UINT64_MAX ? RLIM_INFINITY : limits.file_bytes;
  limit(RLIMIT_FSIZE, file_bytes, file_bytes, "file sizes");
  limit(RLIMIT_NOFILE, 32, 32, "open files");
  limit(RLIMIT_NPROC, 0, 0, "processes");
  limit(RLIMIT_CORE, 0, 0, "core files");
}

void limit_seconds(std::uint64_t bytes) {
  constexpr std::uint64_t kLeastSeconds = 20;
  constexpr std::uint64_t kBytesPerSecond = 10'000'000;  // enough for the slowest filter on the slowest machine
  const rlim_t seconds = kLeastSeconds + bytes / kBytesPerSecond;
  limit(RLIMIT_CPU, seconds, seconds + 5, "processor time");  // SIGXCPU, which shows the reason, before SIGKILL
}

std::uint64_t usable_memory() {
  constexpr std::uint64_t kProgramBytes = std::uint64_t{128} << 20;  // libraries, stacks, HDF5's own memory
  return memory_limit - std::min(memory_limit, kProgramBytes);
}

void confine() {
  restrict_files();
  filter_calls();
}
