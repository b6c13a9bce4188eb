#include "format/files/config_dtype.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "format/text/json.hpp"

namespace ckpt {
namespace {

constexpr std::array<std::string_view, 4> kTorchNames{"float32", "float16", "bfloat16", "float64"};

/// The values that name a dtype: their text and the byte after the closing quote.
class DtypeValues final : public json::Handler {
 public:
  struct Place {
    std::size_t end = 0;
    std::string text;
  };

  Result<> on(const json::Event& event) override {
    using Kind = json::Event::Kind;
    if (event.depth == 1 && event.kind == Kind::key) outer_ = event.text;
    if (event.kind == Kind::key) key_ = event.text;
    const bool in_part = outer_.ends_with("_config") && outer_ != "quantization_config";
    const bool here = event.depth == 1 || (event.depth == 2 && in_part);
    const bool names_dtype = key_ == "torch_dtype" || key_ == "dtype";
    if (here && names_dtype && event.kind == Kind::text) places.push_back({event.offset, std::string(event.text)});
    if (event.kind != Kind::key) key_.clear();
    return {};
  }

  std::vector<Place> places{};

 private:
  std::string outer_{};  // of the outermost object
  std::string key_{};
};

}  // namespace

std::string_view config_dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return "float32";
    case Dtype::f16:
      return "float16";
    case Dtype::bf16:
      return "bfloat16";
    case Dtype::f64:
      return "float64";
    default:
      return {};
  }
}

Result<std::string> with_config_dtype(std::string_view text, Dtype dtype) {
  DtypeValues values;
  CKPT_CHECK(json::parse(text, values));
  std::string out(text);
  const std::string_view name = config_dtype_name(dtype);
  if (name.empty()) return out;
  for (auto place = values.places.rbegin(); place != values.places.rend(); ++place) {
    if (std::ranges::find(kTorchNames, place->text) == kTorchNames.end()) continue;
    const std::string quoted = "\"" + place->text + "\"";
    if (place->end < quoted.size() || text.substr(place->end - quoted.size(), quoted.size()) != quoted) continue;
    out.replace(place->end - quoted.size(), quoted.size(), "\"" + std::string(name) + "\"");
  }
  return out;
}

}  // namespace ckpt
