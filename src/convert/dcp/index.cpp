#include "convert/dcp/index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "convert/dcp/compressed_item.hpp"
#include "format/checked.hpp"

namespace ckpt::dcp {
namespace {

constexpr std::uint32_t kUnusual = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kReadAhead = 32;  // items after a needed one, in its file, whose place is read with it

/// Row-major strides of a shape without overflow: parse_metadata checked the volume.
std::vector<std::uint64_t> strides_of(const Shape& shape) {
  std::vector<std::uint64_t> out(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) out[d - 1] = out[d] * shape[d];
  return out;
}

/// True when the box of an item holds an element of [from, to): finds its first element at or after `from`.
bool meets(const Metadata& metadata, const Entry& entry, std::uint64_t item, Extent elements,
           std::span<const std::uint64_t> strides) {
  const std::size_t rank = entry.shape.size();
  const auto low = [&](std::size_t d) { return metadata.bound(entry, item, d); };
  const auto high = [&](std::size_t d) { return low(d) + metadata.bound(entry, item, rank + d); };
  std::uint64_t first = 0;     // of the coordinates that follow `elements.begin` so far
  std::uint64_t advanced = 0;  // the last point at which a coordinate could be increased instead
  std::size_t advanced_dim = rank;
  std::uint64_t rest = elements.begin;
  std::size_t d = 0;
  for (; d < rank; ++d) {
    const std::uint64_t at = rest / strides[d];
    rest %= strides[d];
    if (at < low(d)) break;
    if (at >= high(d)) {
      if (advanced_dim == rank) return false;
      first = advanced;
      d = advanced_dim + 1;
      break;
    }
    if (at + 1 < high(d)) {
      advanced = first + (at + 1) * strides[d];
      advanced_dim = d;
    }
    first += at * strides[d];
  }
  for (; d < rank; ++d) first += low(d) * strides[d];
  return first < elements.end;
}

/// The box, or, if its elements are consecutive in the row-major order of the whole, that run.
Chunk as_run(Box box, Box whole) {
  std::size_t cut = box.size.size();  // dimensions from here on are full
  while (cut > 0 && box.size[cut - 1] == whole.size[cut - 1]) --cut;
  if (cut == 0) return {std::move(box)};
  const auto before = box.size.begin() + static_cast<std::ptrdiff_t>(cut) - 1;
  if (std::any_of(box.size.begin(), before, [](std::uint64_t n) { return n != 1; })) return {std::move(box)};
  const std::uint64_t begin = linear_index(whole, box.offset);
  return {std::move(whole), Extent{begin, begin + volume(box.size)}};
}

}  // namespace

ItemIndex::ItemIndex(Metadata metadata, std::vector<StoredType> types, RangeReader reader, std::optional<Codec> codec,
                     std::vector<std::uint64_t> decoded_bytes)
    : metadata_(std::move(metadata)),
      codec_(codec),
      types_(std::move(types)),
      lazy_{.ends = reader.empty(), .reader = std::move(reader), .decoded_bytes = std::move(decoded_bytes)} {
  const std::size_t count = metadata_.item_file.size();
  max_span_.reserve(metadata_.entries.size());
  by_place_.reserve(count);
  for (const Entry& entry : metadata_.entries) {
    std::uint64_t span = 0;
    if (entry.is_tensor) {
      const std::size_t rank = entry.shape.size();
      const auto strides = strides_of(entry.shape);
      for (std::uint64_t item = entry.first_item; item < entry.first_item + entry.item_count; ++item) {
        std::uint64_t last = 0;
        for (std::size_t d = 0; d < rank; ++d) last += (metadata_.bound(entry, item, rank + d) - 1) * strides[d];
        span = std::max(span, last);
        by_place_.push_back(static_cast<std::uint32_t>(item));
      }
    }
    max_span_.push_back(span);
  }
  std::sort(by_place_.begin(), by_place_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::tie(metadata_.item_file[a], metadata_.item_offset[a], a) <
           std::tie(metadata_.item_file[b], metadata_.item_offset[b], b);
  });
  lazy_.data_delta.resize(count);
  lazy_.crc.resize(count);
}

Result<> ItemIndex::chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const {
  const Entry& entry = metadata_.entries[tensor];
  const StoredType& type = types_[tensor];
  const std::vector<std::uint64_t> items = find(tensor, elements);
  if (entry.is_tensor) CKPT_CHECK(resolve(items));
  for (const std::uint64_t item : items) {
    PlacedChunk placed{chunk(entry, type, item), locator(entry, type, item)};
    // A dense block of rows is a run of the tensor, which the planner joins without looking at boxes.
    if (entry.is_tensor && placed.where.strides.empty()) {
      placed.chunk = as_run(std::move(placed.chunk.box), in_model(Box::whole(entry.shape), type));
    }
    CKPT_CHECK(visit(placed));
  }
  return {};
}

