#include "cli/process/machine.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>

#include "cli/text/units.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  const auto line = first_line(path);
  if (!line) return std::nullopt;
  const auto value = parse_count(*line, 0, kUnlimited);
  if (!value) return std::nullopt;
  return *value;
}

struct Limits {
  std::uint64_t memory_bytes = kUnlimited;
  double cpus = 0;  ///< 0 = no quota
};

void take_quota(Limits& limits, std::uint64_t quota, std::uint64_t period) {
  if (period == 0) return;
  const double cpus = static_cast<double>(quota) / static_cast<double>(period);
  if (limits.cpus == 0 || cpus < limits.cpus) limits.cpus = cpus;
}

/// Limits of one cgroup directory: version 2, or the memory or cpu controller of version 1.
void take_directory(Limits& limits, const std::string& directory) {
  for (const char* name : {"/memory.max", "/memory.limit_in_bytes"})
    if (const auto bytes = number_in(directory + name)) limits.memory_bytes = std::min(limits.memory_bytes, *bytes);
  if (const auto line = first_line(directory + "/cpu.max")) {
    std::istringstream words(*line);
    std::uint64_t quota = 0;
    std::uint64_t period = 0;
    if (words >> quota >> period) take_quota(limits, quota, period);  // "max 100000" means no limit
  }
  const auto quota = number_in(directory + "/cpu.cfs_quota_us");  // "-1" is not a number: no limit
  const auto period = number_in(directory + "/cpu.cfs_period_us");
  if (quota && period) take_quota(limits, *quota, *period);
}

/// A limit of any ancestor binds too. In a container the path may not exist below the mount: then its ancestors do.
void take_ancestors(Limits& limits, const std::string& mount, std::string path) {
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    take_directory(limits, mount + path);
    if (path.empty()) return;
    path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

Limits read_cgroups(const std::string& root) {
  Limits limits;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path" or "4:memory:/path" or "3:cpu,cpuacct:/path"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      take_ancestors(limits, root + "/sys/fs/cgroup", path);
      continue;
    }
    std::istringstream names(controllers);
    for (std::string name; std::getline(names, name, ',');)
      if (name == "memory" || name == "cpu") take_ancestors(limits, root + "/sys/fs/cgroup/" + name, path);
  }
  return limits;
}

unsigned affinity_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return std::max(1u, std::thread::hardware_concurrency());
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

}  // namespace

Machine read_machine(const std::string& system_root) {
  const Limits limits = read_cgroups(system_root);
  Machine out;
  out.memory_bytes = limits.memory_bytes;
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0)
    out.memory_bytes =
        std::min(out.memory_bytes, static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes));
  rlimit address_space{};
  if (getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY)
    out.memory_bytes = std::min<std::uint64_t>(out.memory_bytes, address_space.rlim_cur);

  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  out.online_cpus = online > 0 ? static_cast<unsigned>(online) : 1;
  out.allowed_cpus = affinity_cpus();
  if (limits.cpus > 0) {
    const unsigned quota = std::max(1u, static_cast<unsigned>(std::min(limits.cpus + 0.999, 1e6)));
    out.online_cpus = std::min(out.online_cpus, quota);
    out.allowed_cpus = std::min(out.allowed_cpus, quota);
  }
  return out;
}

void raise_open_files() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == files.rlim_max) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);  // refused: unchanged
}

std::uint64_t default_memory(const Machine& machine, unsigned local_ranks) {
  constexpr std::uint64_t most = std::uint64_t{8} << 30;
  return std::min(machine.memory_bytes / 4, most) / std::max(1u, local_ranks);
}

unsigned default_threads(const Machine& machine, unsigned local_ranks) {
  return std::max(1u, std::min(machine.allowed_cpus, machine.online_cpus / std::max(1u, local_ranks)));
}

}  // namespace ckpt::cli
