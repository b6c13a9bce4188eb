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
    std::fputs("ckpt: error: CKPT-E1700 the system has no memory left\n  exit 17\n", stderr);
    return 17;
  } catch (const std::system_error& error) {
    // Threads are what the system refuses, at the limit of processes.
    std::fprintf(stderr,
                 "ckpt: error: CKPT-E1600 cannot start a thread: %s\n"
                 "  try      raise the limit of processes and threads (ulimit -u, or that of the container)\n"
                 "  exit 16\n",
                 error.code().message().c_str());
    return 16;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ckpt: error: CKPT-E7000 %s\n  exit 70 - please report this\n", error.what());
    return 70;
  }
}
