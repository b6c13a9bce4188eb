#include "format/files/safetensors.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <tuple>

#include "format/checked.hpp"
#include "format/little_endian.hpp"
#include "format/model/model.hpp"
#include "format/text/error_context.hpp"
#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"

namespace ckpt::safetensors {
namespace {

using Kind = json::Event::Kind;
constexpr std::size_t kMostDepth = 64;  // inside unknown fields

constexpr std::string_view kParse = "safetensors header: ";

tl::unexpected<Error> corrupt(std::uint64_t offset, std::string reason, std::string_view tensor = {}) {
  return fail({.code = Errc::corrupt,
               .message = std::string(kParse) + reason,
               .offset = offset,
               .tensor = std::string(tensor)});
}

/// Accepted by the reference implementation, but not supported here.
tl::unexpected<Error> beyond_us(std::uint64_t offset, std::string reason, std::string_view tensor) {
  return fail({.code = Errc::unsupported,
               .message = std::string(kParse) + reason,
               .offset = offset,
               .tensor = std::string(tensor),
               .hint = "save the tensor with another shape"});
}

/// Turns the tokens of the JSON into entries. Depth 0 is the document, 1 its members, 2 the fields of a tensor or of
/// the metadata, 3 the numbers of a shape or range.
class Reader final : public json::Handler {
 public:
  Result<> on(const json::Event& event) override {
    offset_ = kLengthBytes + event.offset;
    Result<> result = dispatch(event);
    failed_ = !result;
    return result;
  }
  bool failed() const { return failed_; }  ///< the parse ended in an error of this class, not of the JSON

  Header header{};
  std::vector<std::uint32_t> entry_offsets{};  ///< where each entry ended, bytes from the start of the file

 private:
  enum class Field : std::uint8_t { other, dtype, shape, range };

  Result<> dispatch(const json::Event& event) {
    switch (event.depth) {
      case 0:
        return event.kind == Kind::begin_object || event.kind == Kind::end_object ? Result<>{} : wrong();
      case 1:
        return member(event);
      case 2:
        return in_metadata_ ? user_text(event) : field(event);
      default:
        return number(event);
    }
  }

  tl::unexpected<Error> wrong() const {
    if (in_metadata_) return corrupt(offset_, "__metadata__ holds something other than text");
    return corrupt(offset_, "not a map of tensors with dtype, shape and data_offsets", entry_.name);
  }

  Result<> member(const json::Event& event) {
    switch (event.kind) {
      case Kind::key:
        in_metadata_ = event.text == kMetadataKey;
        entry_ = {};
        entry_.name = event.text;
        seen_ = {};
        return {};
      case Kind::begin_object:
        return {};
      case Kind::end_object: {
        if (std::exchange(in_metadata_, false)) return {};
        if (!seen_[0] || !seen_[1] || !seen_[2])
          return corrupt(offset_, "dtype, shape or data_offsets is missing", entry_.name);
        header.entries.push_back(std::move(entry_));
        entry_offsets.push_back(static_cast<std::uint32_t>(offset_));
        return {};
      }
      case Kind::null:  // of the reference's Option<HashMap>
        return std::exchange(in_metadata_, false) ? Result<>{} : wrong();
      default:
        return wrong();
    }
  }

  Result<> user_text(const json::Event& event) {
    if (event.kind == Kind::key) {
      header.metadata.emplace_back(event.text, std::string{});
    } else if (event.kind == Kind::text) {
      header.metadata.back().second = event.text;
    } else {
      return wrong();
    }
    return {};
  }

