#include "api/convert/against.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "api/convert/compare.hpp"
#include "api/convert/measure.hpp"
#include "api/convert/only_rule.hpp"
#include "format/model/same_value.hpp"
#include "format/model/slot_name.hpp"
#include "format/model/value_text.hpp"
#include "format/text/name_list.hpp"

namespace ckpt {
namespace {

constexpr std::size_t kValueShown = 40;       // bytes of a value's text
constexpr std::size_t kMostValues = 1 << 20;  // that an object expands to, to be compared as a value

std::string shape_text(const Shape& shape) {
  std::string out = "[";
  for (const std::uint64_t size : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(size);
  return out + "]";
}

std::string type_difference(const Tensor& here, const Tensor& there) {
  std::string out;
  if (here.dtype != there.dtype)
    out = std::string(dtype_name(here.dtype)) + " here, " + std::string(dtype_name(there.dtype)) + " there";
  if (here.shape == there.shape) return out;
  if (!out.empty()) out += "; ";
  return out + "shape " + shape_text(here.shape) + " here, " + shape_text(there.shape) + " there";
}

/// Whether it consists of numbers, strings, bytes, lists, tuples, sets and dicts only, and of at most kMostValues of
/// them: same_value then compares all of it.
bool is_plain(const Value& value) {
  std::vector<const Value*> pending{&value};
  for (std::size_t seen = 0; !pending.empty(); ++seen) {
    const Value* at = pending.back();
    pending.pop_back();
    if (seen >= kMostValues || at == nullptr) return false;
    if (std::holds_alternative<Opaque>(at->v) || std::holds_alternative<TensorRef>(at->v)) return false;
    if (const auto* list = std::get_if<List>(&at->v)) {
      if (list->is_special) return false;
      for (const ValuePtr& item : list->items) pending.push_back(item.get());
    } else if (const auto* dict = std::get_if<Dict>(&at->v)) {
      if (dict->kind != Dict::Kind::plain || dict->attributes != nullptr || dict->factory != nullptr) return false;
      for (const auto& [key, item] : dict->items) {
        pending.push_back(key.get());
        pending.push_back(item.get());
      }
    }
  }
  return true;
}

/// A name of a checkpoint, which leads to one of its tensors.
struct Named {
  std::string_view name;
  std::uint32_t tensor = 0;
  bool is_tied = false;  ///< a second name
};

/// All names of one side, in the source's order, or those of the tensors that `only` asks for; without a prefix where
/// they have it, as convert strips it.
class Names {
 public:
  Names(const Map& map, const OnlyRule& only, std::string_view strip_prefix) : map_(map) {
    std::unordered_map<std::string_view, std::uint32_t> tensors;
    for (std::uint32_t i = 0; i < map.tensors.size(); ++i) {
      tensors.emplace(map.tensors[i].name, i);
      if (only.takes(map.tensors[i].role, map.tensors[i].name)) add({stripped(map.tensors[i], strip_prefix), i, false});
    }
    for (const Alias& alias : map.aliases) {
      const auto target = tensors.find(alias.target);
      if (target != tensors.end() && only.takes(map.tensors[target->second].role, alias.name))
        add({without_prefix(alias.name, strip_prefix), target->second, true});
    }
  }
  const std::vector<Named>& all() const { return all_; }
  const Named* find(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &all_[found->second];
  }
  void matched(std::uint32_t tensor) { matched_.insert(tensor); }

  /// Names that `other` does not have: tensors without another name that it has; ties; blobs.
  struct Unmatched {
    std::vector<std::string> tensors{};
    std::vector<std::string> ties{};
    std::vector<std::string> blobs{};
  };
  Unmatched without(const Names& other) const {
    Unmatched out;
    for (const Named& named : all_) {
      if (other.find(named.name) != nullptr) continue;
      const bool is_known = matched_.contains(named.tensor);
      if (named.is_tied && !is_known) continue;  // its tensor is named
      const bool is_blob = map_.tensors[named.tensor].role == Role::blob;
      auto& into = is_known ? out.ties : is_blob ? out.blobs : out.tensors;
      into.emplace_back(named.name);
    }
    return out;
  }

 private:
  static std::string_view without_prefix(std::string_view name, std::string_view prefix) {
    return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  }
  /// A slot carries its parameter's name inside its own.
  std::string_view stripped(const Tensor& tensor, std::string_view prefix) {
    if (tensor.role != Role::slot) return without_prefix(tensor.name, prefix);
    const auto parameter = parameter_in(tensor.name, tensor.slot);
    if (!parameter || prefix.empty() || !parameter->starts_with(prefix)) return tensor.name;
    return shorter_.emplace_back(slot_name(parameter->substr(prefix.size()), tensor.slot));
  }
  void add(Named named) {
    if (by_name_.emplace(named.name, all_.size()).second) all_.push_back(named);
  }

  const Map& map_;
  std::deque<std::string> shorter_{};  // names of `all_` that are no part of the map's
  std::vector<Named> all_{};
  std::unordered_map<std::string_view, std::size_t> by_name_{};
  std::unordered_set<std::uint32_t> matched_{};  ///< tensors that have a name on both sides
};

class Comparison {
 public:
  Comparison(Session& session, const Source& here, const Source& there, const VerifyRequest& request,
             VerifyReport& report)
      : session_(session),
        here_(here.map),
        there_(there.map),
        roots_{here.root, there.root},
        request_(request),
        report_(report) {}

  Result<> run() {
    if (here_.tensors.empty() && there_.tensors.empty())
      return fail(Errc::unsupported, "nothing to compare: neither checkpoint has a tensor");
    if (names_here_.all().empty() && names_there_.all().empty())
      return fail(Errc::not_found, fmt::format("no tensor matches --only {}", fmt::join(request_.only, ", ")));
    pair_up();
    CKPT_TRY(const auto bad, compare_tensors(session_, left(), right(), pairs_, "compare"));
    for (const std::size_t i : bad) {
      if (is_blob(pairs_[i].left) && !holds_values_) {
        if (!is_same_object(labels_[i])) blobs_.emplace_back(labels_[i]);
        continue;
      }
      report_.different.push_back({.name = std::string(labels_[i]), .reason = "values"});
      if (is_blob(pairs_[i].left)) continue;
      measured_.push_back(pairs_[i]);
      measured_labels_.push_back(labels_[i]);
    }
    std::ranges::sort(report_.different, {}, &VerifyReport::Difference::name);
    const auto blobs = std::ranges::count_if(pairs_, [&](const TensorPair& pair) { return is_blob(pair.left); });
    const auto bad_blobs = std::ranges::count_if(bad, [&](std::size_t i) { return is_blob(pairs_[i].left); });
    report_.compared = pairs_.size() - bad.size() - static_cast<std::size_t>(blobs - bad_blobs);
    CKPT_CHECK(measure());
    note_unmatched();
    if (request_.only.empty()) note_objects();
    return {};
  }

 private:
  Side left() const { return {here_, roots_.first}; }
  Side right() const { return {there_, roots_.second}; }

  void pair_up() {
    std::unordered_set<std::uint64_t> seen;
    for (const Named& mine : names_here_.all()) {
      const Named* theirs = names_there_.find(mine.name);
      if (theirs == nullptr) continue;
      names_here_.matched(mine.tensor);
      names_there_.matched(theirs->tensor);
      if (mine.is_tied != theirs->is_tied) ties_.emplace_back(mine.name);
      if (seen.insert(std::uint64_t{mine.tensor} << 32U | theirs->tensor).second) compare(mine, *theirs);
    }
  }

  static std::string_view meaning_of(const Tensor& tensor) {
    return tensor.true_dtype.empty() ? dtype_name(tensor.dtype) : std::string_view(tensor.true_dtype);
  }
  bool is_blob(std::uint32_t tensor) const { return here_.tensors[tensor].role == Role::blob; }
  static bool holds_values(const Map& map) {
    return std::ranges::find(map.findings, Skipped::unless_blobs, &Finding::skipped) != map.findings.end();
  }

  /// Whether two blobs are pickles of one plain value: those of equal values may differ, by what the writer had seen
  /// before.
  bool is_same_object(std::string_view name) const {
    const Value* mine = object_of(here_, name);
    const Value* theirs = object_of(there_, name);
    return mine != nullptr && theirs != nullptr && is_plain(*mine) && is_plain(*theirs) && same_value(*mine, *theirs);
  }
  static const Value* object_of(const Map& map, std::string_view name) {
    const auto found = std::ranges::find(map.objects, name, &NamedObject::name);
    return found == map.objects.end() ? nullptr : &found->value;
  }

  void compare(const Named& mine, const Named& theirs) {
    const Tensor& tensor = here_.tensors[mine.tensor];
    const Tensor& twin = there_.tensors[theirs.tensor];
    if ((tensor.role == Role::blob || twin.role == Role::blob) && tensor.shape != twin.shape && !holds_values_) {
      if (!is_same_object(mine.name)) blobs_.emplace_back(mine.name);
      return;
    }
    if (tensor.true_dtype != twin.true_dtype)
      meanings_.push_back(fmt::format("{} ({} here, {} there)", mine.name, meaning_of(tensor), meaning_of(twin)));
    const TensorPair pair{mine.tensor, theirs.tensor, tensor.dtype};
    if (twin.dtype == tensor.dtype && twin.shape == tensor.shape) {
      pairs_.push_back(pair);
      labels_.push_back(mine.name);
      return;
    }
    report_.different.push_back({.name = std::string(mine.name), .reason = type_difference(tensor, twin)});
    if (twin.shape != tensor.shape || !is_castable(twin.dtype) || !is_castable(tensor.dtype)) return;
    const bool wide = tensor.dtype == Dtype::f64 || twin.dtype == Dtype::f64;
    measured_.push_back({pair.left, pair.right, wide ? Dtype::f64 : Dtype::f32});
    measured_labels_.push_back(mine.name);
  }

  Result<> measure() {
    CKPT_TRY(const auto values,
             measure_differences(session_, left(), right(), measured_, request_.tolerance, "measure"));
    std::unordered_map<std::string_view, const ValueDifference*> by_name;
    for (std::size_t i = 0; i < measured_.size(); ++i) by_name.emplace(measured_labels_[i], &values[i]);
    for (VerifyReport::Difference& one : report_.different)
      if (const auto found = by_name.find(one.name); found != by_name.end() && found->second->elements != 0)
        one.values = *found->second;
    if (request_.tolerance)
      report_.within =
          std::erase_if(report_.different, [](const auto& one) { return one.values && one.values->beyond == 0; });
    return {};
  }

  void note_unmatched() {
    auto only_here = names_here_.without(names_there_);
    auto only_there = names_there_.without(names_here_);
    report_.only_here = std::move(only_here.tensors);
    report_.only_there = std::move(only_there.tensors);
    std::ranges::sort(report_.only_there);
    note_names("tied on one side only, with the same values: ", ties_);
    note_names("tied names that are only here: ", only_here.ties);
    note_names("tied names that are only there: ", only_there.ties);
    note_names("pairs on one side, complex numbers on the other: ", meanings_);
    note_names("blobs that differ: ", blobs_);
    note_names("blobs that are only here: ", only_here.blobs);
    note_names("blobs that are only there: ", only_there.blobs);
    if (const auto prefix = missing_prefix(report_.only_here, report_.only_there))
      report_.notes.push_back(
          {.text = fmt::format("all {} names match after dropping the prefix '{}': try --strip-prefix {}",
                               std::min(report_.only_here.size(), report_.only_there.size()), *prefix, *prefix)});
  }

  void note_names(std::string_view text, const std::vector<std::string>& names) {
    if (!names.empty()) report_.notes.push_back({.text = std::string(text) + name_list(names)});
  }

  /// Plain values that both have.
  void note_objects() {
    std::unordered_map<std::string_view, const Value*> theirs;
    for (const NamedObject& object : there_.objects) theirs.emplace(object.name, &object.value);
    std::vector<std::string> texts;
    std::vector<std::string> only_here;
    for (const NamedObject& object : here_.objects) {
      const auto found = theirs.find(object.name);
      if (found == theirs.end()) {
        only_here.push_back(object.name);
        continue;
      }
      const Value& other = *found->second;
      theirs.erase(found);
      if (same_value(object.value, other)) continue;
      texts.push_back(fmt::format("{} ({} here, {} there)", object.name, value_text(object.value, kValueShown),
                                  value_text(other, kValueShown)));
    }
    note_names("plain values that differ: ", texts);
    note_names("plain values that are only here: ", only_here);
    std::vector<std::string> only_there;
    for (const NamedObject& object : there_.objects)
      if (theirs.contains(object.name)) only_there.push_back(object.name);
    note_names("plain values that are only there: ", only_there);
  }

  Session& session_;
  const Map& here_;
  const Map& there_;
  std::pair<std::string, std::string> roots_;
  const VerifyRequest& request_;
  VerifyReport& report_;
  const OnlyRule wanted_{request_.only};
  Names names_here_{here_, wanted_, request_.strip_prefix};
  Names names_there_{there_, wanted_, request_.strip_prefix};
  std::vector<TensorPair> pairs_{};
  std::vector<std::string_view> labels_{};  ///< of the pairs
  std::vector<TensorPair> measured_{};      ///< different ones, whose values can be compared
  std::vector<std::string_view> measured_labels_{};
  std::vector<std::string> ties_{};
  std::vector<std::string> meanings_{};
  std::vector<std::string> blobs_{};                                       ///< different ones
  const bool holds_values_ = holds_values(here_) || holds_values(there_);  ///< parts of tensors are only in blobs
};

}  // namespace

Result<> compare_checkpoints(Session& session, const Source& here, const Source& there, const VerifyRequest& request,
                             VerifyReport& report) {
  return Comparison(session, here, there, request, report).run();
}

}  // namespace ckpt
