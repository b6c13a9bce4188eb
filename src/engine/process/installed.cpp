#include "engine/process/installed.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <string_view>

#include "engine/io/io.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt {
namespace {

/// The directory of the running program; empty if unknown.
std::string program_directory() {
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0 || static_cast<std::size_t>(length) == path.size()) return {};
  return parent_path({path.data(), static_cast<std::size_t>(length)});
}

/// The directory of the file that this code was loaded from. The dynamic linker's own answer (dladdr) repeats the name
/// it was given, which may be relative.
std::string code_directory() {
  const auto here = reinterpret_cast<std::uintptr_t>(&code_directory);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    // "BEGIN-END PERMISSIONS OFFSET DEVICE INODE    PATH"
    std::string_view rest = line;
    const auto begin = take_number<std::uintptr_t>(rest, 16);
    rest.remove_prefix(std::min<std::size_t>(rest.size(), 1));
    const auto end = take_number<std::uintptr_t>(rest, 16);
    if (!begin || !end || here < *begin || here >= *end) continue;
    const std::size_t path = line.find('/');
    return path == std::string::npos ? std::string() : parent_path(std::string_view(line).substr(path));
  }
  return {};
}

}  // namespace

std::optional<std::string> find_installed(std::string_view name, std::initializer_list<std::string_view> places) {
  for (const std::string& directory : {code_directory(), program_directory()}) {
    if (!directory.starts_with('/')) continue;
    for (const std::string_view place : places) {
      std::string path = join_path(join_path(directory, place), name);
      if (::access(path.c_str(), F_OK) == 0) return path;
    }
  }
  return std::nullopt;
}

}  // namespace ckpt