  Result<> field(const json::Event& event) {
    if (event.kind == Kind::key) {
      field_ = event.text == "dtype"          ? Field::dtype
               : event.text == "shape"        ? Field::shape
               : event.text == "data_offsets" ? Field::range
                                              : Field::other;
      if (field_ != Field::other) seen_[static_cast<std::size_t>(field_) - 1] = true;
      return {};
    }
    if (field_ == Field::other) return {};
    if (field_ == Field::dtype) {
      if (event.kind != Kind::text) return wrong();
      const auto dtype = dtype_from_name(event.text);
      if (!dtype) return corrupt(offset_, "unknown dtype", entry_.name);
      entry_.dtype = *dtype;
      return {};
    }
    if (event.kind == Kind::begin_array) {
      range_count_ = 0;
      return {};
    }
    if (event.kind != Kind::end_array) return wrong();
    if (field_ == Field::range && range_count_ != 2)
      return corrupt(offset_, "data_offsets is not a pair of numbers", entry_.name);
    return {};
  }

  Result<> number(const json::Event& event) {
    if (!in_metadata_ && field_ == Field::other) return {};
    if (in_metadata_ || event.depth != 3 || event.kind != Kind::natural)
      return in_metadata_ ? wrong() : corrupt(offset_, "a size that is not a natural number", entry_.name);
    if (field_ == Field::shape) {
      if (entry_.shape.size() == kMaxRank) return beyond_us(offset_, "more than 64 dimensions", entry_.name);
      entry_.shape.push_back(event.natural);
      return {};
    }
    if (range_count_ == 2) return corrupt(offset_, "data_offsets is not a pair of numbers", entry_.name);
    (range_count_++ == 0 ? entry_.begin : entry_.end) = event.natural;
    return {};
  }

  std::uint64_t offset_ = 0;
  Entry entry_{};
  std::array<bool, 3> seen_{};
  Field field_ = Field::other;
  unsigned range_count_ = 0;
  bool in_metadata_ = false;
  bool failed_ = false;
};

std::string range_text(std::uint64_t begin, std::uint64_t end) {
  return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

Result<> check_size(const Entry& entry, std::uint64_t offset) {
  const auto bytes = tensor_bytes(entry.dtype, entry.shape);
  // The reference multiplies from the left and ignores sizes after a zero.
  const bool is_empty = !entry.shape.empty() && entry.shape.front() == 0;
  if (!bytes && is_empty && entry.begin == entry.end) return beyond_us(offset, bytes.error().message, entry.name);
  if (!bytes) return corrupt(offset, bytes.error().message, entry.name);
  if (entry.end < entry.begin || entry.end - entry.begin != *bytes)
    return corrupt(offset,
                   "dtype and shape need " + std::to_string(*bytes) + " bytes, data_offsets is " +
                       range_text(entry.begin, entry.end),
                   entry.name);
  return {};
}

/// The rule of the reference's `validate`: sorted by range, each tensor begins where the previous one ended.
Result<> check_tiling(const Reader& reader, std::uint64_t data_bytes) {
  const std::vector<Entry>& entries = reader.header.entries;
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    return std::tie(entries[a].begin, entries[a].end) < std::tie(entries[b].begin, entries[b].end);
  };
  std::vector<std::uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0u);
  if (!std::is_sorted(order.begin(), order.end(), before)) std::sort(order.begin(), order.end(), before);
  std::uint64_t end = 0;
  for (const std::uint32_t index : order) {
    const Entry& entry = entries[index];
    const std::uint64_t offset = reader.entry_offsets[index];
    if (entry.begin > end)
      return corrupt(offset, "no tensor holds the data bytes " + range_text(end, entry.begin), entry.name);
    if (entry.begin < end)
      return corrupt(offset, "two tensors hold the data bytes " + range_text(entry.begin, std::min(end, entry.end)),
                     entry.name);
    end = entry.end;
    if (end > data_bytes)
      return corrupt(offset,
                     "data ends at byte " + std::to_string(end) + ", the file has " + std::to_string(data_bytes) +
                         " data bytes: cut short",
                     entry.name);
  }
  if (end < data_bytes)
    return corrupt(reader.header.data_begin + end, std::to_string(data_bytes - end) + " bytes after the last tensor");
  return {};
}

}  // namespace

Error reserved_name() {
  return {.code = Errc::unsupported,
          .message = "a tensor cannot be named __metadata__, which safetensors reserves",
          .tensor = std::string(kMetadataKey),
          .hint = "--map FILE    renames tensors"};
}

