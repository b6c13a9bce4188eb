#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "api/doctor/doctor.hpp"
#include "cli/report/diagnosis.hpp"

namespace ckpt::cli {

/// `need`: bytes of the next save; none if unknown.
std::vector<Diagnosis> diagnose(const VolumeFacts& facts, std::optional<std::uint64_t> need, bool system);

}  // namespace ckpt::cli
