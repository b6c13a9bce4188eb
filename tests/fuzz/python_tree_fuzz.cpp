#include <cstdint>
#include <string_view>

#include "format/universal/python_tree.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto tree = ckpt::universal::parse_python_tree({reinterpret_cast<const char*>(data), size});
  if (tree && *tree == nullptr) __builtin_trap();
  return 0;
}
