#pragma once

#include <vector>

#include "catalog/scan/entry.hpp"

namespace ckpt::catalog {

/// Sets Checkpoint::resume_source of the one in each run that a trainer has loaded last.
void note_resume_sources(std::vector<Entry>& entries);

}  // namespace ckpt::catalog
