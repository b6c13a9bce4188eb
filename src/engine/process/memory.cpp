#include "engine/process/memory.hpp"

#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

namespace ckpt {
namespace {

/// A "Name:  123 kB" line of /proc/self/status.
std::uint64_t status_bytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (!line.starts_with(name)) continue;
    const std::size_t digit = line.find_first_of("0123456789");
    if (digit == std::string::npos) return 0;
    std::uint64_t kibibytes = 0;
    std::from_chars(line.data() + digit, line.data() + line.size(), kibibytes);
    return kibibytes * 1024;
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
