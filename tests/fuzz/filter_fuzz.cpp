#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include "catalog/filter.hpp"

namespace {
using namespace ckpt::catalog;

void require(bool holds) {
  if (!holds) std::abort();
}

/// One that has of everything, and one that lacks what can be lacking.
Checkpoint rich() {
  Checkpoint out{.id = "abc", .run = "r", .series = 1, .generation = 2, .step = 1000, .bytes = 1 << 20};
  out.metrics = {{"loss", 0.5}, {"nan", std::numeric_limits<double>::quiet_NaN()}};
  out.tags = {"eval", "best"};
  out.attributes = {{"kind", "weights"}, {"tier", "local"}};
  return out;
}
}  // namespace

// An accepted filter says yes or no of any checkpoint, and what is negated says the other; a refusal is a usage error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto filter = Filter::parse(text);
  if (!filter) {
    require(filter.error().code == ckpt::Errc::usage);
    return 0;
  }
  const Time now{std::chrono::hours(1000)};
  const auto negated = Filter::parse("not (" + std::string(text) + ")");
  for (const Checkpoint& checkpoint : {rich(), Checkpoint{}}) {
    const bool matches = filter->matches(checkpoint, now);
    // The longer text may pass a limit of length or depth.
    if (negated) require(negated->matches(checkpoint, now) != matches);
  }
  return 0;
}
