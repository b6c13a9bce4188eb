#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_UNRELEASED_FEATURES 0
// Some of the parser's own assertions fail for some texts ("[#"); without assertions it refuses such
// texts.
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/toml.h>

#include "format/result.hpp"

namespace ckpt::catalog {

/// "FILE: line 3 column 12: what".
tl::unexpected<Error> fail_at(const std::string& file, const toml::source_region& where, std::string what,
                              std::string hint = {});

/// A table of a policy file, of which every member must be requested: members left at the end are unknown keys.
class TomlTable {
 public:
  TomlTable(const toml::table& table, const std::string& file, std::string name)
      : table_(table), file_(file), name_(std::move(name)) {}

  bool has(std::string_view key) const { return table_.contains(key); }
  const toml::source_region& where() const { return table_.source(); }
  const std::string& file() const { return file_; }

  /// The member, or null; it counts as known from here on.
  const toml::node* take(std::string_view key);
  /// Members that only some other part reads.
  void pass_over(std::string_view key) { known_.emplace_back(key); }

  Result<std::optional<std::string>> text(std::string_view key);
  Result<std::optional<bool>> boolean(std::string_view key);
  Result<std::optional<std::int64_t>> integer(std::string_view key);
  Result<std::optional<double>> real(std::string_view key);  ///< also an integer
  Result<std::optional<std::vector<std::string>>> texts(std::string_view key);
  Result<const toml::table*> table(std::string_view key);  ///< null if missing

  /// A member that is a text which `read` understands. Its errors get the member's place.
  template <class Read>
  auto parsed(std::string_view key, Read read)
      -> Result<std::optional<std::decay_t<decltype(*read(std::string_view{}))>>> {
    using Value = std::decay_t<decltype(*read(std::string_view{}))>;
    CKPT_TRY(const std::optional<std::string> word, text(key));
    if (!word) return std::optional<Value>{};
    auto value = read(std::string_view(*word));
    if (!value) return wrong(key, value.error().message, value.error().hint);
    return std::optional<Value>{*std::move(value)};
  }

  /// usage, at the position of a member, or of the table if it is missing.
  tl::unexpected<Error> wrong(std::string_view key, std::string what, std::string hint = {}) const;

  /// Fails on the first member in the file that was not asked for.
  Result<> finish() const;

 private:
  const toml::table& table_;
  const std::string& file_;
  std::string name_;  ///< "[guard]"
  std::vector<std::string> known_;
};

}  // namespace ckpt::catalog
