#pragma once

#include <vector>

#include "api/doctor/store_facts.hpp"
#include "cli/report/diagnosis.hpp"

namespace ckpt::cli {

std::vector<Diagnosis> diagnose(const StoreFacts& facts);

}  // namespace ckpt::cli
