#include "engine/real_directory.hpp"

#include <filesystem>
#include <system_error>

namespace ckpt {

std::string real_directory(const std::string& path) {
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  return error ? path : real.string();
}

}  // namespace ckpt
