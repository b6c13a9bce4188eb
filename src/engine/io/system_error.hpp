#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "format/result.hpp"

namespace ckpt {

/// The system's text for an errno value.
std::string system_reason(int errno_value);

/// An errno value as an Error: "PATH: No such file or directory", "PATH: cannot write at offset 4096: REASON".
/// ENOENT is not_found, ENOSPC, EDQUOT and EFBIG are no_space, EEXIST is target_exists, everything else is io.
///
/// operation  the system call's name ("pwrite")
Error system_error(int errno_value, std::string_view path, std::string_view operation,
                   std::optional<std::uint64_t> offset = {});

/// Whether the error is ESTALE: another host of a network file system removed or replaced the open file. The path may
/// be opened again.
bool is_stale(const Error& error);

}  // namespace ckpt
