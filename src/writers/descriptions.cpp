#include "writers/descriptions.hpp"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

#include "format/hash.hpp"
#include "format/universal/mesh_pieces.hpp"
#include "writers/row_text.hpp"

namespace ckpt {
namespace {

Error usage(const std::string& tensor, std::string reason) {
  return {.code = Errc::usage, .message = fmt::format("{}: {}", tensor, reason), .tensor = tensor};
}

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.role == b.role && a.parameter == b.parameter &&
         a.slot == b.slot && a.true_dtype == b.true_dtype;
}

Result<> check_chunk(const Tensor& tensor, const Chunk& chunk) {
  if (!fits(chunk.box, tensor.shape)) return fail(usage(tensor.name, "a part lies outside of the tensor"));
  if (chunk.flat && (chunk.flat->begin > chunk.flat->end || chunk.flat->end > volume(chunk.box.size))) {
    return fail(usage(tensor.name, "a flat range passes the end of its box"));
  }
  if (chunk.volume() != 0 && !universal::is_whole_bytes(chunk, tensor)) {
    return fail(usage(tensor.name, "elements that share a byte would go to two places"));
  }
  return {};
}

}  // namespace

Result<> check_description(const Model& model, const Tensor& tensor, const Chunk& chunk) {
  CKPT_CHECK(check_tensor(tensor));
  CKPT_CHECK(check_chunk(tensor, chunk));
  if (model.find(tensor.name) == nullptr) return {};
  return fail(usage(tensor.name, "already in the model; add it without a description"));
}

std::string descriptions_text(std::span<const Piece> pieces) {
  std::string text;
  for (const Piece& piece : pieces) {
    if (piece.described) append_part(text, *piece.described, piece.chunk);
  }
  return text;
}

std::uint64_t description_key(std::span<const Piece> piece) {
  return hash128(descriptions_text(piece)).words()[0];
}

Result<MergedDescriptions> merge_descriptions(const Model& model, std::span<const std::string> texts) {
  struct Described {
    Tensor tensor;
    std::vector<Chunk> chunks;
  };
  std::map<std::string, Described> merged;
  std::unordered_map<std::uint64_t, std::size_t> last;  // by key: the last text that holds it
  std::set<std::uint64_t> shared;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CKPT_TRY(std::vector<DescribedPart> parts, parts_from_text(texts[i]));
    for (DescribedPart& part : parts) {
      CKPT_CHECK(check_description(model, part.tensor, part.chunk));
      std::string text;
      append_part(text, part.tensor, part.chunk);
      const auto before = last.try_emplace(hash128(text).words()[0], i).first;
      if (before->second != i) shared.insert(before->first);
      before->second = i;
      const std::string name = part.tensor.name;
      const auto [at, added] = merged.try_emplace(name, Described{.tensor = part.tensor, .chunks = {}});
      if (!added && !same(at->second.tensor, part.tensor)) return fail(usage(name, "ranks describe it differently"));
      at->second.chunks.push_back(std::move(part.chunk));
    }
  }
  Map map;
  auto table = std::make_shared<ChunkTable>(merged.size());
  for (auto& [name, described] : merged) {
    for (Chunk& chunk : described.chunks) {
      if (chunk.volume() != 0) table->add(map.tensors.size(), described.tensor.shape, std::move(chunk), {});
    }
    map.tensors.push_back(std::move(described.tensor));
  }
  table->seal();
  map.index = std::move(table);
  std::vector<std::uint32_t> all(map.tensors.size());
  std::iota(all.begin(), all.end(), 0U);
  if (auto covered = check_coverage(map, all); !covered) {
    return fail({.code = Errc::usage,
                 .message = "" + covered.error().message + ", according to the ranks' descriptions",
                 .tensor = covered.error().tensor});
  }
  return MergedDescriptions{.tensors = std::move(map.tensors), .shared = {shared.begin(), shared.end()}};
}

}  // namespace ckpt
