#include "convert/target_tensors.hpp"

#include <string_view>

#include "format/model/slot_name.hpp"

namespace ckpt {

TargetTensors::TargetTensors(const WriteRequest& request) : request_(request) {}

const std::unordered_map<std::string, std::string>& TargetTensors::renamed() const {
  if (renamed_) return *renamed_;
  renamed_.emplace();
  for (const Selected& selected : request_.tensors) {
    // A master used as the weight gets the weight's name; references to the master mean the slot.
    if (!selected.role) renamed_->emplace(request_.source->tensors[selected.tensor].name, selected.name);
  }
  return *renamed_;
}

Tensor TargetTensors::tensor(std::size_t selected) const {
  const Selected& wanted = request_.tensors[selected];
  const Tensor& source = request_.source->tensors[wanted.tensor];
  Tensor out = source;
  out.name = wanted.name;
  out.dtype = wanted.dtype;
  out.role = wanted.role.value_or(source.role);
  if (wanted.part) {
    out.shape = wanted.part->shape;
    out.true_dtype.clear();  // of a whole last dimension, which a slice may have cut
  }
  if (out.name != source.name) out.path.clear();
  if (out.dtype != source.dtype) out.true_dtype.clear();
  if (out.role != Role::slot) {
    out.parameter.clear();
    out.slot.clear();
  } else if (!source.parameter.empty()) {
    out.parameter = parameter_name(source, wanted.name);
  }
  return out;
}

std::string TargetTensors::parameter_name(const Tensor& source, const std::string& name) const {
  if (const auto found = renamed().find(source.parameter); found != renamed().end()) return found->second;
  // The parameter itself is not selected; a prefix that was added or taken away shows in the slot's new name.
  const auto own = parameter_in(name, source.slot);
  return own && parameter_in(source.name, source.slot) == source.parameter ? std::string(*own) : source.parameter;
}

}  // namespace ckpt
