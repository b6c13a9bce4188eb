#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/c/c_handles.hpp"
#include "api/verbs.hpp"
#include "catalog/scan/entry.hpp"
#include "format/model/scalar_json.hpp"
#include "format/model/value_text.hpp"
#include "format/text/json_writer.hpp"
#include "format/universal/objects.hpp"

namespace ckpt::c {
namespace {

constexpr std::size_t kMostPlainValues = 1'000'000;  // of one object

void put_optional(json::Writer& out, std::string_view key, std::string_view text) {
  if (text.empty()) {
    out.member(key, nullptr);
  } else {
    out.member(key, universal::shown_text(text));
  }
}

Result<> put_tensors(json::Writer& out, const Map& map) {
  out.key("tensors").begin_array();
  for (const Tensor& tensor : map.tensors) {
    if (tensor.role == Role::blob) continue;
    CKPT_TRY(const std::uint64_t bytes, tensor_bytes(tensor.dtype, tensor.shape));
    out.begin_object().member("name", tensor.name).member("dtype", dtype_name(tensor.dtype));
    put_optional(out, "true_dtype", tensor.true_dtype);
    out.member("shape", tensor.shape).member("bytes", bytes).member("role", role_name(tensor.role));
    put_optional(out, "parameter", tensor.parameter);
    put_optional(out, "slot", tensor.slot);
    out.end_object();
  }
  out.end_array();
  return {};
}

void put_ties(json::Writer& out, const Map& map) {
  out.key("ties").begin_array();
  for (const Alias& alias : map.aliases) {
    out.begin_object().member("name", alias.name).member("target", alias.target).end_object();
  }
  out.end_array();
}

void put_blobs(json::Writer& out, const Map& map) {
  out.key("blobs").begin_array();
  for (const Tensor& tensor : map.tensors) {
    if (tensor.role != Role::blob) continue;
    out.begin_object().member("name", tensor.name).member("bytes", volume(tensor.shape)).end_object();
  }
  out.end_array();
}

/// Texts as [{"key", "text"}], because keys may occur twice; then the metrics, which are stored as texts too.
void put_user(json::Writer& out, const Map& map) {
  std::vector<std::pair<std::string_view, double>> metrics;
  out.key("metadata").begin_array();
  for (const auto& [key, text] : map.meta.user) {
    if (const auto metric = catalog::metric_in(key, text)) {
      metrics.push_back(*metric);
    } else {
      out.begin_object().member("key", universal::shown_text(key)).member("text", universal::shown_text(text));
      out.end_object();
    }
  }
  out.end_array().key("metrics").begin_array();
  for (const auto& [name, value] : metrics) {
    out.begin_object().member("name", universal::shown_text(name)).member("value", value).end_object();
  }
  out.end_array();
}

/// Whether it is made of plain values, at most `left` of them, which is reduced.
bool is_plain(const Value& value, std::size_t& left, std::size_t depth = 1) {
  if (left == 0 || depth > universal::kMaxObjectDepth) return false;
  --left;
  const auto is_plain_part = [&](const ValuePtr& part) { return part != nullptr && is_plain(*part, left, depth + 1); };
  if (const auto* list = std::get_if<List>(&value.v)) return std::ranges::all_of(list->items, is_plain_part);
  if (const auto* dict = std::get_if<Dict>(&value.v))
    return std::ranges::all_of(
        dict->items, [&](const auto& item) { return is_plain_part(item.first) && is_plain_part(item.second); });
  return !std::holds_alternative<Opaque>(value.v) && !std::holds_alternative<TensorRef>(value.v);
}

Result<> put_objects(json::Writer& out, const Map& map) {
  out.key("objects").begin_array();
  for (const NamedObject& object : map.objects) {
    out.begin_object().member("name", universal::shown_text(object.name));
    out.member("value", universal::shown_text(value_text(object.value, kListedValueBytes)));
    std::size_t left = kMostPlainValues;
    if (is_plain(object.value, left)) CKPT_CHECK(universal::put_value(out.key("data"), object.value));
    out.end_object();
  }
  out.end_array();
  return {};
}

Result<std::string> description(const Checkpoint& checkpoint) {
  const Map& map = checkpoint.map();
  std::string text;
  json::Writer out(text);
  out.begin_object().member("path", universal::shown_text(checkpoint.path())).member("format", map.format);
  put_optional(out, "variant", map.variant);
  put_optional(out, "chosen", map.chosen);
  out.member("step", map.meta.step);
  put_optional(out, "framework", map.meta.framework);
  put_optional(out, "framework_version", map.meta.framework_version);
  CKPT_CHECK(put_tensors(out, map));
  put_ties(out, map);
  put_blobs(out, map);
  put_user(out, map);
  CKPT_CHECK(put_objects(out, map));
  out.end_object();
  return text;
}

}  // namespace
}  // namespace ckpt::c

int ckpt_checkpoint_json(ckpt_checkpoint* checkpoint, const char** json) {
  return ckpt::c::guarded([&]() -> ckpt::Result<> {
    CKPT_CHECK(ckpt::c::need(checkpoint, "the checkpoint"));
    CKPT_CHECK(checkpoint->owner.check());
    CKPT_CHECK(ckpt::c::need(json, "the output pointer for the document"));
    if (checkpoint->json.empty()) {
      CKPT_TRY(checkpoint->json, ckpt::c::description(*checkpoint->checkpoint));
    }
    *json = checkpoint->json.c_str();
    return {};
  });
}
