#include "format/model/map_rules.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "format/checked.hpp"
#include "format/text/json.hpp"

namespace ckpt {
namespace {

// Alternatives of MapRules::Rule::says.
constexpr std::size_t kHolds = 0;
constexpr std::size_t kJoin = 1;
constexpr std::size_t kNewName = 2;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kMostDims = 64;

std::size_t stars_of(std::string_view pattern) {
  return static_cast<std::size_t>(std::count(pattern.begin(), pattern.end(), '*'));
}

/// Only these members, each at most once (the parser ensures that).
Result<> check_members(const json::Object& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object) {
    if (std::find(known.begin(), known.end(), key) == known.end()) return fail(Errc::usage, "unknown member " + key);
  }
  return {};
}

Result<MapRules::HeldRule> parse_held(const json::Value& value) {
  const json::Object* object = value.object();
  if (object == nullptr) return fail(Errc::usage, "an entry of holds is not an object");
  CKPT_CHECK(check_members(*object, {"name", "shape", "padding"}));
  if (const json::Value* padding = value.find("padding")) {
    if (padding->natural() == nullptr || object->size() != 1)
      return fail(Errc::usage, "padding is a number, alone in its entry");
    return MapRules::HeldRule{.shape = {*padding->natural()}};
  }
  const json::Value* name = value.find("name");
  const json::Value* shape = value.find("shape");
  if (name == nullptr || name->text() == nullptr || name->text()->empty() || shape == nullptr ||
      shape->array() == nullptr) {
    return fail(Errc::usage, "an entry of holds needs name and shape, or padding");
  }
  MapRules::HeldRule held{.name = *name->text()};
  if (shape->array()->size() > kMostDims) return fail(Errc::usage, held.name + ": a shape of more than 64 dimensions");
  for (const json::Value& size : *shape->array()) {
    if (size.natural() == nullptr)
      return fail(Errc::usage, held.name + ": its shape holds something other than numbers");
    held.shape.push_back(*size.natural());
  }
  if (!checked_volume(held.shape)) return fail(Errc::usage, held.name + ": its shape overflows 64 bits");
  return held;
}

/// Names, each once.
Result<std::vector<std::string>> parse_parameters(const json::Value& value) {
  if (value.array() == nullptr || value.array()->empty()) return fail(Errc::usage, "parameters is not a list of names");
  std::vector<std::string> out;
  std::unordered_set<std::string_view> seen;
  for (const json::Value& name : *value.array()) {
    if (name.text() == nullptr || name.text()->empty())
      return fail(Errc::usage, "parameters holds something other than names");
    if (!seen.insert(*name.text()).second) return fail(Errc::usage, "parameters has " + *name.text() + " twice");
    out.push_back(*name.text());
  }
  return out;
}

Result<std::string> parse_lines(const json::Value& value) {
  if (value.array() == nullptr || value.array()->empty()) return fail(Errc::usage, "profile is not a list of lines");
  std::string out;
  for (const json::Value& line : *value.array()) {
    if (line.text() == nullptr || line.text()->find('\n') != std::string::npos)
      return fail(Errc::usage, "profile holds something other than lines of text");
    out += *line.text() + "\n";
  }
  return out;
}

Result<std::vector<std::pair<std::string, std::string>>> parse_tied(const json::Value& value) {
  if (value.object() == nullptr) return fail(Errc::usage, "tied is not an object of names");
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [name, target] : *value.object()) {
    if (name.empty() || target.text() == nullptr || target.text()->empty() || *target.text() == name)
      return fail(Errc::usage, "tied: " + name + " needs the name of another tensor");
    out.emplace_back(name, *target.text());
  }
  return out;
}

Result<MapRules::Rule> parse_rule(const json::Value& value) {
  const json::Object* object = value.object();
  const json::Value* tensor = value.find("tensor");
  if (object == nullptr || tensor == nullptr || tensor->text() == nullptr) {
    return fail(Errc::usage, "a rule must be an object with a pattern as its tensor");
  }
  CKPT_CHECK(check_members(*object, {"tensor", "holds", "join", "name"}));
  if (object->size() != 2) return fail(Errc::usage, *tensor->text() + ": needs exactly one of holds, join and name");
  MapRules::Rule rule{.tensor = *tensor->text()};
  const auto bad = [&](std::string_view why) { return fail(Errc::usage, rule.tensor + ": " + std::string(why)); };
  if (const json::Value* holds = value.find("holds")) {
    if (holds->array() == nullptr || holds->array()->empty()) return bad("holds is not a list");
    if (stars_of(rule.tensor) != 0) return bad("a pattern with stars would define the same parameters twice");
    std::vector<MapRules::HeldRule> all;
    for (const json::Value& item : *holds->array()) {
      auto held = parse_held(item);
      if (!held) return bad(held.error().message);
      all.push_back(*std::move(held));
    }
    rule.says = std::move(all);
  } else if (const json::Value* join = value.find("join")) {
    const bool same = join->text() != nullptr && *join->text() == "same";
    if (!same && join->natural() == nullptr) return bad("join must be a dimension, or \"same\"");
    rule.says = MapRules::Join{same ? std::nullopt : std::optional(*join->natural())};
  } else {
    const json::Value* name = value.find("name");
    if (name == nullptr || name->text() == nullptr || name->text()->empty()) return bad("name is not a string");
    if (stars_of(*name->text()) != stars_of(rule.tensor)) return bad("name must have as many stars as the pattern");
    rule.says = *name->text();
  }
  return rule;
}

}  // namespace

