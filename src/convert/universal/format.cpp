#include "convert/formats.hpp"
#include "convert/universal/check.hpp"
#include "convert/universal/reader.hpp"
#include "convert/universal/writer.hpp"

namespace ckpt {

Format universal_format() {
  Format format{.name = "ckpt", .summary = "our own sharded safetensors with hashes"};
  format.detect = universal::detect;
  format.open = universal::open;
  format.lay_out = universal::lay_out;
  format.hashes = universal::stored_hashes;
  return format;
}

}  // namespace ckpt
