#include "api/run/first_failure.hpp"

#include <cstdio>
#include <utility>

namespace ckpt {

std::function<void(const std::string& text)> first_failure_on_stderr(std::function<bool()> is_told_here) {
  return [is_told_here = std::move(is_told_here), told = false](const std::string& text) mutable {
    if (told || !is_told_here()) return;
    told = true;
    std::fprintf(stderr, "ckpt: %s (set a log callback in the options to see all failures)\n", text.c_str());
  };
}

}  // namespace ckpt
