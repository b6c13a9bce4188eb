#pragma once

#include "engine/store/foreign_names.hpp"

namespace ckpt {

/// What all formats together supply (Format::names), in their order: for readers' leases, for scans of a store and for
/// deletions.
ForeignNames foreign_names();

}  // namespace ckpt
