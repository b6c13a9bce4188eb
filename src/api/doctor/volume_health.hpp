#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "api/doctor/diagnosis.hpp"
#include "engine/io/volume_facts.hpp"

namespace ckpt {

/// `need`: bytes of the next save; none if unknown.
std::vector<Diagnosis> diagnose(const VolumeFacts& facts, std::optional<std::uint64_t> need);

}  // namespace ckpt
