#include "catalog/toml_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "format/text/nearest.hpp"

namespace ckpt::catalog {

tl::unexpected<Error> fail_at(const std::string& file, const toml::source_region& where, std::string what,
                              std::string hint) {
  return fail({.code = Errc::usage,
               .message = fmt::format("{}: line {} column {}: {}", file, where.begin.line, where.begin.column, what),
               .file = file,
               .hint = std::move(hint)});
}

const toml::node* TomlTable::take(std::string_view key) {
  known_.emplace_back(key);
  return table_.get(key);
}

tl::unexpected<Error> TomlTable::wrong(std::string_view key, std::string what, std::string hint) const {
  const toml::node* node = table_.get(key);
  return fail_at(file_, node != nullptr ? node->source() : table_.source(),
                 node != nullptr ? fmt::format("{}: {}", key, what) : fmt::format("{}: {}", name_, what),
                 std::move(hint));
}

Result<std::optional<std::string>> TomlTable::text(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return std::optional<std::string>{};
  const auto value = node->value_exact<std::string>();
  if (!value) return wrong(key, "expected a quoted string");
  return value;
}

Result<std::optional<bool>> TomlTable::boolean(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return std::optional<bool>{};
  const auto value = node->value_exact<bool>();
  if (!value) return wrong(key, "expected true or false");
  return value;
}

Result<std::optional<std::int64_t>> TomlTable::integer(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return std::optional<std::int64_t>{};
  const auto value = node->value_exact<std::int64_t>();
  if (!value) return wrong(key, "expected a whole number");
  return value;
}

Result<std::optional<double>> TomlTable::real(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return std::optional<double>{};
  if (!node->is_number()) return wrong(key, "expected a number");
  return node->value<double>();
}

Result<std::optional<std::vector<std::string>>> TomlTable::texts(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return std::optional<std::vector<std::string>>{};
  const toml::array* array = node->as_array();
  if (array == nullptr) return wrong(key, "expected a list of strings, e.g. [\"a\", \"b\"]");
  std::vector<std::string> out;
  for (const toml::node& member : *array) {
    const auto value = member.value_exact<std::string>();
    if (!value) return fail_at(file_, member.source(), fmt::format("{}: expected a quoted string", key));
    out.push_back(*value);
  }
  return std::optional(std::move(out));
}

Result<const toml::table*> TomlTable::table(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return nullptr;
  if (node->as_table() == nullptr) return wrong(key, "expected a table");
  return node->as_table();
}

Result<> TomlTable::finish() const {
  const toml::key* first = nullptr;
  const auto before = [](const toml::source_position& a, const toml::source_position& b) {
    return a.line != b.line ? a.line < b.line : a.column < b.column;
  };
  for (auto&& [key, node] : table_) {
    if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
    if (first == nullptr || before(key.source().begin, first->source().begin)) first = &key;
  }
  if (first == nullptr) return {};
  // keep_last = 3, as the option is called
  const bool is_rule = first->str().starts_with("keep_") && std::ranges::find(known_, "keep") != known_.end();
  if (is_rule)
    return fail_at(file_, first->source(), fmt::format("unknown key '{}' in {}", first->str(), name_),
                   fmt::format("write keep = {{ {} = ... }} in a [[rule]]", first->str().substr(5)));
  const auto near = nearest(first->str(), known_);
  return fail_at(file_, first->source(), fmt::format("unknown key '{}' in {}", first->str(), name_),
                 near ? fmt::format("did you mean '{}'?", *near) : std::string());
}

}  // namespace ckpt::catalog
