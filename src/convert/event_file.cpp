#include "convert/event_file.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "format/little_endian.hpp"

namespace ckpt::training_log {
namespace {

constexpr std::size_t kWindowBytes = std::size_t{1} << 20;
constexpr std::size_t kHeadBytes = 12;                         // the record's length, and its checksum
constexpr std::size_t kTailBytes = 4;                          // the checksum of the data
constexpr std::size_t kMostEventBytes = std::size_t{1} << 18;  // longer ones hold images or graphs

// Fields of the messages.
constexpr std::uint64_t kStep = 2;
constexpr std::uint64_t kSummary = 5;
constexpr std::uint64_t kSummaryValue = 1;
constexpr std::uint64_t kTag = 1;
constexpr std::uint64_t kSimpleValue = 2;
constexpr std::uint64_t kTensor = 8;
constexpr std::uint64_t kTensorDtype = 1;
constexpr std::uint64_t kTensorContent = 4;
constexpr std::uint64_t kTensorFloats = 5;
constexpr std::uint64_t kTensorDoubles = 6;
constexpr std::uint64_t kFloatDtype = 1;
constexpr std::uint64_t kDoubleDtype = 2;

/// One field of a protocol buffer message.
struct Field {
  std::uint64_t number = 0;
  std::uint64_t value = 0;   ///< of a varint
  std::string_view bytes{};  ///< of a fixed or a length-delimited one
};

/// The fields of a message, one after another. Ends at the first that is no field.
class Fields {
 public:
  explicit Fields(std::string_view message) : left_(message) {}

  std::optional<Field> next() {
    const auto key = varint();
    if (!key) return std::nullopt;
    Field out{.number = *key >> 3U};
    switch (*key & 7U) {
      case 0: {
        const auto value = varint();
        if (!value) return std::nullopt;
        out.value = *value;
        return out;
      }
      case 1:
        return fixed(out, sizeof(std::uint64_t));
      case 2: {
        const auto size = varint();
        if (!size || *size > left_.size()) return std::nullopt;
        out.bytes = left_.substr(0, *size);
        left_.remove_prefix(*size);
        return out;
      }
      case 5:
        return fixed(out, sizeof(std::uint32_t));
      default:
        return std::nullopt;
    }
  }

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t out = 0;
    for (unsigned shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      out |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return out;
    }
    return std::nullopt;
  }

  std::optional<Field> fixed(Field out, std::size_t size) {
    if (size > left_.size()) return std::nullopt;
    out.bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return out;
  }

  std::string_view left_;
};

/// Of four bytes.
double float_of(std::string_view bytes) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(read_little_endian(bytes, 0, 4))));
}

/// Of a tensor with one element.
std::optional<double> scalar_of(std::string_view tensor) {
  std::uint64_t dtype = 0;
  std::string_view floats;
  std::string_view doubles;
  std::string_view content;
  Fields fields(tensor);
  while (const auto field = fields.next()) {
    if (field->number == kTensorDtype) dtype = field->value;
    if (field->number == kTensorContent) content = field->bytes;
    if (field->number == kTensorFloats) floats = field->bytes;
    if (field->number == kTensorDoubles) doubles = field->bytes;
  }
  if (dtype == kFloatDtype) {
    const std::string_view bytes = floats.empty() ? content : floats;
    if (bytes.size() == sizeof(float)) return float_of(bytes);
  } else if (dtype == kDoubleDtype) {
    const std::string_view bytes = doubles.empty() ? content : doubles;
    if (bytes.size() == sizeof(double)) return std::bit_cast<double>(read_little_endian(bytes, 0, sizeof(double)));
  }
  return std::nullopt;
}

void add_value(std::string_view value, std::uint64_t step, std::vector<LoggedValue>& out) {
  LoggedValue logged{.step = step};
  std::optional<double> number;
  Fields fields(value);
  while (const auto field = fields.next()) {
    if (field->number == kTag) logged.name = std::string(field->bytes);
    if (field->number == kSimpleValue && field->bytes.size() == sizeof(float)) number = float_of(field->bytes);
    if (field->number == kTensor) number = scalar_of(field->bytes);
  }
  if (!number || !std::isfinite(*number) || logged.name.empty()) return;
  logged.value = *number;
  out.push_back(std::move(logged));
}

void add_event(std::string_view event, std::vector<LoggedValue>& out) {
  std::uint64_t step = 0;
  std::vector<std::string_view> summaries;
  Fields fields(event);
  while (const auto field = fields.next()) {
    if (field->number == kStep) step = field->value;
    if (field->number == kSummary) summaries.push_back(field->bytes);
  }
  for (const std::string_view summary : summaries) {
    Fields values(summary);
    while (const auto field = values.next()) {
      if (field->number == kSummaryValue) add_value(field->bytes, step, out);
    }
  }
}

/// A window of a file that moves forward.
class Window {
 public:
  Window(Io& io, FileHandle file, std::uint64_t file_bytes) : io_(io), file_(file), file_bytes_(file_bytes) {}

  std::uint64_t file_bytes() const { return file_bytes_; }

  /// `size` bytes at `offset`, at most kWindowBytes; fewer at the end of the file. Valid until the next call.
  Result<std::string_view> at(std::uint64_t offset, std::size_t size) {
    size = static_cast<std::size_t>(std::min<std::uint64_t>(size, file_bytes_ - std::min(offset, file_bytes_)));
    if (offset < begin_ || offset + size > begin_ + bytes_.size()) {
      begin_ = offset;
      bytes_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kWindowBytes, file_bytes_ - offset)));
      CKPT_CHECK(io_.read_at(file_, begin_, std::as_writable_bytes(std::span(bytes_))));
    }
    return std::string_view(bytes_).substr(static_cast<std::size_t>(offset - begin_), size);
  }

 private:
  Io& io_;
  FileHandle file_;
  std::uint64_t file_bytes_;
  std::uint64_t begin_ = 0;
  std::string bytes_{};
};

Result<> read_records(Window& window, const std::string& path, std::vector<LoggedValue>& out) {
  const std::uint64_t end = window.file_bytes();
  for (std::uint64_t offset = 0; end - offset >= kHeadBytes + kTailBytes;) {
    CKPT_TRY(const std::string_view head, window.at(offset, kHeadBytes));
    const std::uint64_t length = read_little_endian(head, 0, sizeof(std::uint64_t));
    if (length > end - offset - kHeadBytes - kTailBytes) {
      if (offset != 0) return {};  // still being written
      return fail({.code = Errc::corrupt, .message = path + ": not a TensorBoard event file", .file = path});
    }
    if (length <= kMostEventBytes) {
      CKPT_TRY(const std::string_view event, window.at(offset + kHeadBytes, static_cast<std::size_t>(length)));
      add_event(event, out);
    }
    offset += kHeadBytes + length + kTailBytes;
  }
  return {};
}

}  // namespace

Result<> read_event_file(Io& io, const std::string& path, std::vector<LoggedValue>& out) {
  CKPT_TRY(const FileHandle file, io.open(path, {}));
  const auto read = [&]() -> Result<> {
    CKPT_TRY(const FileInfo info, io.info(file));
    Window window(io, file, info.bytes);
    return read_records(window, path, out);
  };
  const Result<> done = read();
  static_cast<void>(io.close(file));  // only read: nothing can be lost
  return done;
}

}  // namespace ckpt::training_log
