#pragma once

#include <cstdint>

namespace ckpt {

/// This process's resident memory now, and its highest so far, in bytes; 0 where the system does not tell.
std::uint64_t resident_bytes();
std::uint64_t peak_resident_bytes();

}  // namespace ckpt
