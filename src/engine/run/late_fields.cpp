#include "engine/run/late_fields.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "format/checked.hpp"
#include "format/hash.hpp"

namespace ckpt {
namespace {

// Fields closer than this are written together; the bytes between them are read first.
constexpr std::uint64_t kNear = 4096;
constexpr std::uint64_t kMostWrittenTogether = kLeafBytes;

// A message of another rank: records of this form, parts first.
struct Record {
  std::uint32_t index = 0;  // of a part or a field
  std::uint32_t value = 0;  // its checksum, which the field stores
  std::uint32_t state = 0;  // kPart; else bytes found, and kFilled
};
constexpr std::uint32_t kPart = 0x100;
constexpr std::uint32_t kFilled = 0x10;

std::array<std::uint8_t, LateField::kBytes> little_endian(std::uint32_t value) {
  std::array<std::uint8_t, LateField::kBytes> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::uint8_t>(value >> (8 * i));
  return out;
}

std::uint32_t from_little_endian(const std::array<std::uint8_t, LateField::kBytes>& bytes) {
  std::uint32_t out = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) out = out << 8 | bytes[i];
  return out;
}

Extent common(Extent a, Extent b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

}  // namespace

LateFields::LateFields(const std::vector<TargetFile>& files) {
  std::uint64_t leaves = 0;
  const bool none = std::all_of(files.begin(), files.end(), [](const TargetFile& file) { return file.late.empty(); });
  if (none) return;
  for (const TargetFile& target : files) {
    File file{.path = target.path, .first_leaf = leaves};
    leaves += target.leaf_count();
    std::vector<Extent> ranges;
    ranges.reserve(target.late.size());
    for (const LateField& field : target.late) ranges.push_back(field.covers);
    std::ranges::sort(ranges, {}, &Extent::begin);
    ranges.erase(std::unique(ranges.begin(), ranges.end()), ranges.end());
    file.sums.begin = sums_.size();
    for (const Extent range : ranges) {
      Sum sum{.covers = range, .first_part = parts_.size()};
      sum.missing = (range.end - 1) / kLeafBytes - range.begin / kLeafBytes + 1;
      parts_.resize(parts_.size() + static_cast<std::size_t>(sum.missing));
      sums_.push_back(sum);
    }
    file.sums.end = sums_.size();
    file.fields.begin = fields_.size();
    for (const LateField& field : target.late) {
      const auto at = std::ranges::lower_bound(ranges, field.covers.begin, {}, &Extent::begin);
      fields_.push_back(
          {.offset = field.offset,
           .sum = static_cast<std::uint32_t>(file.sums.begin + static_cast<std::uint64_t>(at - ranges.begin()))});
    }
    file.fields.end = fields_.size();
    files_.push_back(std::move(file));
  }
}

/// Indices of the sums whose ranges overlap these bytes of a file.
Extent LateFields::sums_in(const File& file, Extent bytes) const {
  const auto begin = sums_.begin() + static_cast<std::ptrdiff_t>(file.sums.begin);
  const auto end = sums_.begin() + static_cast<std::ptrdiff_t>(file.sums.end);
  const auto first = std::partition_point(begin, end, [&](const Sum& sum) { return sum.covers.end <= bytes.begin; });
  const auto last = std::partition_point(first, end, [&](const Sum& sum) { return sum.covers.begin < bytes.end; });
  return {static_cast<std::uint64_t>(first - sums_.begin()), static_cast<std::uint64_t>(last - sums_.begin())};
}

Extent LateFields::fields_in(const File& file, Extent bytes) const {
  const auto begin = fields_.begin() + static_cast<std::ptrdiff_t>(file.fields.begin);
  const auto end = fields_.begin() + static_cast<std::ptrdiff_t>(file.fields.end);
  const auto first = std::partition_point(
      begin, end, [&](const Field& field) { return field.offset + LateField::kBytes <= bytes.begin; });
  const auto last = std::partition_point(first, end, [&](const Field& field) { return field.offset < bytes.end; });
  return {static_cast<std::uint64_t>(first - fields_.begin()), static_cast<std::uint64_t>(last - fields_.begin())};
}

void LateFields::set_part(Sum& sum, std::uint64_t part, std::uint32_t crc) {
  Part& known = parts_[static_cast<std::size_t>(sum.first_part + part)];
  if (known.known && known.crc == crc) return;
  if (!known.known) --sum.missing;
  known = {crc, true};
  if (sum.missing > 0) return;
  const std::uint64_t first = first_leaf_of(sum);
  const std::uint64_t count = (sum.covers.end - 1) / kLeafBytes - first + 1;
  sum.value = parts_[static_cast<std::size_t>(sum.first_part)].crc;
  for (std::uint64_t i = 1; i < count; ++i) {
    const Extent here = common(sum.covers, {(first + i) * kLeafBytes, (first + i + 1) * kLeafBytes});
    sum.value = crc32_combine(sum.value, parts_[static_cast<std::size_t>(sum.first_part + i)].crc, here.size());
  }
}

void LateFields::take(std::uint32_t file_index, std::uint64_t leaf, std::span<std::byte> bytes) {
  if (empty()) return;
  const File& file = files_[file_index];
  const Extent here{leaf * kLeafBytes, leaf * kLeafBytes + bytes.size()};
  const Extent sums = sums_in(file, here);
  std::vector<std::uint32_t> crcs;
  crcs.reserve(static_cast<std::size_t>(sums.size()));
  for (std::uint64_t i = sums.begin; i < sums.end; ++i) {
    const Extent part = common(sums_[static_cast<std::size_t>(i)].covers, here);
    crcs.push_back(crc32(0, bytes.subspan(part.begin - here.begin, part.size())));
  }
  const std::lock_guard lock(mutex_);
  for (std::uint64_t i = sums.begin; i < sums.end; ++i) {
    Sum& sum = sums_[static_cast<std::size_t>(i)];
    set_part(sum, leaf - first_leaf_of(sum), crcs[static_cast<std::size_t>(i - sums.begin)]);
  }
  const Extent fields = fields_in(file, here);
  for (std::uint64_t i = fields.begin; i < fields.end; ++i) {
    Field& field = fields_[static_cast<std::size_t>(i)];
    const Extent part = common({field.offset, field.offset + LateField::kBytes}, here);
    std::byte* const at = bytes.data() + (part.begin - here.begin);
    std::memcpy(field.found.data() + (part.begin - field.offset), at, static_cast<std::size_t>(part.size()));
    std::memset(at, 0, static_cast<std::size_t>(part.size()));
    field.found_bytes = static_cast<std::uint8_t>(field.found_bytes + part.size());
  }
}

void LateFields::fill(std::uint32_t file_index, std::uint64_t leaf, std::span<std::byte> bytes) {
  if (empty()) return;
  const File& file = files_[file_index];
  const Extent here{leaf * kLeafBytes, leaf * kLeafBytes + bytes.size()};
  const std::lock_guard lock(mutex_);
  const Extent fields = fields_in(file, here);
  for (std::uint64_t i = fields.begin; i < fields.end; ++i) {
    Field& field = fields_[static_cast<std::size_t>(i)];
    const Sum& sum = sums_[field.sum];
    // A field that spans two leaves is written at the end.
    const bool whole = field.offset >= here.begin && field.offset + LateField::kBytes <= here.end;
    if (sum.missing > 0 || !whole) continue;
    const auto value = little_endian(sum.value);
    std::memcpy(bytes.data() + (field.offset - here.begin), value.data(), value.size());
    field.filled = true;
  }
}

void LateFields::adopt(const LateFields& from, const std::vector<bool>& leaves) {
  if (empty()) return;
  const std::scoped_lock lock(mutex_, from.mutex_);
  for (const File& file : files_) {
    for (std::uint64_t i = file.sums.begin; i < file.sums.end; ++i) {
      Sum& sum = sums_[static_cast<std::size_t>(i)];
      const std::uint64_t first = first_leaf_of(sum);
      const std::uint64_t count = (sum.covers.end - 1) / kLeafBytes - first + 1;
      for (std::uint64_t part = 0; part < count; ++part) {
        const Part& known = from.parts_[static_cast<std::size_t>(sum.first_part + part)];
        if (known.known && leaves[static_cast<std::size_t>(file.first_leaf + first + part)])
          set_part(sum, part, known.crc);
      }
    }
  }
}

std::string LateFields::packed_records() const {
  const std::lock_guard lock(mutex_);
  std::vector<Record> records;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].known) records.push_back({static_cast<std::uint32_t>(i), parts_[i].crc, kPart});
  }
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const Field& field = fields_[i];
    if (field.found_bytes == 0 && !field.filled) continue;
    records.push_back({static_cast<std::uint32_t>(i), from_little_endian(field.found),
                       static_cast<std::uint32_t>(field.found_bytes) | (field.filled ? kFilled : 0)});
  }
  return {reinterpret_cast<const char*>(records.data()), records.size() * sizeof(Record)};
}

