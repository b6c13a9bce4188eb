#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/formats.hpp"
#include "format/little_endian.hpp"

namespace ckpt {
namespace {

constexpr std::string_view kGgufMagic = "GGUF";
constexpr std::string_view kGgufSuffix = ".gguf";
constexpr std::array kGgufSuffixes{kGgufSuffix};

using GgufFacts = std::vector<std::pair<std::string, std::string>>;

Result<std::optional<Match>> detect_gguf(const Place& place) {
  if (!place.directory) {
    CKPT_TRY(const std::string head, place.head("", kGgufMagic.size()));
    if (head == kGgufMagic) return Match{.where = {}, .why = "begins with GGUF"};
    return std::nullopt;
  }
  // Quantised copies are often next to their weights, and do not determine the format of the directory.
  const auto is_weights = [](const DirEntry& entry) {
    return entry.name.ends_with(".safetensors") || entry.name.ends_with(".bin") || entry.name.ends_with(".pt");
  };
  const auto file = std::find_if(place.entries.begin(), place.entries.end(),
                                 [](const DirEntry& entry) { return entry.name.ends_with(kGgufSuffix); });
  if (file == place.entries.end() || std::any_of(place.entries.begin(), place.entries.end(), is_weights))
    return std::nullopt;
  return Match{.where = {}, .why = file->name};
}

/// Reads the key-value pairs at the begin of a file, as far as its first bytes hold them.
/// source   ggml docs/gguf.md
class GgufHeader {
 public:
  explicit GgufHeader(std::string_view bytes) : rest_(bytes) {}

  GgufFacts facts() {
    GgufFacts out;
    rest_.remove_prefix(std::min(kGgufMagic.size(), rest_.size()));
    out.emplace_back("version", std::to_string(number(4)));
    out.emplace_back("tensors", std::to_string(number(8)));
    const std::uint64_t pairs = number(8);
    for (std::uint64_t i = 0; i < pairs && !ended_; ++i) {
      const std::string key(text());
      const std::uint64_t type = number(4);
      if (type == kTextType) {
        const std::string value(text());
        if (!ended_ && key == "general.architecture") out.emplace_back("model", value);
        if (!ended_ && key == "general.name") out.emplace_back("called", value);
      } else {
        const std::uint64_t value = skip(type);
        if (!ended_ && key == "general.file_type") out.emplace_back("quantised", quantisation(value));
      }
    }
    return out;
  }

 private:
  static constexpr std::uint64_t kTextType = 8;
  static constexpr std::uint64_t kArrayType = 9;

  static std::string quantisation(std::uint64_t file_type) {
    constexpr std::array<std::string_view, 19> names{
        "F32",  "F16",    "Q4_0",   "Q4_1",   "Q4_1",   "",       "",       "Q8_0",   "Q5_0", "Q5_1",
        "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K"};
    if (file_type < names.size() && !names[file_type].empty()) return std::string(names[file_type]);
    return "file type " + std::to_string(file_type);
  }

  std::uint64_t number(std::size_t bytes) {
    if (rest_.size() < bytes) ended_ = true;
    if (ended_) return 0;
    const std::uint64_t value = read_little_endian(rest_, 0, bytes);
    rest_.remove_prefix(bytes);
    return value;
  }

  std::string_view text() {
    const std::uint64_t bytes = number(8);
    if (bytes > rest_.size()) ended_ = true;
    if (ended_) return {};
    const std::string_view out = rest_.substr(0, static_cast<std::size_t>(bytes));
    rest_.remove_prefix(out.size());
    return out;
  }

  /// The value of a number; arrays are skipped element by element.
  std::uint64_t skip(std::uint64_t type) {
    constexpr std::array<std::size_t, 13> sizes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type >= sizes.size()) ended_ = true;
    if (ended_) return 0;
    if (type != kArrayType) return number(sizes[static_cast<std::size_t>(type)]);
    const std::uint64_t element = number(4);
    if (element == kArrayType) ended_ = true;  // arrays of arrays are not read
    const std::uint64_t count = number(8);
    for (std::uint64_t i = 0; i < count && !ended_; ++i) {
      if (element == kTextType)
        text();
      else
        skip(element);
    }
    return 0;
  }

  std::string_view rest_;
  bool ended_ = false;
};

Result<GgufFacts> describe_gguf(Io& io, const std::string& root) {
  const Place place{.io = io, .root = root};
  const auto head = place.head("", Place::kFirstBytes);
  if (!head || !head->starts_with(kGgufMagic)) return GgufFacts{};  // a directory
  return GgufHeader(*head).facts();
}

}  // namespace

Format gguf_format() {
  return {.name = "gguf",
          .summary = "a GGUF file (llama.cpp)",
          .detect = detect_gguf,
          .suffixes = kGgufSuffixes,
          .describe = describe_gguf};
}

}  // namespace ckpt
