#include "format/model/model.hpp"

#include <algorithm>
#include <limits>

#include "format/checked.hpp"

namespace ckpt {

std::string_view role_name(Role role) {
  switch (role) {
    case Role::param:
      return "param";
    case Role::buffer:
      return "buffer";
    case Role::slot:
      return "slot";
    case Role::blob:
      return "blob";
  }
  return "param";
}

std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::note:
      return "note";
    case Severity::warning:
      return "warning";
    case Severity::incomplete:
      return "incomplete";
    case Severity::damage:
      return "damage";
  }
  return "damage";
}

bool fits_true_dtype(const Tensor& tensor) {
  if (tensor.true_dtype.empty()) return true;
  const bool is_named = (tensor.true_dtype == "complex128" && tensor.dtype == Dtype::f64) ||
                        (tensor.true_dtype == "complex32" && tensor.dtype == Dtype::f16);
  return is_named && !tensor.shape.empty() && tensor.shape.back() == 2;
}

Result<std::uint64_t> tensor_bytes(Dtype dtype, const Shape& shape) {
  CKPT_TRY(const std::uint64_t elements, checked_volume(shape));
  CKPT_TRY(const std::uint64_t bits, checked_mul(elements, dtype_bits(dtype)));
  if (bits % 8 != 0) return fail(Errc::corrupt, "a packed tensor does not end on a whole byte");
  return bits / 8;
}

namespace {

/// Facts about a chunk besides its position; shared by neighbours that agree.
struct Details {
  Dtype dtype;
  bool big_endian;
  std::vector<std::int64_t> strides;
  std::optional<Crc> crc;
  std::optional<Compressed> compressed;
};

bool same(const Details& a, const Locator& b) {
  const bool crc_same =
      a.crc.has_value() == b.crc.has_value() &&
      (!a.crc || (a.crc->begin == b.crc->begin && a.crc->end == b.crc->end && a.crc->value == b.crc->value));
  return crc_same && a.compressed == b.compressed && a.dtype == b.dtype && a.big_endian == b.big_endian &&
         a.strides == b.strides;
}

constexpr std::uint32_t kWholeTensor = std::numeric_limits<std::uint32_t>::max();

struct Record {
  std::uint64_t begin;  // row-major index of the first element, of the whole tensor
  std::uint64_t end;    // one past the last
  std::uint64_t reach;  // greatest `end` of this and earlier records of the tensor
  std::uint64_t offset;
  std::uint32_t file;
  std::uint32_t tensor;
  std::uint32_t box;      // index into boxes, or kWholeTensor: elements [begin, end) of the whole tensor
  std::uint32_t details;  // index into details
};

}  // namespace

struct ChunkTable::Impl {
  std::vector<Record> records;
  std::vector<std::size_t> first;  // per tensor, into records; one more at the end
  std::vector<Shape> shapes;       // per tensor
  std::vector<Chunk> boxes;
  std::vector<Details> details;
};

Result<> ChunkIndex::regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const {
  return chunks(tensor, elements, [&](const PlacedChunk& placed) { return visit(placed.chunk); });
}

ChunkTable::ChunkTable(std::size_t tensor_count) : impl_(std::make_unique<Impl>()) {
  impl_->shapes.resize(tensor_count);
}
ChunkTable::~ChunkTable() = default;
ChunkTable::ChunkTable(ChunkTable&&) noexcept = default;
ChunkTable& ChunkTable::operator=(ChunkTable&&) noexcept = default;

void ChunkTable::add(std::size_t tensor, const Shape& shape, Chunk chunk, Locator where) {
  Impl& self = *impl_;
  if (chunk.volume() == 0) return;
  self.shapes[tensor] = shape;
  const Box whole = Box::whole(shape);
  Record record{.begin = 0,
                .end = 0,
                .reach = 0,
                .offset = where.offset,
                .file = where.file,
                .tensor = static_cast<std::uint32_t>(tensor),
                .box = kWholeTensor,
                .details = 0};
  if (chunk.box == whole) {
    const Extent elements = chunk.flat.value_or(Extent{0, volume(shape)});
    record.begin = elements.begin;
    record.end = elements.end;
  } else {
    Shape last = chunk.box.offset;
    for (std::size_t d = 0; d < last.size(); ++d) last[d] += chunk.box.size[d] - 1;
    record.begin = linear_index(whole, chunk.box.offset);
    record.end = linear_index(whole, last) + 1;
    record.box = static_cast<std::uint32_t>(self.boxes.size());
    self.boxes.push_back(std::move(chunk));
  }
  if (self.details.empty() || !same(self.details.back(), where)) {
    self.details.push_back({where.dtype, where.big_endian, std::move(where.strides), where.crc, where.compressed});
  }
  record.details = static_cast<std::uint32_t>(self.details.size() - 1);
  self.records.push_back(record);
}

void ChunkTable::seal() {
  Impl& self = *impl_;
  std::stable_sort(self.records.begin(), self.records.end(), [](const Record& a, const Record& b) {
    return a.tensor != b.tensor ? a.tensor < b.tensor : a.begin < b.begin;
  });
  self.first.assign(self.shapes.size() + 1, self.records.size());
  std::size_t at = 0;
  for (std::size_t tensor = 0; tensor < self.shapes.size(); ++tensor) {
    self.first[tensor] = at;
    std::uint64_t reach = 0;
    for (; at < self.records.size() && self.records[at].tensor == tensor; ++at) {
      reach = std::max(reach, self.records[at].end);
      self.records[at].reach = reach;
    }
  }
}

Result<> ChunkTable::chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const {
  const Impl& self = *impl_;
  const auto begin = self.records.begin() + static_cast<std::ptrdiff_t>(self.first[tensor]);
  const auto end = self.records.begin() + static_cast<std::ptrdiff_t>(self.first[tensor + 1]);
  auto at = std::partition_point(begin, end, [&](const Record& r) { return r.reach <= elements.begin; });
  for (; at != end && at->begin < elements.end; ++at) {
    if (at->end <= elements.begin) continue;
    const Details& details = self.details[at->details];
    PlacedChunk placed;
    if (at->box == kWholeTensor) {
      placed.chunk = {Box::whole(self.shapes[tensor]), Extent{at->begin, at->end}};
    } else {
      placed.chunk = self.boxes[at->box];
    }
    placed.where = {at->file,           at->offset,  details.dtype,     details.strides,
                    details.big_endian, details.crc, details.compressed};
    CKPT_CHECK(visit(placed));
  }
  return {};
}

}  // namespace ckpt
