#include <cstdint>
#include <span>

#include "format/universal/sums.hpp"

// What parses is what its own writer gives again, and every record's leaves can be looked at.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::universal;
  const auto bytes = std::as_bytes(std::span(data, size));
  ckpt::Result<Sums> sums = parse_sums(bytes);
  if (!sums) return 0;
  for (const FileRecord& file : sums->files) {
    if (sums->leaves_of(file).size() != leaf_count(file.bytes)) __builtin_trap();
  }
  const ckpt::Result<std::string> again = build_sums(*sums);
  if (!again || again->size() != size) __builtin_trap();
  return 0;
}
