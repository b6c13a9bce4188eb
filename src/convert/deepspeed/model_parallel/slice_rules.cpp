#include "convert/deepspeed/model_parallel/slice_rules.hpp"

#include <algorithm>
#include <utility>

#include "format/checked.hpp"
#include "format/text/error_context.hpp"
#include "format/torch/torch_object.hpp"

namespace ckpt::deepspeed {

using pickle::kNone;
using pickle::NodeId;

namespace {

/// One character of a pattern with its quantifier.
struct Atom {
  enum class Kind : std::uint8_t { literal, any, digit, word } kind = Kind::literal;
  char literal = 0;
  bool optional = false;
  bool repeated = false;

  bool takes(char c) const {
    const bool digit = c >= '0' && c <= '9';
    switch (kind) {
      case Kind::any:
        return c != '\n';
      case Kind::digit:
        return digit;
      case Kind::word:
        return digit || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      case Kind::literal:
        break;
    }
    return c == literal;
  }
};

auto unreadable(std::string_view pattern) {
  return fail(Errc::unsupported, "universal_checkpoint_info: the pattern '" + std::string(pattern) +
                                     "' is of a form that is not supported");
}

Result<std::vector<Atom>> parse(std::string_view pattern, bool& to_end) {
  std::vector<Atom> atoms;
  to_end = false;
  for (std::size_t i = pattern.starts_with('^') ? 1 : 0; i < pattern.size(); ++i) {
    Atom atom{.literal = pattern[i]};
    if (pattern[i] == '$') {
      if (i + 1 != pattern.size()) return unreadable(pattern);
      to_end = true;
      break;
    }
    if (std::string_view("()[]{}|^*+?").find(pattern[i]) != std::string_view::npos) return unreadable(pattern);
    if (pattern[i] == '.') atom.kind = Atom::Kind::any;
    if (pattern[i] == '\\') {
      if (++i == pattern.size()) return unreadable(pattern);
      const char c = pattern[i];
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      if (letter && c != 'd' && c != 'w') return unreadable(pattern);
      atom.kind = c == 'd' ? Atom::Kind::digit : c == 'w' ? Atom::Kind::word : Atom::Kind::literal;
      atom.literal = c;
    }
    if (i + 1 < pattern.size() && std::string_view("*+?").find(pattern[i + 1]) != std::string_view::npos) {
      ++i;
      atom.optional = pattern[i] != '+';
      atom.repeated = pattern[i] != '?';
    }
    atoms.push_back(atom);
  }
  return atoms;
}

Result<bool> matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  for (const std::string& pattern : patterns) {
    CKPT_TRY(const bool match, matches_pattern(pattern, name));
    if (match) return true;
  }
  return false;
}

Result<std::vector<std::string>> read_patterns(const StateFile& file, NodeId info, std::string_view key) {
  std::vector<std::string> out;
  const NodeId node = file.find(info, key);
  if (node == kNone) return out;
  std::vector<NodeId> items;
  if (const auto entries = torch::as_mapping(file.graph(), node)) {
    for (const auto& [pattern, why] : *entries) items.push_back(pattern);
  } else {
    CKPT_TRY(items, file.items(node, key));
  }
  for (const NodeId item : items) {
    CKPT_TRY(std::string text, file.text(item, std::string(key) + ": an item"));
    out.push_back(std::move(text));
  }
  return out;
}

auto corrupt_slice(const std::string& name, const std::string& what) {
  return fail({.code = Errc::corrupt, .message = name + ": " + what, .tensor = name});
}

auto no_rule(const std::string& name, const std::string& what) {
  return fail({.code = Errc::unsupported,
               .message = name + ": its slices cannot be placed: " + what,
               .tensor = name,
               .hint = R"(--map FILE    says how: {"ckpt-map": 1, "rules": [{"tensor": ")" + name +
                       R"(", "join": 0}]}, with the dimension along which the ranks' slices follow each other, or )"
                       R"("same" where each rank has the whole)"});
}

