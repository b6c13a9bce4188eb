#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "cli/commands/dispatch.hpp"
#include "cli/process/signals.hpp"
#include "cli/process/streams.hpp"

int main(int argc, char** argv) {
  ckpt::cli::install_signal_handlers();
  ckpt::cli::keep_standard_streams();
  try {
    return ckpt::cli::dispatch({argv + (argc > 0 ? 1 : 0), argv + argc}, ckpt::cli::process_environment());
  } catch (const std::bad_alloc&) {
    std::fputs("error: out of memory\nexit 17 - ckpt explain E1700\n", stderr);
    return 17;
  } catch (const std::system_error& error) {
    // The system refuses threads at the limit of processes.
    std::fprintf(stderr,
                 "error: cannot start a thread: %s\n"
                 "hint: raise the limit of processes and threads (ulimit -u, or the container's)\n"
                 "exit 16 - ckpt explain E1600\n",
                 error.code().message().c_str());
    return 16;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\nhint: this is a bug in ckpt; please report it\nexit 70 - ckpt explain E7000\n",
                 error.what());
    return 70;
  }
}
