#include "engine/real_path.hpp"

#include <filesystem>
#include <system_error>

namespace ckpt {

std::optional<std::string> real_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  return error ? std::nullopt : std::optional(real.string());
}

}  // namespace ckpt
