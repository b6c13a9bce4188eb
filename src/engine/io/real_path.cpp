#include "engine/io/real_path.hpp"

#include <filesystem>
#include <system_error>

namespace ckpt {

Result<std::optional<std::string>> find_real_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (!error) return real.string();
  for (const std::errc none :
       {std::errc::no_such_file_or_directory, std::errc::not_a_directory, std::errc::too_many_symbolic_link_levels}) {
    if (error == none) return std::nullopt;
  }
  return fail({.code = Errc::io, .message = path + ": " + error.message(), .file = path});
}

std::optional<std::string> real_path(const std::string& path) {
  return find_real_path(path).value_or(std::nullopt);
}

std::string without_links(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path made;
  bool any = false;
  for (const auto& part : std::filesystem::path(path)) {
    made /= part;
    any = any || std::filesystem::is_symlink(made, ignored);
  }
  if (!any) return path;
  const auto real = std::filesystem::weakly_canonical(path, ignored);
  return ignored || real.empty() ? path : real.string();
}

}  // namespace ckpt
