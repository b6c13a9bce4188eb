#include "cli/process/streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace ckpt::cli {

void keep_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is this one. Output that is lost is a write error.
    static_cast<void>(open("/dev/null", stream == STDOUT_FILENO ? O_RDONLY : O_RDWR));
  }
}

}  // namespace ckpt::cli