void LateFields::absorb(std::string_view packed_records) {
  const std::lock_guard lock(mutex_);
  std::vector<Record> records(packed_records.size() / sizeof(Record));
  if (records.empty()) return;
  std::memcpy(records.data(), packed_records.data(), records.size() * sizeof(Record));
  std::size_t sum = 0;  // of the part; they come in order
  for (const Record& record : records) {
    if (record.state == kPart) {
      if (record.index >= parts_.size()) continue;
      while (sum + 1 < sums_.size() && sums_[sum + 1].first_part <= record.index) ++sum;
      set_part(sums_[sum], record.index - sums_[sum].first_part, record.value);
    } else if (record.index < fields_.size()) {
      Field& field = fields_[record.index];
      const auto bytes = little_endian(record.value);  // those that it did not find are zero
      for (std::size_t i = 0; i < bytes.size(); ++i)
        field.found[i] = static_cast<std::uint8_t>(field.found[i] | bytes[i]);
      field.found_bytes = static_cast<std::uint8_t>(field.found_bytes + (record.state & 0xfu));
      field.filled = field.filled || (record.state & kFilled) != 0;
    }
  }
}

Result<> LateFields::write_file(Io& io, FileHandle handle, const File& file) const {
  std::vector<std::byte> room;
  for (std::uint64_t i = file.fields.begin; i < file.fields.end;) {
    if (fields_[static_cast<std::size_t>(i)].filled) {
      ++i;
      continue;
    }
    const std::uint64_t begin = fields_[static_cast<std::size_t>(i)].offset;
    std::vector<std::uint64_t> together;
    std::uint64_t end = begin;
    for (; i < file.fields.end; ++i) {
      const Field& field = fields_[static_cast<std::size_t>(i)];
      const std::uint64_t field_end = field.offset + LateField::kBytes;
      if (field.filled) continue;
      if (!together.empty() && (field.offset - end > kNear || field_end - begin > kMostWrittenTogether)) break;
      together.push_back(i);
      end = field_end;
    }
    room.resize(static_cast<std::size_t>(end - begin));
    if (together.size() > 1) CKPT_CHECK(io.read_at(handle, begin, room));
    for (const std::uint64_t index : together) {
      const Field& field = fields_[static_cast<std::size_t>(index)];
      const Sum& sum = sums_[field.sum];
      if (sum.missing > 0)
        return fail(Errc::internal, "the checksum of bytes " + std::to_string(sum.covers.begin) + ".." +
                                        std::to_string(sum.covers.end - 1) + " of " + file.path + " is not complete");
      const auto value = little_endian(sum.value);
      std::memcpy(room.data() + (field.offset - begin), value.data(), value.size());
    }
    CKPT_CHECK(io.write_at(handle, begin, room));
  }
  return {};
}

