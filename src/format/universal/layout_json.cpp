#include "format/universal/layout_json.hpp"

#include <fmt/format.h>

#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "format/model/scalar_json.hpp"

namespace ckpt::universal {
namespace {

using Rule = Layout::Cut::Rule;

constexpr std::pair<std::string_view, Layout::Kind> kKinds[] = {{"whole", Layout::Kind::whole},
                                                                {"mesh", Layout::Kind::mesh},
                                                                {"irregular", Layout::Kind::irregular},
                                                                {"virtual", Layout::Kind::referenced}};
constexpr std::pair<std::string_view, Rule> kRules[] = {
    {"ceil", Rule::ceil}, {"even", Rule::even}, {"points", Rule::points}};

tl::unexpected<Error> bad_layout(std::string_view member, std::string_view reason, Errc code = Errc::corrupt) {
  return fail(code, fmt::format("{}: {}", member, reason));
}

template <class Number>
void put_numbers(json::Writer& out, std::string_view key, const std::vector<Number>& numbers) {
  out.key(key).begin_array();
  for (const Number number : numbers) put_natural(out, number);
  out.end_array();
}

/// A member that is an array of objects, if there are any.
template <class Item, class Put>
void put_items(json::Writer& out, std::string_view key, const std::vector<Item>& items, const Put& put) {
  if (items.empty()) return;
  out.key(key).begin_array();
  for (const Item& item : items) {
    out.begin_object();
    put(item);
    out.end_object();
  }
  out.end_array();
}

Result<std::uint64_t> layout_natural(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  if (value == nullptr) return bad_layout(key, "missing");
  auto natural = read_natural(*value);
  if (!natural) return bad_layout(key, natural.error().message);
  return natural;
}

Result<std::uint32_t> small_of(const json::Value& object, std::string_view key) {
  CKPT_TRY(const std::uint64_t natural, layout_natural(object, key));
  if (natural > std::numeric_limits<std::uint32_t>::max()) return bad_layout(key, "2^32 or more");
  return static_cast<std::uint32_t>(natural);
}

Result<std::string> layout_text(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  if (value == nullptr || value->text() == nullptr) return bad_layout(key, "missing, or not text");
  return *value->text();
}

/// The items of an array of objects; none if the member is absent.
Result<const json::Array*> items_of(const json::Value& object, std::string_view key) {
  static const json::Array kNone;
  const json::Value* value = object.find(key);
  if (value == nullptr) return &kNone;
  if (value->array() == nullptr) return bad_layout(key, "not an array");
  for (const json::Value& item : *value->array()) {
    if (item.object() == nullptr) return bad_layout(key, "holds something other than objects");
  }
  return value->array();
}

template <class Number>
Result<std::vector<Number>> numbers_of(const json::Value& object, std::string_view key, bool required) {
  std::vector<Number> out;
  const json::Value* value = object.find(key);
  if (value == nullptr && !required) return out;
  if (value == nullptr || value->array() == nullptr) return bad_layout(key, "missing, or not an array");
  out.reserve(value->array()->size());
  for (const json::Value& item : *value->array()) {
    const auto natural = read_natural(item);
    if (!natural) return bad_layout(key, natural.error().message);
    if (*natural > std::numeric_limits<Number>::max()) return bad_layout(key, "a number that is too large");
    out.push_back(static_cast<Number>(*natural));
  }
  return out;
}

Result<Layout::Cut> read_cut(const json::Value& value) {
  Layout::Cut cut;
  CKPT_TRY(cut.dim, small_of(value, "dim"));
  CKPT_TRY(cut.axes, numbers_of<std::uint32_t>(value, "axes", true));
  CKPT_TRY(const std::string name, layout_text(value, "rule"));
  bool known = false;
  for (const auto& [rule_name, rule] : kRules) {
    if (name != rule_name) continue;
    cut.rule = rule;
    known = true;
  }
  if (!known) return bad_layout("rule", fmt::format("'{}' is not known", name), Errc::newer);
  CKPT_TRY(cut.points, numbers_of<std::uint64_t>(value, "points", false));
  CKPT_TRY(cut.segments, numbers_of<std::uint64_t>(value, "segments", false));
  return cut;
}

Result<Layout> read_mesh(const json::Value& value) {
  Layout layout{.kind = Layout::Kind::mesh};
  CKPT_TRY(const json::Array* axes, items_of(value, "axes"));
  for (const json::Value& item : *axes) {
    Axis axis;
    CKPT_TRY(axis.name, layout_text(item, "name"));
    CKPT_TRY(axis.size, layout_natural(item, "size"));
    layout.mesh.axes.push_back(std::move(axis));
  }
  CKPT_TRY(const json::Array* at, items_of(value, "at"));
  for (const json::Value& item : *at) {
    Layout::At step;
    CKPT_TRY(step.axis, small_of(item, "axis"));
    CKPT_TRY(step.indices, numbers_of<std::uint64_t>(item, "indices", true));
    layout.at.push_back(std::move(step));
  }
  CKPT_TRY(const json::Array* cuts, items_of(value, "cuts"));
  for (const json::Value& item : *cuts) {
    CKPT_TRY(Layout::Cut cut, read_cut(item));
    layout.cuts.push_back(std::move(cut));
  }
  if (const json::Value* flat = value.find("flat")) {
    if (flat->object() == nullptr) return bad_layout("flat", "not an object");
    layout.flat = Layout::Flat{};
    CKPT_TRY(layout.flat->axes, numbers_of<std::uint32_t>(*flat, "axes", true));
    CKPT_TRY(layout.flat->part, layout_natural(*flat, "part"));
  }
  return layout;
}

}  // namespace

void put_layout(json::Writer& out, const Layout& layout) {
  out.begin_object();
  for (const auto& [name, kind] : kKinds) {
    if (kind == layout.kind) out.member("kind", name);
  }
  put_items(out, "axes", layout.mesh.axes, [&](const Axis& axis) {
    out.member("name", axis.name).key("size");
    put_natural(out, axis.size);
  });
  put_items(out, "at", layout.at, [&](const Layout::At& at) {
    out.member("axis", at.axis);
    put_numbers(out, "indices", at.indices);
  });
  put_items(out, "cuts", layout.cuts, [&](const Layout::Cut& cut) {
    out.member("dim", cut.dim);
    put_numbers(out, "axes", cut.axes);
    for (const auto& [name, rule] : kRules) {
      if (rule == cut.rule) out.member("rule", name);
    }
    if (!cut.points.empty()) put_numbers(out, "points", cut.points);
    if (!cut.segments.empty()) put_numbers(out, "segments", cut.segments);
  });
  if (layout.flat) {
    out.key("flat").begin_object();
    put_numbers(out, "axes", layout.flat->axes);
    out.key("part");
    put_natural(out, layout.flat->part);
    out.end_object();
  }
  out.end_object();
}

Result<Layout> read_layout(const json::Value& value) {
  if (value.object() == nullptr) return bad_layout("layout", "not an object");
  CKPT_TRY(const std::string name, layout_text(value, "kind"));
  Layout layout;
  bool known = false;
  for (const auto& [kind_name, kind] : kKinds) {
    if (name != kind_name) continue;
    layout.kind = kind;
    known = true;
  }
  if (!known) return bad_layout("kind", fmt::format("'{}' is not known", name), Errc::newer);
  if (layout.kind == Layout::Kind::mesh) {
    CKPT_TRY(layout, read_mesh(value));
  }
  CKPT_CHECK(check_layout(layout));
  return layout;
}

}  // namespace ckpt::universal
