#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "format/text/json.hpp"
#include "format/universal/layout_json.hpp"
#include "format/universal/mesh_layout.hpp"
#include "format/universal/mesh_search.hpp"

namespace {
void require(bool holds) {
  if (!holds) std::abort();
}

// What writers of a small mesh write of a tensor is found again by a search for all of it, chunk for chunk.
void require_found(const ckpt::universal::Layout& layout, const ckpt::Tensor& tensor) {
  using namespace ckpt::universal;
  if (layout.kind != Layout::Kind::mesh || !check_layout(layout, tensor, 0)) return;
  const auto writers = layout.mesh.writer_count();
  if (!writers || *writers > 64) return;
  std::size_t written = 0;
  for (std::uint64_t writer = 0; writer < *writers; ++writer) {
    const auto held = held_chunks(layout, tensor, 0, writer);
    const auto chunks = written_chunks(layout, tensor, 0, writer);
    if (!held || !chunks) return;
    for (const auto& chunk : *chunks) require(ckpt::fits(chunk.box, tensor.shape) && chunk.volume() > 0);
    written += chunks->size();
  }
  std::size_t found = 0;
  const auto searched = search_mesh(layout, tensor, 0, {0, ckpt::volume(tensor.shape)}, [&](const WrittenChunk& each) {
    require(each.writer < *writers);
    ++found;
    return ckpt::Result<>{};
  });
  require(!searched || found == written);
}
}  // namespace

// A layout that is read is the one that its own writer gives, and asking it is safe whatever the tensor.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::universal;
  const auto document = ckpt::json::parse({reinterpret_cast<const char*>(data), size});
  if (!document) return 0;
  const auto layout = read_layout(*document);
  if (!layout) return 0;
  require(check_layout(*layout).has_value());
  std::string text;
  ckpt::json::Writer out(text);
  put_layout(out, *layout);
  const auto again = ckpt::json::parse(text);
  require(again.has_value());
  const auto read = read_layout(*again);
  require(read.has_value() && *read == *layout);
  require_found(*layout, {.name = "w", .dtype = ckpt::Dtype::f32, .shape = {12, 10}});
  require_found(*layout, {.name = "b", .dtype = ckpt::Dtype::bf16, .shape = {64}});
  require_found(*layout, {.name = "p", .dtype = ckpt::Dtype::f4, .shape = {4, 32}});
  return 0;
}
