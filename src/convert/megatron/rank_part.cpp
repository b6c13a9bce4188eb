#include "convert/megatron/rank_part.hpp"

#include <optional>
#include <utility>

namespace ckpt::megatron {

Result<Locator> locate(const Map& map, std::size_t tensor, std::uint32_t first_file) {
  const Tensor& own = map.tensors[tensor];
  std::optional<Locator> out;
  bool is_one = true;
  CKPT_CHECK(map.index->chunks(tensor, {0, volume(own.shape)}, [&](const PlacedChunk& placed) -> Result<> {
    is_one = is_one && !out && placed.chunk.volume() == volume(own.shape);
    out = placed.where;
    return {};
  }));
  if (!out) out = Locator{.file = 0, .dtype = own.dtype};  // without elements
  if (!is_one)
    return fail({.code = Errc::unsupported, .message = own.name + ": stored in several pieces", .tensor = own.name});
  out->file += first_file;
  return *std::move(out);
}

}  // namespace ckpt::megatron