/// The copies of a slice, `elements` further on.
Result<std::vector<PartitionIndex::Source>> advanced(const std::string& name, const RankSlice& slice,
                                                     std::uint64_t elements) {
  std::vector<PartitionIndex::Source> copies = slice.copies;
  for (PartitionIndex::Source& place : copies) {
    if (auto* locator = std::get_if<Locator>(&place)) {
      if (elements != 0 && !locator->strides.empty()) return corrupt_slice(name, "a weight that is not stored densely");
      locator->offset += elements * unit_bytes(locator->dtype);
    } else if (auto* group = std::get_if<PartitionIndex::InGroup>(&place)) {
      group->begin += elements;
    } else {
      std::get<PartitionIndex::InPartition>(place).first += elements;
    }
  }
  return copies;
}

/// Every rank holds the whole tensor.
Result<Assembled> copies_of(const std::string& name, const std::vector<RankSlice>& ranks) {
  Assembled out{.shape = ranks.front().shape};
  PartitionIndex::Piece piece{.box = Box::whole(out.shape)};
  for (const RankSlice& rank : ranks) {
    if (rank.shape != out.shape) return corrupt_slice(name, "said to be replicated, but its ranks have other shapes");
    piece.copies.insert(piece.copies.end(), rank.copies.begin(), rank.copies.end());
  }
  out.pieces.push_back(std::move(piece));
  return out;
}

Result<> check_fit(const std::string& name, const std::vector<RankSlice>& ranks, std::size_t dimension) {
  const Shape& first = ranks.front().shape;
  for (const RankSlice& rank : ranks) {
    bool fits = rank.shape.size() == first.size() && rank.shape.size() > dimension;
    for (std::size_t d = 0; fits && d < rank.shape.size(); ++d) {
      fits = d == dimension || rank.shape[d] == first[d];
    }
    if (!fits)
      return corrupt_slice(name, "its slices do not fit together along dimension " + std::to_string(dimension));
  }
  return {};
}

/// The ranks' slices follow each other along a dimension. `widths`: by part, then by rank, each part separately; empty:
/// the slices are one part.
Result<Assembled> side_by_side(const std::string& name, const std::vector<RankSlice>& ranks, std::size_t dimension,
                               std::vector<std::vector<std::uint64_t>> widths) {
  CKPT_CHECK(check_fit(name, ranks, dimension));
  Assembled out{.shape = ranks.front().shape};
  if (widths.empty()) {
    widths.emplace_back();
    for (const RankSlice& rank : ranks) widths.back().push_back(rank.shape[dimension]);
  }
  std::vector<std::uint64_t> taken(ranks.size(), 0);  // of each rank's slice, along the dimension
  std::uint64_t at = 0;
  for (const auto& by_rank : widths) {
    for (std::size_t t = 0; t < ranks.size(); ++t) {
      Box box = Box::whole(ranks[t].shape);
      box.offset[dimension] = at;
      box.size[dimension] = by_rank[t];
      std::uint64_t inner = 1;
      for (std::size_t d = dimension + 1; d < ranks[t].shape.size(); ++d) {
        CKPT_TRY(inner, checked_mul(inner, ranks[t].shape[d]));
      }
      CKPT_TRY(auto copies, advanced(name, ranks[t], taken[t] * inner));
      taken[t] += by_rank[t];
      CKPT_TRY(at, checked_add(at, by_rank[t]));
      if (by_rank[t] != 0) out.pieces.push_back({std::move(box), std::move(copies)});
    }
  }
  out.shape[dimension] = at;
  CKPT_CHECK(checked_volume(out.shape));
  return out;
}

}  // namespace

Result<bool> matches_pattern(std::string_view pattern, std::string_view text) {
  bool to_end = false;
  CKPT_TRY(const auto atoms, parse(pattern, to_end));
  // The set of atoms that may come next, as text is taken.
  std::vector<char> now(atoms.size() + 1, 0);
  const auto close = [&](std::vector<char>& set) {
    for (std::size_t i = 0; i < atoms.size(); ++i) {
      if (set[i] != 0 && atoms[i].optional) set[i + 1] = 1;
    }
  };
  now[0] = 1;
  close(now);
  for (std::size_t at = 0;; ++at) {
    if (now.back() != 0 && (!to_end || at == text.size())) return true;
    if (at == text.size()) return false;
    std::vector<char> next(now.size(), 0);
    for (std::size_t i = 0; i < atoms.size(); ++i) {
      if (now[i] == 0 || !atoms[i].takes(text[at])) continue;
      next[i + 1] = 1;
      // A repeated atom may come again, also one that had to come once.
      if (atoms[i].repeated) next[i] = 1;
    }
    close(next);
    now = std::move(next);
  }
}

