#include <array>

#include "convert/formats.hpp"
#include "convert/universal/check.hpp"
#include "convert/universal/reader.hpp"
#include "convert/universal/writer.hpp"
#include "format/universal/seal.hpp"

namespace ckpt {
namespace {

constexpr std::array<std::string_view, 1> kUniversalOwnNames{universal::kManifestCopyPath};

constexpr std::array<std::string_view, 1> kUniversalSynonyms{"universal"};

}  // namespace

Format universal_format() {
  return {.name = "ckpt",
          .summary = "our own sharded safetensors with hashes",
          .synonyms = kUniversalSynonyms,
          .detect = universal::detect,
          .own_names = kUniversalOwnNames,
          .has_folders = true,
          .reader = FormatReader{.open = universal::open},
          .writer = FormatWriter{.lay_out = universal::lay_out,
                                 .extras = KeepsExtras::inside,
                                 .holds_blobs = true,
                                 .copies_stored = true,
                                 .refers = true,
                                 .tensor_memory = 450},
          .hashes = universal::stored_hashes};
}

}  // namespace ckpt
