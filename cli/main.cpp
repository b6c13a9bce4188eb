#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "cli/dispatch.hpp"
#include "cli/signals.hpp"
#include "cli/streams.hpp"
#include "engine/caught.hpp"

int main(int argc, char** argv) {
  ckpt::cli::install_signal_handlers();
  ckpt::cli::keep_standard_streams();
  try {
    return ckpt::cli::dispatch({argv + (argc > 0 ? 1 : 0), argv + argc}, ckpt::cli::process_environment());
  } catch (const std::bad_alloc&) {
    std::fputs("ckpt: error: CKPT-E1700 the system has no memory left\n  exit 17\n", stderr);
    return 17;
  } catch (const std::system_error& error) {
    const ckpt::Error refused = ckpt::refused_by_system(error);
    std::fprintf(stderr, "ckpt: error: CKPT-E1600 %s\n", refused.message.c_str());
    if (!refused.hint.empty()) std::fprintf(stderr, "  try      %s\n", refused.hint.c_str());
    std::fputs("  exit 16\n", stderr);
    return 16;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ckpt: error: CKPT-E7000 %s\n  exit 70 - please report this\n", error.what());
    return 70;
  }
}
