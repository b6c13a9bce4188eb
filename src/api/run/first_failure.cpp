#include "api/run/first_failure.hpp"

#include <cstdio>
#include <utility>

namespace ckpt {

std::function<void(const std::string& text)> first_failure_on_stderr(std::function<bool()> is_reported_here) {
  return [is_reported_here = std::move(is_reported_here), reported = false](const std::string& text) mutable {
    if (reported || !is_reported_here()) return;
    reported = true;
    std::fprintf(stderr, "ckpt: %s (only the first failure of a run is printed)\n", text.c_str());
  };
}

}  // namespace ckpt
