#include <algorithm>
#include <string>
#include <utility>

#include "format/checked.hpp"
#include "format/model/chunk_form.hpp"
#include "format/model/model.hpp"

namespace ckpt {
namespace {

std::string text(const Shape& shape) {
  std::string out = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) out += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return out + "]";
}

Error at_tensor(Errc code, const Tensor& tensor, std::string what) {
  return {
      .code = code, .message = tensor.name + ": " + std::move(what), .tensor = tensor.name + " " + text(tensor.shape)};
}

/// Chunks that are runs of the row-major order: sorted, they must follow each other.
Result<> check_runs(const Tensor& tensor, std::vector<Extent> runs, std::uint64_t elements) {
  std::sort(runs.begin(), runs.end(),
            [](Extent a, Extent b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  runs.erase(std::unique(runs.begin(), runs.end()), runs.end());  // replicas
  std::uint64_t at = 0;
  for (const Extent run : runs) {
    if (run.begin > at) {
      return fail(
          at_tensor(Errc::uncovered, tensor,
                    "elements " + std::to_string(at) + ".." + std::to_string(run.begin - 1) + " are in no file"));
    }
    if (run.begin < at) {
      return fail(at_tensor(Errc::overlap, tensor,
                            "elements " + std::to_string(run.begin) + ".." + std::to_string(std::min(at, run.end) - 1) +
                                " are in two files"));
    }
    at = run.end;
  }
  if (at < elements) {
    return fail(at_tensor(Errc::uncovered, tensor,
                          "elements " + std::to_string(at) + ".." + std::to_string(elements - 1) + " are in no file"));
  }
  return {};
}

/// The dimension along which the fewest boxes overlap: the one with the most different offsets.
std::size_t sweep_dimension(const std::vector<Box>& regions, std::size_t rank) {
  std::size_t best = 0;
  std::size_t most = 0;
  std::vector<std::uint64_t> offsets(regions.size());
  for (std::size_t d = 0; d < rank; ++d) {
    std::transform(regions.begin(), regions.end(), offsets.begin(), [&](const Box& box) { return box.offset[d]; });
    std::sort(offsets.begin(), offsets.end());
    const auto different = static_cast<std::size_t>(std::unique(offsets.begin(), offsets.end()) - offsets.begin());
    if (different <= most) continue;
    most = different;
    best = d;
  }
  return best;
}

bool meet(const Box& a, const Box& b) {
  for (std::size_t d = 0; d < a.offset.size(); ++d) {
    if (a.offset[d] + a.size[d] <= b.offset[d] || b.offset[d] + b.size[d] <= a.offset[d]) return false;
  }
  return true;
}

/// Any boxes: no two may meet, and their volumes must add up to the tensor. A sweep along one dimension keeps only the
/// boxes that are open there. `regions` are sorted by offset.
Result<> check_boxes(const Tensor& tensor, const std::vector<Box>& regions, std::uint64_t elements) {
  const std::size_t along = sweep_dimension(regions, tensor.shape.size());
  std::vector<const Box*> order;
  for (const Box& region : regions) order.push_back(&region);
  std::stable_sort(order.begin(), order.end(),
                   [&](const Box* a, const Box* b) { return a->offset[along] < b->offset[along]; });
  std::uint64_t total = 0;
  std::vector<const Box*> open;
  for (const Box* next : order) {
    const Box& region = *next;
    const std::uint64_t at = region.offset[along];
    std::erase_if(open, [&](const Box* r) { return r->offset[along] + r->size[along] <= at; });
    for (const Box* other : open) {
      if (!meet(*other, region)) continue;
      if (const auto common = intersect(*other, region)) {
        return fail(
            at_tensor(Errc::overlap, tensor,
                      "the box at " + text(common->offset) + " of size " + text(common->size) + " is in two files"));
      }
    }
    open.push_back(&region);
    total += volume(region.size);
  }
  if (total != elements) {
    return fail(
        at_tensor(Errc::uncovered, tensor,
                  std::to_string(elements - total) + " of " + std::to_string(elements) + " elements are in no file"));
  }
  return {};
}

bool before(const Box& a, const Box& b) {
  return a.offset != b.offset ? a.offset < b.offset : a.size < b.size;
}

void append_boxes(const Chunk& chunk, std::vector<Box>& out) {
  if (chunk.flat) {
    split_flat(chunk.box, *chunk.flat, out);
  } else {
    out.push_back(chunk.box);
  }
}

/// Keeps one of each set of replicas. Replicas hold exactly the same elements: two ranges of one box that only begin
/// alike share their first boxes and are not replicas.
void drop_replicas(std::vector<Chunk>& chunks) {
  for (Chunk& chunk : chunks) chunk = tightest(std::move(chunk));
  const auto key = [](const Chunk& chunk) { return chunk.flat.value_or(Extent{0, 0}); };
  std::sort(chunks.begin(), chunks.end(), [&](const Chunk& a, const Chunk& b) {
    if (a.box != b.box) return before(a.box, b.box);
    return key(a).begin != key(b).begin ? key(a).begin < key(b).begin : key(a).end < key(b).end;
  });
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
}

Result<> check_tensor(const Map& map, std::size_t index) {
  const Tensor& tensor = map.tensors[index];
  CKPT_TRY(const std::uint64_t elements, checked_volume(tensor.shape));
  if (elements == 0) return {};
  const Box whole = Box::whole(tensor.shape);
  std::vector<Extent> runs;
  std::vector<Chunk> chunks;
  bool only_runs = true;
  CKPT_CHECK(map.index->regions(index, {0, elements}, [&](const Chunk& chunk) -> Result<> {
    if (chunk.box == whole) {
      runs.push_back(chunk.flat.value_or(Extent{0, elements}));
    } else {
      only_runs = false;
    }
    chunks.push_back(chunk);
    return {};
  }));
  if (only_runs) return check_runs(tensor, std::move(runs), elements);

  drop_replicas(chunks);
  std::vector<Box> regions;
  for (const Chunk& chunk : chunks) append_boxes(chunk, regions);
  std::sort(regions.begin(), regions.end(), before);
  return check_boxes(tensor, regions, elements);
}

}  // namespace

Result<> check_coverage(const Map& map, std::span<const std::uint32_t> tensors) {
  for (const std::uint32_t tensor : tensors) CKPT_CHECK(check_tensor(map, tensor));
  return {};
}

}  // namespace ckpt