Result<> LateFields::write_rest(Io& io, const std::string& target_root) const {
  const std::lock_guard lock(mutex_);
  for (const File& file : files_) {
    const auto begin = fields_.begin() + static_cast<std::ptrdiff_t>(file.fields.begin);
    const auto end = fields_.begin() + static_cast<std::ptrdiff_t>(file.fields.end);
    if (std::all_of(begin, end, [](const Field& field) { return field.filled; })) continue;
    const std::string path = file.path.empty() ? target_root : join_path(target_root, file.path);
    CKPT_TRY(const FileHandle handle, io.open(path, {.mode = OpenOptions::Mode::write_existing}));
    auto written = write_file(io, handle, file);
    if (written) written = io.sync(handle);
    auto closed = io.close(handle);
    CKPT_CHECK(std::move(written));
    CKPT_CHECK(std::move(closed));
  }
  return {};
}

std::vector<LateFields::Wrong> LateFields::wrong() const {
  const std::lock_guard lock(mutex_);
  std::vector<Wrong> out;
  for (std::size_t f = 0; f < files_.size(); ++f) {
    for (std::uint64_t i = files_[f].fields.begin; i < files_[f].fields.end; ++i) {
      const Field& field = fields_[static_cast<std::size_t>(i)];
      const Sum& sum = sums_[field.sum];
      if (field.found_bytes != LateField::kBytes || sum.missing > 0) continue;
      const std::uint32_t stored = from_little_endian(field.found);
      if (stored == sum.value) continue;
      out.push_back({static_cast<std::uint32_t>(f), field.offset, sum.covers, stored, sum.value});
    }
  }
  return out;
}

}  // namespace ckpt
