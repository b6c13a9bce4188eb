#pragma once

#include <vector>

#include "api/verbs.hpp"
#include "convert/open_source.hpp"

namespace ckpt {

/// What `inspect` says of a checkpoint besides what its files hold: metrics, also those that were saved with it, tags,
/// pins, notes. Marks that cannot be read say nothing.
std::vector<InspectReport::Fact> mark_facts(Io& io, const Source& source);

}  // namespace ckpt
