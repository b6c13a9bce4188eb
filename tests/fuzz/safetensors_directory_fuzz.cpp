#include "convert/formats.hpp"
#include "fuzz/directory_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ckpt::fuzz::open_directory(ckpt::safetensors_format(), {reinterpret_cast<const char*>(data), size});
  return 0;
}
