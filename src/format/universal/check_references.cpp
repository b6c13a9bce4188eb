#include "format/universal/check_references.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "format/universal/format_check.hpp"

namespace ckpt::universal {

Result<> check_references(const Manifest& manifest) {
  std::vector<std::uint64_t> sizes;
  for (const ReferencedSource& source : manifest.references) {
    for (const ReferencedFile& file : source.files) sizes.push_back(file.bytes);
  }
  const auto bad_row = [](Check check, const TensorRow& row, std::string_view reason) {
    return violates(check,
                    Error{.message = fmt::format("manifest.json: chunks: {}", reason), .tensor = row.tensor.name});
  };
  for (const TensorRow& row : manifest.tensors) {
    const Layout::Kind kind = manifest.layouts[row.layout].kind;
    const bool refers = kind == Layout::Kind::referenced;
    if (refers && !manifest.is_virtual()) return bad_row(Check::references, row, "without `references`");
    if (!refers && !row.chunks.empty()) return bad_row(Check::references, row, "in a layout other than virtual");
    if (!refers && manifest.is_virtual() && kind != Layout::Kind::whole)
      return bad_row(Check::references, row, "a layout that virtual checkpoints do not have");
    for (const PlacedChunk& chunk : row.chunks) {
      if (chunk.where.file >= sizes.size()) return bad_row(Check::referenced_chunks, row, "a file that does not exist");
      if (auto fits = check_chunk(chunk, row.tensor, sizes[chunk.where.file]); !fits)
        return bad_row(Check::referenced_chunks, row, fits.error().message);
    }
  }
  return {};
}

}  // namespace ckpt::universal
