#pragma once

#include <optional>
#include <string>
#include <string_view>

/// The names that tensors of optimizer state have in every format of ours and in torch's nested state dicts:
/// "optimizer.state.PARAMETER.SLOT".
namespace ckpt {

std::string slot_name(std::string_view parameter, std::string_view slot);

/// The parameter in the name of a tensor of this slot; nothing: the name has another form.
std::optional<std::string_view> parameter_in(std::string_view name, std::string_view slot);

}  // namespace ckpt