Result<> ItemIndex::regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const {
  for (const std::uint64_t item : find(tensor, elements)) {
    CKPT_CHECK(visit(chunk(metadata_.entries[tensor], types_[tensor], item)));
  }
  return {};
}

std::vector<std::uint64_t> ItemIndex::find(std::size_t tensor, Extent elements) const {
  const Entry& entry = metadata_.entries[tensor];
  std::vector<std::uint64_t> items;
  if (!entry.is_tensor) {
    if (elements.begin < std::min(blob_bytes(entry.first_item), elements.end)) {
      items.push_back(entry.first_item);
    }
    return items;
  }
  if (types_[tensor].form != StoredType::Form::plain) {  // two elements of the model are one of torch
    elements = {elements.begin / 2, elements.end / 2 + elements.end % 2};
  }
  const std::size_t rank = entry.shape.size();
  const auto strides = strides_of(entry.shape);
  const auto first_element = [&](std::uint64_t item) {
    std::uint64_t at = 0;
    for (std::size_t d = 0; d < rank; ++d) at += metadata_.bound(entry, item, d) * strides[d];
    return at;
  };
  // Items are sorted by first element; none reaches further than max_span past it.
  const std::uint64_t from = elements.begin - std::min(elements.begin, max_span_[tensor]);
  const std::uint64_t end = entry.first_item + entry.item_count;
  std::uint64_t low = entry.first_item;
  for (std::uint64_t high = end; low < high;) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (first_element(middle) < from) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  for (; low < end && first_element(low) < elements.end; ++low) {
    if (meets(metadata_, entry, low, elements, strides)) items.push_back(low);
  }
  return items;
}

Result<> ItemIndex::resolve(std::span<const std::uint64_t> needed) const {
  const auto place = [&](std::uint64_t item) {
    return std::tuple(metadata_.item_file[item], metadata_.item_offset[item], item);
  };
  std::vector<std::size_t> positions;
  for (const std::uint64_t item : needed) {
    if (lazy_.data_delta[item] != 0) continue;
    const auto at = std::partition_point(by_place_.begin(), by_place_.end(),
                                         [&](std::uint32_t other) { return place(other) < place(item); });
    positions.push_back(static_cast<std::size_t>(at - by_place_.begin()));
  }
  if (positions.empty()) return {};
  std::sort(positions.begin(), positions.end());

  std::vector<std::uint64_t> batch;
  for (std::size_t k = 0; k < positions.size(); ++k) {
    const std::uint32_t file = metadata_.item_file[by_place_[positions[k]]];
    const std::size_t stop = std::min({positions[k] + 1 + kReadAhead, by_place_.size(),
                                       k + 1 < positions.size() ? positions[k + 1] : by_place_.size()});
    if (codec_) break;  // decoding ahead is not worth it
    for (std::size_t at = positions[k]; at < stop && metadata_.item_file[by_place_[at]] == file; ++at) {
      if (lazy_.data_delta[by_place_[at]] == 0) batch.push_back(by_place_[at]);
    }
  }
  // Data read ahead may be damaged although it was not requested: errors count in a second pass over requested data.
  static_cast<void>(open_all(batch, true));
  std::vector<std::uint64_t> left;
  for (const std::size_t position : positions) {
    if (lazy_.data_delta[by_place_[position]] == 0) left.push_back(by_place_[position]);
  }
  return open_all(left, false);
}

Result<> ItemIndex::open_all(std::span<const std::uint64_t> items, bool skip_damaged) const {
  if (codec_) {
    for (const std::uint64_t item : items) {
      if (auto opened = open_compressed(item); !opened && !skip_damaged) {
        return fail(with_tensor(std::move(opened).error(), metadata_.entries[entry_of(item)].fqn));
      }
    }
    return {};
  }
  std::vector<Range> ranges;
  ranges.reserve(items.size());
  for (const std::uint64_t item : items) ranges.push_back({metadata_.item_file[item], item_bytes(item)});
  return open_items(lazy_.reader, lazy_.opener, ranges, [&](std::size_t k, Result<OpenedItem> opened) -> Result<> {
    Result<> settled = opened ? check_item(items[k], *opened) : tl::unexpected<Error>(opened.error());
    if (settled || skip_damaged) return {};
    return fail(with_tensor(std::move(settled).error(), metadata_.entries[entry_of(items[k])].fqn));
  });
}

Result<> ItemIndex::open_compressed(std::uint64_t item) const {
  // torch.save adds a few KiB to a tensor: an item that decodes to much more is a bomb.
  constexpr std::uint64_t kMostAdded = 1 << 20;
  const std::size_t index = entry_of(item);
  CKPT_TRY(const std::uint64_t most,
           checked_add(dense_bytes(metadata_.entries[index], types_[index], item), kMostAdded));
  const std::uint32_t file = metadata_.item_file[item];
  lazy_.ends.drop();
  CKPT_TRY(lazy_.decoded_bytes[item],
           decode_ends(lazy_.reader, file, {.codec = *codec_, .stored = item_bytes(item), .bytes = most}, lazy_.ends));
  CKPT_TRY(const OpenedItem opened, open_decoded(lazy_.opener, lazy_.ends, file, lazy_.decoded_bytes[item]));
  return check_item(item, opened);
}

