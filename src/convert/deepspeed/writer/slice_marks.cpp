#include "convert/deepspeed/writer/slice_marks.hpp"

#include <cstdint>

#include "convert/deepspeed/model_parallel/slice_rules.hpp"
#include "format/model/object_tree.hpp"

namespace ckpt::deepspeed {
namespace {

using Marks = std::vector<std::pair<std::string, ValuePtr>>;

const List* list_at(const Value* dict, std::string_view key) {
  const Value* found = member(dict, key);
  return found == nullptr ? nullptr : std::get_if<List>(&found->v);
}

Result<bool> matches_one_of(const List* patterns, const std::string& name) {
  if (patterns == nullptr) return false;
  for (const ValuePtr& pattern : patterns->items) {
    const auto* text = text_of(pattern.get());
    if (text == nullptr) continue;
    CKPT_TRY(const bool match, matches_pattern(*text, name));
    if (match) return true;
  }
  return false;
}

/// The rule with its parts as their widths, where it has their number.
Result<ValuePtr> with_widths(const Value& rule, const std::string& name, const Shape& shape) {
  const auto dimension = whole_number(member(&rule, "partition_dim"));
  const List* sizes = list_at(&rule, "shape");
  if (!dimension || sizes == nullptr || *dimension < 0 || static_cast<std::size_t>(*dimension) >= sizes->items.size())
    return fail({.code = Errc::unsupported,
                 .message = name + ": parameter_with_sub_params: partition_dim is outside of the shape",
                 .tensor = name});
  List parts = *sizes;
  parts.kind = List::Kind::tuple;
  ValuePtr& cut = parts.items[static_cast<std::size_t>(*dimension)];
  if (const auto count = whole_number(cut.get())) {
    if (*count <= 0 || shape.empty() || shape[0] % static_cast<std::uint64_t>(*count) != 0)
      return fail({.code = Errc::unsupported,
                   .message = name + ": parameter_with_sub_params: its parts do not divide evenly",
                   .tensor = name});
    const std::uint64_t width = shape[0] / static_cast<std::uint64_t>(*count);
    cut = list_of(std::vector<ValuePtr>(static_cast<std::size_t>(*count), value_of(width)), List::Kind::tuple);
  }
  DictValue fields;
  if (const Value* patterns = member(&rule, "patterns")) fields.set("patterns", std::make_shared<Value>(*patterns));
  auto whole = std::make_shared<Value>();
  whole->v = std::move(parts);
  fields.set("shape", std::move(whole));
  fields.set("partition_dim", value_of(*dimension));
  auto out = std::make_shared<Value>();
  out->v = Opaque{.global = "deepspeed.checkpoint.universal_checkpoint.SubparamShape",
                  .args = list_of({}, List::Kind::tuple),
                  .state = std::move(fields).finish(),
                  .is_new = true};
  return out;
}

}  // namespace

Result<Marks> slice_marks(const Value* info, const std::string& name, const Shape& shape) {
  for (const std::string_view alike : {"tp_replicated_parameter_patterns", "parameter_to_average_patterns"}) {
    CKPT_TRY(const bool match, matches_one_of(list_at(info, alike), name));
    if (match) return Marks{};
  }
  CKPT_TRY(const bool halves, matches_one_of(list_at(info, "parameter_with_2_sub_params_cat_dim_0"), name));
  if (halves) return Marks{{"cat_dim", value_of(std::int64_t{0})}, {"param_n_sub_params", value_of(std::int64_t{2})}};
  if (const List* rules = list_at(info, "parameter_with_sub_params")) {
    for (const ValuePtr& rule : rules->items) {
      CKPT_TRY(const bool match, matches_one_of(list_at(rule.get(), "patterns"), name));
      if (!match) continue;
      CKPT_TRY(ValuePtr parts, with_widths(*rule, name, shape));
      return Marks{{"sub_param_shape", std::move(parts)}};
    }
  }
  CKPT_TRY(const bool rows, matches_one_of(list_at(info, "parameter_with_row_parallelism_patterns"), name));
  return Marks{{"cat_dim", value_of(std::int64_t{rows ? 1 : 0})}};
}

}  // namespace ckpt::deepspeed
