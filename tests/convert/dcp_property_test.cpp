// rapidcheck's extra wants GoogleTest first.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "convert/dcp_files.hpp"
#include "convert/formats.hpp"
#include "support/golden.hpp"

namespace ckpt {
namespace {

/// The whole tensor: element i is i as a 32-bit integer.
std::string truth(std::uint64_t elements) {
  std::string out;
  for (std::uint32_t i = 0; i < elements; ++i) out.append(reinterpret_cast<const char*>(&i), 4);
  return out;
}

/// The bytes of a box, laid out with the dimensions in `order`, outermost first; `strides` tells where each went.
std::string cut(const Shape& shape, const Box& box, const std::vector<std::size_t>& order, Shape& strides) {
  strides.assign(shape.size(), 1);
  std::uint64_t step = 1;
  for (std::size_t k = order.size(); k-- > 0;) {
    strides[order[k]] = step;
    step *= box.size[order[k]];
  }
  std::string out(volume(box.size) * 4, '\0');
  for (std::uint64_t i = 0; i < volume(box.size); ++i) {
    Shape point = box.offset;
    std::uint64_t at = 0;
    std::uint64_t rest = i;
    for (std::size_t d = shape.size(); d-- > 0;) {
      at += rest % box.size[d] * strides[d];
      point[d] += rest % box.size[d];
      rest /= box.size[d];
    }
    const auto value = static_cast<std::uint32_t>(linear_index(Box::whole(shape), point));
    std::memcpy(out.data() + at * 4, &value, 4);
  }
  return out;
}

std::vector<std::uint64_t> random_cuts(std::uint64_t length) {
  std::vector<std::uint64_t> cuts{0, length};
  for (int n = *rc::gen::inRange(0, 4); n > 0; --n) cuts.push_back(*rc::gen::inRange<std::uint64_t>(0, length + 1));
  std::sort(cuts.begin(), cuts.end());
  return cuts;  // equal neighbours make chunks without elements
}

/// A grid of chunks over the shape, stored in a random order, files, layouts and alignments, some of them twice.
dcp_build::Entry random_tensor(DcpFiles& files, const std::string& name) {
  const std::size_t rank = *rc::gen::inRange<std::size_t>(0, 4);
  dcp_build::Entry entry{.fqn = name, .dtype = "int32"};
  std::vector<std::vector<std::uint64_t>> cuts;
  for (std::size_t d = 0; d < rank; ++d) {
    entry.shape.push_back(*rc::gen::inRange<std::uint64_t>(1, 8));
    cuts.push_back(random_cuts(entry.shape[d]));
  }
  std::vector<Box> boxes{Box{}};
  for (std::size_t d = 0; d < rank; ++d) {
    std::vector<Box> next;
    for (const Box& box : boxes) {
      for (std::size_t k = 0; k + 1 < cuts[d].size(); ++k) {
        next.push_back(box);
        next.back().offset.push_back(cuts[d][k]);
        next.back().size.push_back(cuts[d][k + 1] - cuts[d][k]);
      }
    }
    boxes = std::move(next);
  }
  for (std::size_t i = boxes.size(); i > 1; --i) std::swap(boxes[i - 1], boxes[*rc::gen::inRange<std::size_t>(0, i)]);

  for (const Box& box : boxes) {
    entry.chunks.push_back(box);
    const bool is_empty = volume(box.size) == 0;
    const int copies = is_empty ? 0 : *rc::gen::weightedElement<int>({{4, 1}, {1, 2}});
    for (int copy = 0; copy < copies; ++copy) {
      std::vector<std::size_t> order(rank);
      std::iota(order.begin(), order.end(), std::size_t{0});
      for (std::size_t i = rank; i > 1; --i) std::swap(order[i - 1], order[*rc::gen::inRange<std::size_t>(0, i)]);
      Shape strides;
      const std::string data = cut(entry.shape, box, order, strides);
      const std::string file = "__" + std::to_string(*rc::gen::inRange(0, 3)) + "_0.distcp";
      if (*rc::gen::weightedElement<bool>({{3, false}, {1, true}})) files.append(file, std::string(100'000, '?'));
      const dcp_build::Stream stream{.alignment = *rc::gen::element<std::uint64_t>(64, 4096),
                                     .with_crc = *rc::gen::arbitrary<bool>()};
      const dcp_build::View view{"IntStorage", volume(box.size), 0, box.size, strides};
      entry.records.emplace_back(box.offset, files.append(file, dcp_build::save_tensor(view, data, stream)));
    }
  }
  return entry;
}

RC_GTEST_PROP(DcpProperty, EveryElementOfRandomGridsIsFoundInItsChunk, ()) {
  DcpFiles files;
  const int count = *rc::gen::inRange(1, 4);
  for (int i = 0; i < count; ++i) files.add(random_tensor(files, "t" + std::to_string(i)));
  files.write();
  auto io = open_io(IoKind::threads, *rc::gen::element<std::size_t>(1, 8));
  RC_ASSERT(io.has_value());
  const auto map = dcp_format().reader->open(**io, files.root(), {});
  if (!map) RC_LOG() << map.error().message;
  RC_ASSERT(map.has_value());
  std::vector<std::uint32_t> all(map->tensors.size());
  std::iota(all.begin(), all.end(), 0u);
  RC_ASSERT(check_coverage(*map, all).has_value());

  for (int i = 0; i < count; ++i) {
    const std::string expected = truth(volume(files.entries()[static_cast<std::size_t>(i)].shape));
    const Gathered gathered = gather(*map, files.root(), static_cast<std::size_t>(i));
    RC_ASSERT(gathered.bytes == expected);
    RC_ASSERT(gathered.complete && gathered.replicas_agree && gathered.crc_agrees);
  }
}

RC_GTEST_PROP(DcpProperty, ARangeIsAnsweredByExactlyTheChunksThatMeetIt, ()) {
  DcpFiles files;
  files.add(random_tensor(files, "t"));
  files.write();
  auto io = open_io(IoKind::threads, 8);
  RC_ASSERT(io.has_value());
  const auto map = dcp_format().reader->open(**io, files.root(), {});
  RC_ASSERT(map.has_value());
  const dcp_build::Entry& entry = files.entries()[0];
  const std::uint64_t elements = volume(entry.shape);
  const std::uint64_t begin = *rc::gen::inRange<std::uint64_t>(0, elements);
  const std::uint64_t end = *rc::gen::inRange<std::uint64_t>(begin + 1, elements + 1);

  std::vector<Box> expected;
  for (const auto& [offset, info] : entry.records) {
    const Box& box = *std::find_if(entry.chunks.begin(), entry.chunks.end(), [&, &at = offset](const Box& candidate) {
      return candidate.offset == *at && volume(candidate.size) != 0;
    });
    bool met = false;
    for (std::uint64_t i = begin; i < end; ++i) {
      Box point{Shape(entry.shape.size()), Shape(entry.shape.size(), 1)};
      std::uint64_t rest = i;
      for (std::size_t d = entry.shape.size(); d-- > 0; rest /= entry.shape[d]) point.offset[d] = rest % entry.shape[d];
      met = met || entry.shape.empty() || intersect(box, point).has_value();
    }
    if (met) expected.push_back(box);
  }
  std::vector<Box> visited;
  RC_ASSERT(map->index
                ->regions(0, {begin, end},
                          [&](const Chunk& chunk) -> Result<> {
                            visited.push_back(chunk.box);
                            return {};
                          })
                .has_value());
  std::size_t placed = 0;
  std::uint64_t placed_elements = 0;
  RC_ASSERT(map->index
                ->chunks(0, {begin, end},
                         [&](const PlacedChunk& chunk) -> Result<> {
                           ++placed;
                           placed_elements += chunk.chunk.volume();
                           return {};
                         })
                .has_value());
  RC_ASSERT(placed == visited.size());
  RC_ASSERT(placed_elements ==
            std::accumulate(visited.begin(), visited.end(), std::uint64_t{0},
                            [](std::uint64_t sum, const Box& box) { return sum + volume(box.size); }));
  const auto by_offset = [](const Box& a, const Box& b) { return a.offset < b.offset; };
  std::sort(expected.begin(), expected.end(), by_offset);
  std::sort(visited.begin(), visited.end(), by_offset);
  RC_ASSERT(visited == expected);
}

}  // namespace
}  // namespace ckpt
