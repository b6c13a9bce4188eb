#include "engine/io/system_error.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace ckpt {
namespace {

/// What failed, in words: "cannot write" for pwrite.
std::string phrase(std::string_view operation) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 12> words{{
      {"stat", "access"},
      {"fstat", "access"},
      {"openat", "open"},
      {"pread", "read"},
      {"pwrite", "write"},
      {"fsync", "sync"},
      {"fdatasync", "sync"},
      {"fsync directory", "sync"},
      {"unlink", "remove"},
      {"rmdir", "remove"},
      {"mkdir", "create"},
      {"allocate", "allocate space"},
  }};
  for (const auto& [name, word] : words)
    if (name == operation) return fmt::format("cannot {}", word);
  return fmt::format("cannot {}", operation);
}

}  // namespace

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
  if (errno_value == ESTALE) error.hint = "another host removed or replaced the file; retry";
  if (errno_value == EFBIG) error.hint = "raise the file size limit (ulimit -f), or write smaller files (--shard-size)";
  const std::string where = offset ? fmt::format(" at offset {}", *offset) : std::string();
  const bool says_enough = errno_value == ENOENT && !offset;  // "PATH: No such file or directory"
  const std::string what = says_enough ? "" : phrase(operation);
  error.message = fmt::format("{}: {}{}{}{}", path, what, where, what.empty() ? "" : ": ", system_reason(errno_value));
  if (errno_value == EFBIG) error.message += " (limit of this process or of the file system)";
  return error;
}

bool is_stale(const Error& error) {
  return error.system_code == ESTALE;
}

}  // namespace ckpt
