#pragma once

#include <string>

namespace ckpt {

/// What the system calls this machine; empty where it does not tell.
std::string host_name();

}  // namespace ckpt
