#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ckpt {

/// The step that other tools' names of checkpoint directories hold: "global_step100", "iter_0000100", "checkpoint-500",
/// "step_10", "ckpt-3", "epoch=1-step=500", "1000". Nothing for names that only happen to end in digits ("exp7").
std::optional<std::uint64_t> step_in_name(std::string_view name);

}  // namespace ckpt
