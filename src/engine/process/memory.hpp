#pragma once

#include <cstdint>

namespace ckpt {

/// This process's resident memory now, and its peak, in bytes; 0 if unknown.
std::uint64_t resident_bytes();
std::uint64_t peak_resident_bytes();

}  // namespace ckpt
