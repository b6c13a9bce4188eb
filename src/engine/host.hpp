#pragma once

#include <cstdint>
#include <string>

namespace ckpt {

/// What the system calls this machine; empty where it does not tell.
std::string host_name();

/// Bytes of the file system that a path lies on; 0 where the system does not tell.
std::uint64_t volume_bytes(const std::string& path);

}  // namespace ckpt
