#include <array>

#include "convert/formats.hpp"
#include "convert/universal/check.hpp"
#include "convert/universal/reader.hpp"
#include "convert/universal/writer.hpp"
#include "format/universal/seal.hpp"

namespace ckpt {
namespace {

constexpr std::array<std::string_view, 1> kUniversalOwnNames{universal::kManifestCopyPath};

}  // namespace

Format universal_format() {
  Format format{.name = "ckpt", .summary = "our own sharded safetensors with hashes"};
  format.detect = universal::detect;
  format.open = universal::open;
  format.lay_out = universal::lay_out;
  format.hashes = universal::stored_hashes;
  format.own_names = kUniversalOwnNames;
  format.extras = KeepsExtras::inside;
  format.holds_blobs = true;
  format.has_folders = true;
  return format;
}

}  // namespace ckpt
