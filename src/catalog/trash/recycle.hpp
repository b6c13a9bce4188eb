#pragma once

#include "catalog/trash/trash.hpp"
#include "engine/store/recycle.hpp"

/// For trash.cpp: which things in the trash may feed the next save.
namespace ckpt::catalog {

/// Whether an entry of the trash has data files that the next save could reuse.
bool can_recycle(const TrashEntry& entry);
/// Their identity in recycle/.
RecycledSet set_of(const TrashEntry& entry);

}  // namespace ckpt::catalog
