#include "convert/hdf5/answer.hpp"

#include "format/little_endian.hpp"
#include "format/model/dtype.hpp"

namespace ckpt::hdf5 {
namespace {

constexpr std::uint64_t kMostDimensions = 32;

class AnswerReader {
 public:
  explicit AnswerReader(std::string_view bytes) : bytes_(bytes) {}

  Result<std::uint64_t> number(std::size_t size) {
    if (bytes_.size() < size) return fail(Errc::corrupt, "ckpt-h5: its answer is cut short");
    const std::uint64_t value = read_little_endian(bytes_, 0, size);
    bytes_.remove_prefix(size);
    return value;
  }
  Result<std::string> text() {
    CKPT_TRY(const std::uint64_t length, number(4));
    if (bytes_.size() < length) return fail(Errc::corrupt, "ckpt-h5: its answer is cut short");
    std::string out(bytes_.substr(0, static_cast<std::size_t>(length)));
    bytes_.remove_prefix(static_cast<std::size_t>(length));
    return out;
  }
  Result<Attributes> attributes() {
    CKPT_TRY(const std::uint64_t count, number(4));
    Attributes out;
    for (std::uint64_t i = 0; i < count; ++i) {
      CKPT_TRY(std::string name, text());
      CKPT_TRY(std::string value, text());
      out.emplace_back(std::move(name), std::move(value));
    }
    return out;
  }
  Result<FoundDataset> dataset() {
    FoundDataset out;
    CKPT_TRY(out.path, text());
    CKPT_TRY(out.address, number(8));
    CKPT_TRY(const std::uint64_t type, number(1));
    out.type = static_cast<unsigned>(type);
    CKPT_TRY(const std::uint64_t big_endian, number(1));
    out.big_endian = big_endian != 0;
    CKPT_TRY(out.type_text, text());
    CKPT_TRY(const std::uint64_t rank, number(1));
    const bool known = type < static_cast<unsigned>(kDtypeCount) || type == kComplex128 || type == kNoType;
    if (!known || rank > kMostDimensions) return fail(Errc::corrupt, "ckpt-h5: an invalid answer");
    for (std::uint64_t d = 0; d < rank; ++d) {
      CKPT_TRY(const std::uint64_t size, number(8));
      out.shape.push_back(size);
    }
    CKPT_TRY(out.offset, number(8));
    CKPT_TRY(out.stored_bytes, number(8));
    CKPT_TRY(out.chunk_rows, number(8));
    if (out.chunk_rows == 0) return fail(Errc::corrupt, "ckpt-h5: a chunk without rows");
    CKPT_TRY(out.attributes, attributes());
    return out;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

}  // namespace

Result<Answer> parse_answer(std::string_view bytes) {
  AnswerReader reader(bytes);
  Answer out;
  CKPT_TRY(out.root, reader.attributes());
  CKPT_TRY(const std::uint64_t datasets, reader.number(4));
  for (std::uint64_t i = 0; i < datasets; ++i) {
    CKPT_TRY(FoundDataset dataset, reader.dataset());
    out.datasets.push_back(std::move(dataset));
  }
  CKPT_TRY(out.names, reader.attributes());
  CKPT_TRY(const std::uint64_t notes, reader.number(4));
  for (std::uint64_t i = 0; i < notes; ++i) {
    CKPT_TRY(std::string note, reader.text());
    out.notes.push_back(std::move(note));
  }
  if (!reader.at_end()) return fail(Errc::corrupt, "ckpt-h5: extra bytes after its answer");
  return out;
}

}  // namespace ckpt::hdf5
