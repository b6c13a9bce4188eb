#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "format/result.hpp"

namespace ckpt {

/// The system's words for an errno value.
std::string system_reason(int errno_value);

/// An errno value as a failure, "path: operation: reason" ("path: operation at OFFSET: reason" where an offset is
/// given): ENOENT not_found, ENOSPC and EDQUOT no_space, EEXIST target_exists, everything else io.
Error system_error(int errno_value, std::string_view path, std::string_view operation,
                   std::optional<std::uint64_t> offset = {});

/// Whether an Io told this because another host of a network file system has removed or replaced the open file
/// (ESTALE): what its name leads to now may be opened.
bool is_stale(const Error& error);

}  // namespace ckpt
