#include <cstddef>
#include <cstdint>
#include <string_view>

#include "format/files/safetensors_metadata.hpp"

// The two texts that `__metadata__` of a safetensors file may hold for us.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)ckpt::safetensors::parse_saved_offsets(text);
  (void)ckpt::safetensors::parse_facts(text);
  return 0;
}
