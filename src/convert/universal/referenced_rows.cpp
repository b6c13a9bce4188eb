#include "convert/universal/referenced_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "format/files/safetensors.hpp"

namespace ckpt::universal {
namespace {

tl::unexpected<Error> cannot(const std::string& tensor, std::string_view reason) {
  return fail({.code = Errc::unsupported,
               .message = fmt::format("{}: --virtual: {}", tensor, reason),
               .tensor = tensor,
               .hint = "convert without --virtual, or leave the tensor out with --only"});
}

}  // namespace

Result<> take_chunks(const Map& source, std::uint32_t tensor, TensorRow& row) {
  const Tensor& from = source.tensors[tensor];
  const std::string& name = row.tensor.name;
  if (name == safetensors::kMetadataKey) return fail(safetensors::reserved_name());
  if (row.tensor.dtype != from.dtype)
    return cannot(name, fmt::format("it would have to be cast from {} to {}", dtype_name(from.dtype),
                                    dtype_name(row.tensor.dtype)));
  const Extent all{0, volume(from.shape)};
  if (all.end == 0) return {};
  return source.index->chunks(tensor, all, [&](const PlacedChunk& placed) -> Result<> {
    if (placed.where.compressed) return cannot(name, "its bytes are compressed");
    const MapFile& file = source.files[placed.where.file];
    if (is_temporary(file)) return cannot(name, "its bytes have to be decoded");
    PlacedChunk& taken = row.chunks.emplace_back(placed);
    // A whole box needs no flat range, which cannot have strides.
    if (taken.chunk.flat && taken.chunk.flat->size() == volume(taken.chunk.box.size)) taken.chunk.flat.reset();
    if (taken.chunk.flat && !taken.where.strides.empty()) return cannot(name, "it is a part of a tensor with strides");
    if (auto fits = check_chunk(taken, row.tensor, file.bytes); !fits) return cannot(name, fits.error().message);
    return {};
  });
}

Result<std::vector<ReferencedSource>> number_files(const Map& source,
                                                   const std::function<Result<Reference>(std::uint32_t)>& refer,
                                                   std::span<TensorRow> rows) {
  std::vector<bool> used(source.files.size(), false);
  for (const TensorRow& row : rows) {
    for (const PlacedChunk& chunk : row.chunks) used[chunk.where.file] = true;
  }
  std::vector<ReferencedSource> out;
  std::vector<std::pair<std::size_t, std::uint32_t>> places(source.files.size());  // source, and file in it
  for (std::uint32_t file = 0; file < used.size(); ++file) {
    if (!used[file]) continue;
    CKPT_TRY(Reference reference, refer(file));
    auto at = std::ranges::find(out, reference.source, &ReferencedSource::path);
    if (at == out.end()) at = out.insert(at, {.path = reference.source});
    places[file] = {static_cast<std::size_t>(at - out.begin()), static_cast<std::uint32_t>(at->files.size())};
    at->files.push_back(std::move(reference.file));
  }
  std::vector<std::uint32_t> first{0};  // of each source
  for (const ReferencedSource& one : out) first.push_back(first.back() + static_cast<std::uint32_t>(one.files.size()));
  for (TensorRow& row : rows) {
    for (PlacedChunk& chunk : row.chunks) {
      const auto [number, below] = places[chunk.where.file];
      chunk.where.file = first[number] + below;
    }
  }
  return out;
}

}  // namespace ckpt::universal
