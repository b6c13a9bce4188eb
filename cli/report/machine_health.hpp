#pragma once

#include <vector>

#include "api/doctor/doctor.hpp"
#include "cli/report/diagnosis.hpp"

namespace ckpt::cli {

std::vector<Diagnosis> diagnose(const MachineFacts& facts);

}  // namespace ckpt::cli
