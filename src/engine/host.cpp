#include "engine/host.hpp"

#include <sys/utsname.h>

namespace ckpt {

std::string host_name() {
  utsname names{};
  return ::uname(&names) == 0 ? names.nodename : "";
}

}  // namespace ckpt
