#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "format/hash.hpp"
#include "format/model/box.hpp"
#include "format/result.hpp"

namespace ckpt {

/// Facts about a checkpoint that its files lack, given by the user (`--map FILE`): rules over tensor names, the order
/// of the parameters, and tied names. docs/formats.md describes the file.
class MapRules {
 public:
  /// A parameter inside a flat one, or, without a name, elements that belong to none.
  struct HeldRule {
    std::string name{};
    Shape shape{};
  };
  /// How the slices of model-parallel ranks form a tensor.
  struct Join {
    std::optional<std::uint64_t> dim{};  ///< along which they follow each other; none: every rank has the same
  };
  struct Rule {
    std::string tensor;                                             ///< a name; '*' matches any text
    std::variant<std::vector<HeldRule>, Join, std::string> says{};  ///< the string: the name it gets
  };

  /// Other names for the tensors, by a naming profile (`--names`).
  enum class Side : std::uint8_t { hf, megatron };  ///< transformers, Megatron-LM
  struct Names {
    Side to = Side::hf;
    std::string family{};                       ///< of a profile; "": by the settings of the model
    std::optional<std::uint64_t> vocab_size{};  ///< without padding; nothing: by the settings
    std::uint64_t vocab_multiple = 1;           ///< to Megatron-LM: the vocabulary is padded to a multiple of this
  };

  /// errors  usage, with `path` in the message: not such a file. Names are UTF-8, shapes have at most 64 dimensions and
  ///         do not overflow.
  static Result<MapRules> parse(std::string_view text, const std::string& path);

  /// The values of the first rule of the kind whose pattern matches; null or nothing if there is none. A rule that
  /// matched a query counts as used.
  const std::vector<HeldRule>* holds(std::string_view tensor) const;
  std::optional<Join> join(std::string_view tensor) const;
  std::optional<std::string> renamed(std::string_view tensor) const;

  /// The patterns of the rules that matched nothing so far.
  std::vector<std::string> unused() const;
  /// The model's parameters in the order of named_parameters(), by which an optimizer numbers them; empty: not given.
  const std::vector<std::string>& parameters() const { return parameters_; }
  /// Names of one tensor each, of which the files may hold either.
  const std::vector<std::pair<std::string, std::string>>& tied() const { return tied_; }
  /// The lines of the user's own profile; empty: none.
  const std::string& profile() const { return profile_; }
  const std::optional<Names>& names() const { return names_; }
  void set_names(Names names);
  const std::string& path() const { return path_; }
  /// Of the file's bytes: rules decide what is read.
  const Hash128& hash() const { return hash_; }

 private:
  /// The rules of one kind. There may be as many as tensors: those for one name are found by it.
  struct Index {
    std::unordered_map<std::string, std::size_t> of_name{};  ///< the first one
    std::vector<std::size_t> patterns{};
  };
  void index_rules();
  /// kind  index in Rule::says
  const Rule* find(std::size_t kind, std::string_view tensor) const;

  std::string path_{};
  Hash128 hash_{};
  std::string profile_{};
  std::optional<Names> names_{};
  std::vector<std::string> parameters_;
  std::vector<std::pair<std::string, std::string>> tied_;
  std::vector<Rule> rules_;
  std::array<Index, std::variant_size_v<decltype(Rule::says)>> index_{};
  mutable std::vector<bool> used_;  // one per rule; one thread at a time
};

/// The texts that the stars of a pattern match, each as short as possible from the left; nothing if the pattern does
/// not match.
std::optional<std::vector<std::string_view>> match_stars(std::string_view text, std::string_view pattern);

}  // namespace ckpt
