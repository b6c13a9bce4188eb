#include "engine/io/host.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "engine/io/system_file.hpp"

namespace ckpt {
namespace {

/// The number of a namespace; 0 if unknown.
std::uint64_t namespace_of(const char* kind) {
  struct stat status {};
  return ::stat(fmt::format("/proc/self/ns/{}", kind).c_str(), &status) == 0 ? status.st_ino : 0;
}

std::string boot_id() {
  std::string text = first_line("/proc/sys/kernel/random/boot_id");
  std::erase(text, '-');
  const bool hex = text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
  return hex ? text : std::string();
}

struct Stat {
  char state = 0;
  std::uint64_t started = 0;
};

/// proc(5): "PID (NAME) STATE ...", the start time is the 22nd field. A name may hold anything, also ")".
std::optional<Stat> read_stat(std::uint64_t pid) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", pid));
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream words(line.substr(end + 1));
  Stat out;
  words >> out.state;
  std::string word;
  for (int field = 4; field <= 22; ++field) words >> word;
  if (!words) return std::nullopt;
  out.started = std::strtoull(word.c_str(), nullptr, 10);
  return out;
}

}  // namespace

std::string host_name() {
  utsname names{};
  return ::uname(&names) == 0 ? names.nodename : "";
}

std::uint64_t volume_bytes(const std::string& path) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) return 0;
  std::uint64_t bytes = 0;
  return __builtin_mul_overflow(status.f_blocks, status.f_frsize, &bytes) ? 0 : bytes;
}

ProcessId ThisHost::self() const {
  ProcessId out{.host = host_name(), .boot = boot_id(), .pid_namespace = namespace_of("pid")};
  out.pid = static_cast<std::uint64_t>(::getpid());
  if (const auto stat = read_stat(out.pid)) out.started = stat->started;
  return out;
}

std::optional<bool> ThisHost::is_running(const ProcessId& process) const {
  if (process.boot.empty() || process.boot != boot_id() || process.pid_namespace == 0 ||
      process.pid_namespace != namespace_of("pid"))
    return std::nullopt;
  if (process.pid == 0 || process.pid > std::uint64_t{INT32_MAX}) return std::nullopt;
  // Works even if /proc hides other users' processes.
  if (::kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH) return false;
  const auto stat = read_stat(process.pid);
  if (!stat || process.started == 0) return std::nullopt;
  if (stat->started != process.started) return false;
  if (stat->state == 'Z' || stat->state == 'X') return std::nullopt;  // its first thread ended; others may still run
  return true;
}

std::chrono::nanoseconds ThisHost::monotonic() const {
  return std::chrono::steady_clock::now().time_since_epoch();
}

std::string ThisHost::clock_id() const {
  const std::string boot = boot_id();
  return boot.empty() ? boot : fmt::format("{}-{}", boot, namespace_of("time"));
}

}  // namespace ckpt
