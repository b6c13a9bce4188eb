#include "format/files/safetensors_metadata.hpp"

#include <fmt/format.h>

#include <array>

#include "format/files/safetensors.hpp"
#include "format/model/slot_name.hpp"
#include "format/text/json.hpp"
#include "format/text/json_writer.hpp"

namespace ckpt::safetensors {
namespace {

constexpr std::array kRoles{Role::param, Role::buffer, Role::slot};

tl::unexpected<Error> wrong(std::string_view key, std::string_view tensor) {
  return fail({.code = Errc::corrupt,
               .message = "__metadata__: " + std::string(key) + " is malformed",
               .tensor = std::string(tensor)});
}

/// A member that is absent, or text.
bool take_text(const json::Value& object, std::string_view key, std::string& out) {
  const json::Value* member = object.find(key);
  if (member == nullptr) return true;
  if (member->text() == nullptr) return false;
  out = *member->text();
  return true;
}

}  // namespace

Result<SavedOffsets> parse_saved_offsets(std::string_view text) {
  CKPT_TRY(const json::Value document, json::parse(text));
  if (document.object() == nullptr) return wrong(kSlicesKey, "");
  SavedOffsets out;
  out.reserve(document.object()->size());
  for (const auto& [name, value] : *document.object()) {
    const json::Value* offsets = value.find("saved_offsets");
    if (offsets == nullptr || offsets->array() == nullptr || offsets->array()->size() > kMaxRank)
      return wrong(kSlicesKey, name);
    Shape shape;
    for (const json::Value& offset : *offsets->array()) {
      if (offset.natural() == nullptr) return wrong(kSlicesKey, name);
      shape.push_back(*offset.natural());
    }
    out.emplace(name, std::move(shape));
  }
  return out;
}

Facts facts_by_name(std::string_view name) {
  const std::string_view slot = name.substr(name.rfind('.') + 1);
  const auto parameter = parameter_in(name, slot);
  if (slot.empty() || !parameter) return {};
  return {.role = Role::slot, .parameter = std::string(*parameter), .slot = std::string(slot)};
}

std::string build_facts(const std::vector<std::pair<std::string_view, Facts>>& tensors) {
  std::string text;
  json::Writer out(text);
  for (const auto& [name, facts] : tensors) {
    if (facts == facts_by_name(name)) continue;
    if (text.empty()) out.begin_object();
    out.key(name).begin_object().member("role", role_name(facts.role));
    if (!facts.parameter.empty()) out.member("parameter", facts.parameter);
    if (!facts.slot.empty()) out.member("slot", facts.slot);
    if (!facts.true_dtype.empty()) out.member("dtype", facts.true_dtype);
    out.end_object();
  }
  if (!text.empty()) out.end_object();
  return text;
}

Result<std::unordered_map<std::string, Facts>> parse_facts(std::string_view text) {
  CKPT_TRY(const json::Value document, json::parse(text));
  if (document.object() == nullptr) return wrong(kFactsKey, "");
  std::unordered_map<std::string, Facts> out;
  out.reserve(document.object()->size());
  for (const auto& [name, value] : *document.object()) {
    Facts facts;
    std::string role;
    if (!take_text(value, "role", role) || !take_text(value, "parameter", facts.parameter) ||
        !take_text(value, "slot", facts.slot) || !take_text(value, "dtype", facts.true_dtype))
      return wrong(kFactsKey, name);
    bool known = false;
    for (const Role candidate : kRoles) {
      if (role != role_name(candidate)) continue;
      facts.role = candidate;
      known = true;
    }
    if (!known) return wrong(kFactsKey, name);
    out.emplace(name, std::move(facts));
  }
  return out;
}

}  // namespace ckpt::safetensors
