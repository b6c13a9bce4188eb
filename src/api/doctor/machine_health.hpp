#pragma once

#include <vector>

#include "api/doctor/diagnosis.hpp"
#include "engine/process/machine_facts.hpp"

namespace ckpt {

std::vector<Diagnosis> diagnose(const MachineFacts& facts);

}  // namespace ckpt
