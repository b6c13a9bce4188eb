#include "engine/process/memory.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

/// A "Name:  123 kB" line of /proc/self/status.
std::uint64_t status_bytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (!line.starts_with(name)) continue;
    std::string_view rest = line;
    rest.remove_prefix(std::min(rest.size(), rest.find_first_of("0123456789")));
    return take_number<std::uint64_t>(rest).value_or(0) * 1024;
  }
  return 0;
}

}  // namespace

std::uint64_t resident_bytes() {
  return status_bytes("VmRSS:");
}

std::uint64_t peak_resident_bytes() {
  return status_bytes("VmHWM:");
}

}  // namespace ckpt
