#include "engine/process/machine_facts.hpp"

#include <sys/resource.h>
#include <sys/timex.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>
#include <limits>

#include "engine/io/io.hpp"
#include "engine/io/system_file.hpp"

namespace ckpt {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

std::uint64_t limit_of(rlim_t limit) {
  return limit == RLIM_INFINITY ? kUnlimited : limit;
}

}  // namespace

MachineFacts read_machine_facts(const std::string& root) {
  MachineFacts out;
  utsname names{};
  if (::uname(&names) == 0) out.kernel = names.release;
  if (auto ring = open_io(IoKind::uring, 4); !ring) out.uring_refused = ring.error().message;
  const std::string disabled = first_line(root + "/proc/sys/kernel/io_uring_disabled");
  if (disabled == "0" || disabled == "1" || disabled == "2") out.uring_disabled = disabled[0] - '0';
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) out.locked_bytes = limit_of(limit.rlim_cur);
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    out.open_files = limit_of(limit.rlim_cur);
    out.most_open_files = limit_of(limit.rlim_max);
  }
  out.transparent_pages = chosen_word(first_line(root + "/sys/kernel/mm/transparent_hugepage/enabled"));
  std::ifstream memory(root + "/proc/meminfo");
  for (std::string line; std::getline(memory, line);) {
    constexpr std::string_view key = "HugePages_Free:";
    if (line.starts_with(key)) out.huge_pages_free = std::strtoull(line.c_str() + key.size(), nullptr, 10);
  }
  timex clock{};
  const int state = ::adjtimex(&clock);
  if (state >= 0) out.clock_synchronised = state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
  return out;
}

}  // namespace ckpt