Result<SliceRules> SliceRules::read(const StateFile& file, const MapRules* user) {
  SliceRules out;
  out.user_ = user;
  const NodeId info = file.find(file.root(), "universal_checkpoint_info");
  if (info == kNone) return out;
  out.known_ = true;
  CKPT_TRY(out.replicated_, read_patterns(file, info, "tp_replicated_parameter_patterns"));
  CKPT_TRY(out.averaged_, read_patterns(file, info, "parameter_to_average_patterns"));
  CKPT_TRY(out.halves_, read_patterns(file, info, "parameter_with_2_sub_params_cat_dim_0"));
  CKPT_TRY(out.rows_, read_patterns(file, info, "parameter_with_row_parallelism_patterns"));
  CKPT_TRY(out.unsupported_, read_patterns(file, info, "autotp_unsupported_parameter_patterns"));
  if (const NodeId parts = file.find(info, "parameter_with_sub_params"); parts != kNone) {
    CKPT_TRY(const auto items, file.items(parts, "parameter_with_sub_params"));
    for (const NodeId item : items) {
      SubParameters rule;
      const NodeId fields =
          file.graph().kind(item) == pickle::Kind::call ? file.graph().state(item) : item;  // a dict or a SubparamShape
      if (fields == kNone) return fail(file.error(Errc::corrupt, "parameter_with_sub_params: an item is not a rule"));
      CKPT_TRY(rule.patterns, read_patterns(file, fields, "patterns"));
      CKPT_TRY(const auto dimension, file.natural(fields, "partition_dim"));
      rule.dimension = dimension.value_or(0);
      CKPT_TRY(const auto shape, file.items(file.find(fields, "shape"), "parameter_with_sub_params: shape"));
      if (rule.dimension >= shape.size()) {
        return fail(file.error(Errc::corrupt, "parameter_with_sub_params: partition_dim is outside of the shape"));
      }
      const NodeId cut = shape[static_cast<std::size_t>(rule.dimension)];
      if (const auto widths = torch::as_shape(file.graph(), cut)) {
        rule.widths = *widths;
        rule.count = rule.widths.size();
      } else if (const auto count = torch::as_integer(file.graph(), cut); count && *count > 0) {
        rule.count = static_cast<std::uint64_t>(*count);
      }
      constexpr std::uint64_t kMaxParts = 4096;
      if (rule.count == 0 || rule.count > kMaxParts) {
        return fail(file.error(Errc::corrupt, "parameter_with_sub_params: not a number of parts"));
      }
      out.parts_.push_back(std::move(rule));
    }
  }
  CKPT_TRY(const auto widths, file.named_entries(file.find(info, "sub_param_shard_widths"), "sub_param_shard_widths"));
  for (const auto& [pattern, node] : widths) {
    Widths by_part;
    CKPT_TRY(const auto lists, file.items(node, "sub_param_shard_widths"));
    for (const NodeId list : lists) {
      auto by_rank = torch::as_shape(file.graph(), list);
      if (!by_rank)
        return fail(file.error(Errc::corrupt, "sub_param_shard_widths: " + pattern + ": not a list of sizes"));
      by_part.push_back(*std::move(by_rank));
    }
    out.shard_widths_.emplace_back(pattern, std::move(by_part));
  }
  return out;
}

