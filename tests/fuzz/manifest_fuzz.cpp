#include <cstdint>
#include <string>

#include "format/universal/manifest.hpp"

// The input as it stands, and with the hash that no mutation would find: a document that lacks its last member.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::universal;
  std::string text(reinterpret_cast<const char*>(data), size);
  if (const ckpt::Result<Manifest> manifest = parse_manifest(text); manifest && !build_manifest(*manifest))
    __builtin_trap();
  text += R"(,"xxh3":")";
  text += ckpt::hash128(text).hex();
  text += "\"}\n";
  const ckpt::Result<Manifest> sealed = parse_manifest(text);
  if (!sealed) return 0;
  const ckpt::Result<std::string> built = build_manifest(*sealed);
  if (!built) __builtin_trap();
  const ckpt::Result<Manifest> again = parse_manifest(*built);
  if (!again || build_manifest(*again).value_or("") != *built) __builtin_trap();
  return 0;
}
