#include "convert/megatron/run_arguments.hpp"

#include <array>
#include <utility>

#include "format/model/object_tree.hpp"

namespace ckpt::megatron {
namespace {

std::optional<std::uint64_t> count(const Value* value) {
  const auto* number = value == nullptr ? nullptr : std::get_if<std::int64_t>(&value->v);
  if (number == nullptr || *number < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

}  // namespace

const Value* member(const Value& value, std::string_view key) {
  const Value* holder = &value;
  if (const auto* object = std::get_if<Opaque>(&value.v)) holder = object->state.get();
  const auto* dict = holder == nullptr ? nullptr : std::get_if<Dict>(&holder->v);
  if (dict == nullptr) return nullptr;
  for (const auto& [name, item] : dict->items) {
    const auto* text = name == nullptr ? nullptr : std::get_if<std::string>(&name->v);
    if (text != nullptr && *text == key) return item.get();
  }
  return nullptr;
}

std::optional<std::uint64_t> count_argument(const Value& args, std::string_view name) {
  const auto number = count(member(args, name));
  return number == 0 ? std::nullopt : number;
}

bool is_set(const Value& args, std::string_view name) {
  return truth(member(args, name)).value_or(false);
}

void read_run_arguments(const Value& common, Meta& meta) {
  if (const auto step = count(member(common, "iteration"))) meta.step = step;
  const Value* args = member(common, "args");
  if (args == nullptr) return;
  if (const auto world = count(member(*args, "world_size"))) meta.world_size = world;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kAxes{{{"dp", "data_parallel_size"},
                                                                                {"tp", "tensor_model_parallel_size"},
                                                                                {"pp", "pipeline_model_parallel_size"},
                                                                                {"cp", "context_parallel_size"},
                                                                                {"ep", "expert_model_parallel_size"}}};
  meta.mesh.clear();
  for (const auto& [axis, name] : kAxes) {
    const auto size = count(member(*args, name));
    if (size && (*size > 1 || axis == "dp")) meta.mesh.emplace_back(axis, *size);
  }
}

}  // namespace ckpt::megatron