Result<SliceRules::Widths> SliceRules::part_widths(const std::string& name, const SubParameters& rule,
                                                   const std::vector<RankSlice>& ranks) const {
  if (rule.dimension != 0) return no_rule(name, "parts along dimension " + std::to_string(rule.dimension));
  Widths out;
  for (const auto& [pattern, widths] : shard_widths_) {
    CKPT_TRY(const bool match, matches_pattern(pattern, name));
    if (match && out.empty()) out = widths;
  }
  if (out.empty()) {
    for (std::uint64_t part = 0; part < rule.count; ++part) {
      std::vector<std::uint64_t>& by_rank = out.emplace_back();
      for (const RankSlice& rank : ranks) {
        const std::uint64_t full = rule.widths.empty() ? 0 : rule.widths[static_cast<std::size_t>(part)];
        const std::uint64_t divisor = rule.widths.empty() ? rule.count : ranks.size();
        const std::uint64_t length = rule.widths.empty() ? rank.shape[0] : full;
        if (length % divisor != 0)
          return no_rule(name, "its parts do not divide evenly, and their widths are not known");
        by_rank.push_back(length / divisor);
      }
    }
  }
  if (out.size() != rule.count) return corrupt_slice(name, "sub_param_shard_widths needs one value for each part");
  for (std::size_t part = 0; part < out.size(); ++part) {
    if (out[part].size() != ranks.size())
      return corrupt_slice(name, "sub_param_shard_widths needs one value for each rank");
    std::uint64_t full = 0;
    for (const std::uint64_t width : out[part]) {
      CKPT_TRY(full, checked_add(full, width));
    }
    if (!rule.widths.empty() && full != rule.widths[part]) {
      return corrupt_slice(name, "sub_param_shard_widths do not add up to the parts' widths");
    }
  }
  for (std::size_t t = 0; t < ranks.size(); ++t) {
    std::uint64_t rows = 0;
    for (const auto& by_rank : out) {
      CKPT_TRY(rows, checked_add(rows, by_rank[t]));
    }
    if (rows != ranks[t].shape[0]) {
      return corrupt_slice(name, "rank " + std::to_string(t) + " has " + std::to_string(ranks[t].shape[0]) +
                                     " rows where its parts take " + std::to_string(rows));
    }
  }
  return out;
}

Result<Assembled> SliceRules::assemble(const std::string& name, const std::vector<RankSlice>& ranks) const {
  Assembled out{.shape = ranks.front().shape};
  if (ranks.size() == 1) {
    out.pieces.push_back({Box::whole(out.shape), ranks.front().copies});
    return out;
  }
  // A single value cannot be cut: of a parameter's step, or of a scalar, ranks hold copies.
  if (std::all_of(ranks.begin(), ranks.end(), [](const RankSlice& rank) { return rank.shape.empty(); })) {
    return copies_of(name, ranks);
  }
  if (const auto join = user_join(name)) {
    auto joined =
        join->dim ? side_by_side(name, ranks, static_cast<std::size_t>(*join->dim), {}) : copies_of(name, ranks);
    if (!joined && joined.error().code == Errc::corrupt) {
      Error error = with_context(std::move(joined).error(), user_->path() + ": --map");
      error.code = Errc::usage;
      return fail(std::move(error));
    }
    return joined;
  }
  if (!known_) return no_rule(name, "the files have no universal_checkpoint_info that says how it is cut");
  CKPT_TRY(const bool unsupported, matches_any(unsupported_, name));
  if (unsupported) return no_rule(name, "autotp_unsupported_parameter_patterns names it");
  CKPT_TRY(const bool replicated, matches_any(replicated_, name));
  if (replicated) return copies_of(name, ranks);
  CKPT_TRY(const bool averaged, matches_any(averaged_, name));
  if (averaged) return no_rule(name, "the ranks' values are to be averaged");

  std::size_t dimension = 0;
  Widths widths;  // by part, then by rank: along the dimension
  CKPT_TRY(const bool halves, matches_any(halves_, name));
  const SubParameters* parts = nullptr;
  const SubParameters two{.count = 2};
  if (halves) parts = &two;
  for (std::size_t i = 0; parts == nullptr && i < parts_.size(); ++i) {
    CKPT_TRY(const bool match, matches_any(parts_[i].patterns, name));
    if (match) parts = &parts_[i];
  }
  if (parts == nullptr) {
    CKPT_TRY(const bool rows, matches_any(rows_, name));
    dimension = rows ? 1 : 0;
  }
  CKPT_CHECK(check_fit(name, ranks, dimension));
  if (parts != nullptr) {
    CKPT_TRY(widths, part_widths(name, *parts, ranks));
  }
  return side_by_side(name, ranks, dimension, std::move(widths));
}

}  // namespace ckpt::deepspeed