Result<std::uint64_t> header_bytes(std::span<const std::byte> head, std::uint64_t file_bytes) {
  if (file_bytes < kLengthBytes || head.size() < kLengthBytes)
    return corrupt(0, "the file has " + std::to_string(file_bytes) + " bytes, too few for a header");
  const std::uint64_t length = read_little_endian(head, 0, kLengthBytes);
  if (length > kMaxHeaderBytes)
    return corrupt(0, "the header length " + std::to_string(length) + " is over the limit of 100000000 bytes");
  if (length > file_bytes - kLengthBytes)
    return corrupt(0, "the header length " + std::to_string(length) + " runs past the end of the file");
  return kLengthBytes + length;
}

Result<Header> parse_header(std::span<const std::byte> head, std::uint64_t file_bytes) {
  CKPT_TRY(const std::uint64_t data_begin, header_bytes(head, file_bytes));
  if (head.size() < data_begin) return fail(Errc::internal, "safetensors header: called without the whole header");
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + kLengthBytes, data_begin - kLengthBytes);
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos || text[begin] != '{') return corrupt(kLengthBytes, "does not begin with '{'");

  Reader reader;
  const json::Limits limits{
      .max_bytes = kMaxHeaderBytes, .max_depth = kMostDepth, .max_values = std::numeric_limits<std::size_t>::max()};
  if (auto parsed = json::parse(text, reader, limits); !parsed) {
    Error error = std::move(parsed).error();
    if (reader.failed()) return fail(std::move(error));
    error.offset = kLengthBytes + error.offset.value_or(0);
    return fail(with_context(std::move(error), "safetensors header"));
  }
  reader.header.data_begin = data_begin;
  for (std::size_t i = 0; i < reader.header.entries.size(); ++i)
    CKPT_CHECK(check_size(reader.header.entries[i], reader.entry_offsets[i]));
  CKPT_CHECK(check_tiling(reader, file_bytes - data_begin));
  return std::move(reader.header);
}

Result<BuiltHeader> build_header(std::span<const NewEntry> entries, const Metadata& metadata, std::uint64_t alignment) {
  BuiltHeader out;
  std::string& text = out.bytes;
  text.assign(kLengthBytes, '\0');
  json::Writer json(text);
  json.begin_object();
  if (!metadata.empty()) {
    json.key(kMetadataKey).begin_object();
    for (const auto& [key, value] : metadata) json.member(key, value);
    json.end_object();
  }
  std::uint64_t end = 0;
  out.offsets.reserve(entries.size());
  for (const NewEntry& entry : entries) {
    if (entry.name == kMetadataKey) return fail(reserved_name());
    CKPT_TRY(const std::uint64_t bytes, tensor_bytes(entry.dtype, Shape(entry.shape.begin(), entry.shape.end())));
    const std::uint64_t begin = end;
    CKPT_TRY(end, checked_add(end, bytes));
    json.key(entry.name).begin_object().member("dtype", dtype_name(entry.dtype)).member("shape", entry.shape);
    json.member("data_offsets", std::array{begin, end}).end_object();
    out.offsets.push_back(begin);
  }
  json.end_object();
  text.append(round_up(text.size(), std::max(alignment, kLengthBytes)) - text.size(), ' ');
  const std::uint64_t length = text.size() - kLengthBytes;
  if (length > kMaxHeaderBytes)
    return fail(Errc::unsupported, "safetensors header: build: " + std::to_string(length) + " bytes for " +
                                       std::to_string(entries.size()) + " tensors, the format allows 100000000");
  for (std::size_t i = 0; i < kLengthBytes; ++i) text[i] = static_cast<char>(length >> (8 * i) & 0xff);
  for (std::uint64_t& offset : out.offsets) {
    CKPT_TRY(offset, checked_add(offset, text.size()));
  }
  CKPT_TRY(out.file_bytes, checked_add(end, text.size()));
  return out;
}

}  // namespace ckpt::safetensors
