#include "engine/io/system_error.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace ckpt {

std::string system_reason(int errno_value) {
  // strerror's buffer is shared between threads; the table behind strerrordesc_np is constant.
  const char* text = ::strerrordesc_np(errno_value);
  return text != nullptr ? std::string(text) : fmt::format("error {}", errno_value);
}

Error system_error(int errno_value, std::string_view path, std::string_view operation,
                   std::optional<std::uint64_t> offset) {
  Errc code = Errc::io;
  switch (errno_value) {
    case ENOENT:
      code = Errc::not_found;
      break;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      code = Errc::no_space;
      break;
    case EEXIST:
      code = Errc::target_exists;
      break;
    default:
      break;
  }
  Error error{.code = code, .file = std::string(path), .offset = offset, .system_code = errno_value};
  if (errno_value == ESTALE) error.hint = "another host removed or replaced it meanwhile: try again";
  if (errno_value == EFBIG) error.hint = "raise the file size limit (ulimit -f), or write smaller files (--shard-size)";
  const std::string where = offset ? fmt::format(" at {}", *offset) : std::string();
  error.message = fmt::format("{}: {}{}: {}", path, operation, where, system_reason(errno_value));
  if (errno_value == EFBIG) error.message += ", by the file size limit of this process or of the file system";
  return error;
}

bool is_stale(const Error& error) {
  return error.system_code == ESTALE;
}

}  // namespace ckpt
