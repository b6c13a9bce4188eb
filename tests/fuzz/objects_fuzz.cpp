#include <cstdint>
#include <string_view>

#include "format/universal/objects.hpp"

// What parses can be written, and what was written parses to the same text again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::universal;
  const ckpt::Result<Objects> objects = parse_objects({reinterpret_cast<const char*>(data), size});
  if (!objects) return 0;
  const ckpt::Result<std::string> text = build_objects(objects->id, objects->objects);
  if (!text) __builtin_trap();
  const ckpt::Result<Objects> again = parse_objects(*text);
  if (!again || build_objects(again->id, again->objects).value_or("") != *text) __builtin_trap();
  return 0;
}
