#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "format/universal/rng_streams.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

// An accepted stream survives being written.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto stream = ckpt::rng::parse(text)) {
    const auto again = ckpt::rng::parse(ckpt::rng::build(*stream).value());
    require(again.has_value() && *again == *stream);
  }
  return 0;
}
