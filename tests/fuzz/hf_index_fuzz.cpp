#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "format/files/hf_index.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

// Files of an accepted index stay below its directory, and the index survives being written.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = ckpt::hf::parse_index({reinterpret_cast<const char*>(data), size});
  if (!parsed) return 0;
  for (const auto& [name, file] : parsed->weight_map) {
    require(!file.empty() && file.front() != '/' && file.find('\0') == std::string::npos);
    require(("/" + file + "/").find("/../") == std::string::npos);
  }
  const auto again = ckpt::hf::parse_index(ckpt::hf::build_index(*parsed));
  require(again.has_value() && again->weight_map.size() == parsed->weight_map.size());
  require(again->total_size == parsed->total_size);
  return 0;
}