std::optional<std::vector<std::string_view>> match_stars(std::string_view text, std::string_view pattern) {
  std::vector<std::string_view> stars;
  const std::size_t first = pattern.find('*');
  if (first == std::string_view::npos) return text == pattern ? std::optional(stars) : std::nullopt;
  if (!text.starts_with(pattern.substr(0, first))) return std::nullopt;
  text.remove_prefix(first);
  pattern.remove_prefix(first + 1);
  for (;;) {
    const std::size_t next = pattern.find('*');
    const std::string_view literal = pattern.substr(0, next);
    if (next == std::string_view::npos) {
      if (!text.ends_with(literal)) return std::nullopt;
      stars.push_back(text.substr(0, text.size() - literal.size()));
      return stars;
    }
    const std::size_t at = text.find(literal);
    if (at == std::string_view::npos) return std::nullopt;
    stars.push_back(text.substr(0, at));
    text.remove_prefix(at + literal.size());
    pattern.remove_prefix(next + 1);
  }
}

Result<MapRules> MapRules::parse(std::string_view text, const std::string& path) {
  const auto failed = [&](const Error& cause) {
    return fail(
        {.code = Errc::usage,
         .message = path + ": --map: " + cause.message,
         .file = path,
         .offset = cause.offset,
         .hint =
             "the file is {\"ckpt-map\": 1, \"rules\": [...], \"parameters\": [...]}; docs/formats.md has examples"});
  };
  const auto document = json::parse(text, {.max_bytes = kMostBytes});
  if (!document) return failed(document.error());
  const json::Value* version = document->find("ckpt-map");
  const json::Value* rules = document->find("rules");
  if (version == nullptr || version->natural() == nullptr || *version->natural() != 1) {
    return failed({.message = "it does not begin with \"ckpt-map\": 1"});
  }
  const json::Value* parameters = document->find("parameters");
  const json::Value* tied = document->find("tied");
  const json::Value* profile = document->find("profile");
  const bool is_empty = rules == nullptr && parameters == nullptr && tied == nullptr && profile == nullptr;
  if (is_empty || (rules != nullptr && rules->array() == nullptr))
    return failed({.message = "it has no list of rules"});
  if (auto known = check_members(*document->object(), {"ckpt-map", "rules", "parameters", "tied", "profile"}); !known)
    return failed(known.error());
  MapRules out;
  out.path_ = path;
  out.hash_ = hash128(text);
  if (parameters != nullptr) {
    auto names = parse_parameters(*parameters);
    if (!names) return failed(names.error());
    out.parameters_ = *std::move(names);
  }
  if (profile != nullptr) {
    auto lines = parse_lines(*profile);
    if (!lines) return failed(lines.error());
    out.profile_ = *std::move(lines);
  }
  if (tied != nullptr) {
    auto names = parse_tied(*tied);
    if (!names) return failed(names.error());
    out.tied_ = *std::move(names);
  }
  const json::Array none;
  for (const json::Value& value : rules != nullptr ? *rules->array() : none) {
    auto rule = parse_rule(value);
    if (!rule) {
      return failed({.message = "rule " + std::to_string(out.rules_.size() + 1) + ": " + rule.error().message});
    }
    out.rules_.push_back(*std::move(rule));
  }
  out.used_.resize(out.rules_.size());
  out.index_rules();
  return out;
}

void MapRules::set_names(Names names) {
  Hasher hasher;
  hasher.update_u64(static_cast<std::uint64_t>(names.to));
  hasher.update_u64(names.family.size());
  hasher.update(names.family);
  hasher.update_u64(names.vocab_size.value_or(0));
  hasher.update_u64(names.vocab_multiple);
  hasher.update(hash_.hex());
  hash_ = hasher.digest();
  if (path_.empty()) path_ = "--names";
  names_ = std::move(names);
}

void MapRules::index_rules() {
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    Index& index = index_[rules_[i].says.index()];
    if (rules_[i].tensor.find('*') == std::string::npos) {
      index.of_name.emplace(rules_[i].tensor, i);
    } else {
      index.patterns.push_back(i);
    }
  }
}

const MapRules::Rule* MapRules::find(std::size_t kind, std::string_view tensor) const {
  const Index& index = index_[kind];
  const auto named = index.of_name.find(std::string(tensor));
  std::size_t first = named == index.of_name.end() ? rules_.size() : named->second;
  for (const std::size_t pattern : index.patterns) {
    if (pattern > first) break;
    if (!match_stars(tensor, rules_[pattern].tensor)) continue;
    first = pattern;
    break;
  }
  if (first == rules_.size()) return nullptr;
  used_[first] = true;
  return &rules_[first];
}

const std::vector<MapRules::HeldRule>* MapRules::holds(std::string_view tensor) const {
  const Rule* rule = find(kHolds, tensor);
  return rule == nullptr ? nullptr : &std::get<std::vector<HeldRule>>(rule->says);
}

std::optional<MapRules::Join> MapRules::join(std::string_view tensor) const {
  const Rule* rule = find(kJoin, tensor);
  return rule == nullptr ? std::nullopt : std::optional(std::get<Join>(rule->says));
}

std::optional<std::string> MapRules::renamed(std::string_view tensor) const {
  const Rule* rule = find(kNewName, tensor);
  if (rule == nullptr) return std::nullopt;
  const auto stars = match_stars(tensor, rule->tensor);
  std::string out;
  std::size_t star = 0;
  for (const char c : std::get<std::string>(rule->says)) {
    if (c == '*') {
      out += (*stars)[star++];
    } else {
      out += c;
    }
  }
  return out;
}

std::vector<std::string> MapRules::unused() const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if (!used_[i]) out.push_back(rules_[i].tensor);
  }
  return out;
}

}  // namespace ckpt