Result<> ItemIndex::check_item(std::uint64_t item, const OpenedItem& opened) const {
  const std::size_t index = entry_of(item);
  const Entry& entry = metadata_.entries[index];
  const StoredType& type = types_[index];
  if (!opened.view) {
    const auto& graph = opened.archive.graph;
    const std::string kind(torch::unsupported_kind(graph, graph.root()));
    if (kind.empty()) return fail(disagreement(item, "it holds no tensor"));
    Error error =
        disagreement(item, fmt::format("it holds a {}, which is recognised but not read", kind), Errc::unsupported);
    error.hint = "--only PATTERN    takes the tensors that can be read";
    return fail(std::move(error));
  }
  const torch::TensorView& view = *opened.view;
  if (view.dtype_name != metadata_.dtypes[entry.dtype]) {
    return fail(
        disagreement(item, "its dtype is " + view.dtype_name + ", .metadata says " + metadata_.dtypes[entry.dtype]));
  }
  if (view.shape != metadata_.box(entry, item).size) {
    return fail(disagreement(item, "its shape differs from the chunk in .metadata"));
  }
  auto located = opened.archive.locate(view, metadata_.item_file[item]);
  if (!located) return fail(disagreement(item, located.error().message, located.error().code));

  const std::uint64_t delta = located->offset - (codec_ ? 0 : metadata_.item_offset[item]);
  if (codec_) located->compressed = Compressed{*codec_, item_bytes(item), lazy_.decoded_bytes[item]};
  const std::uint64_t end = located->offset + dense_bytes(entry, type, item);
  const bool whole = !located->crc || (located->crc->begin == located->offset && located->crc->end == end);
  const bool crc_fits = !located->crc || located->crc->value != 0;
  if (located->strides.empty() && !located->big_endian && whole && crc_fits && delta > 0 && delta < kUnusual) {
    lazy_.data_delta[item] = static_cast<std::uint32_t>(delta);
    lazy_.crc[item] = located->crc ? located->crc->value : 0;
  } else {
    lazy_.data_delta[item] = kUnusual;
    lazy_.unusual.insert_or_assign(item, *std::move(located));
  }
  return {};
}

Error ItemIndex::disagreement(std::uint64_t item, std::string reason, Errc code) const {
  const std::string& path = lazy_.reader.path(metadata_.item_file[item]);
  const std::uint64_t offset = metadata_.item_offset[item];
  return Error{.code = code,
               .message = path + ": item at " + std::to_string(offset) + ": " + std::move(reason),
               .file = path,
               .offset = offset};
}

std::uint64_t ItemIndex::dense_bytes(const Entry& entry, const StoredType& type, std::uint64_t item) const {
  std::uint64_t elements = 1;
  for (std::size_t d = 0; d < entry.shape.size(); ++d) elements *= metadata_.bound(entry, item, entry.shape.size() + d);
  return elements * unit_bytes(type.dtype) * (type.form == StoredType::Form::complex_pair ? 2 : 1);
}

std::uint64_t ItemIndex::blob_bytes(std::uint64_t item) const {
  return codec_ ? lazy_.decoded_bytes[item] : metadata_.item_length[item];
}

Locator ItemIndex::locator(const Entry& entry, const StoredType& type, std::uint64_t item) const {
  const bool is_usual = !entry.is_tensor || lazy_.data_delta[item] != kUnusual;
  if (!is_usual) return lazy_.unusual.at(item);
  Locator out{.file = metadata_.item_file[item],
              .offset = codec_ ? 0 : metadata_.item_offset[item],
              .dtype = entry.is_tensor ? type.dtype : Dtype::u8};
  if (codec_) out.compressed = Compressed{*codec_, item_bytes(item), lazy_.decoded_bytes[item]};
  if (!entry.is_tensor) return out;
  out.offset += lazy_.data_delta[item];
  if (lazy_.crc[item] != 0) {
    out.crc = Crc{out.offset, out.offset + dense_bytes(entry, type, item), lazy_.crc[item]};
  }
  return out;
}

Chunk ItemIndex::chunk(const Entry& entry, const StoredType& type, std::uint64_t item) const {
  if (!entry.is_tensor) return {Box::whole({blob_bytes(item)})};
  return {in_model(metadata_.box(entry, item), type)};
}

std::size_t ItemIndex::entry_of(std::uint64_t item) const {
  const auto after = std::partition_point(metadata_.entries.begin(), metadata_.entries.end(),
                                          [&](const Entry& entry) { return entry.first_item <= item; });
  return static_cast<std::size_t>(after - metadata_.entries.begin()) - 1;
}

Extent ItemIndex::item_bytes(std::uint64_t item) const {
  return {metadata_.item_offset[item], metadata_.item_offset[item] + metadata_.item_length[item]};
}

}  // namespace ckpt::dcp
