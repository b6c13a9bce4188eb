#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/verbs.hpp"
#include "catalog/index/entry.hpp"
#include "catalog/index/scan.hpp"
#include "engine/io.hpp"
#include "format/result.hpp"

/// Before anything goes, what stays is looked at on the disk: the catalog only tells what was there.
namespace ckpt {

/// The place of a checkpoint as it is now. Nothing where it is gone, or is something else now.
Result<std::optional<catalog::EntryPlace>> place_of(Io& io, const std::string& store, const catalog::Entry& entry);

/// Whether they have the same metrics; NaN is the same as NaN.
bool same_metrics(const catalog::Checkpoint& a, const catalog::Checkpoint& b);

/// What a look at one told.
struct LookedAgain {
  bool is_same = false;                               ///< nothing that retention looks at is another now
  std::optional<catalog::Entry> now{};                ///< where it is not the same: what is there, if it can be read
  catalog::State state = catalog::State::unreadable;  ///< of the same one, by the quick check (structure and sizes)
  std::string reason{};                               ///< why it does not count; empty: it is whole
};

/// Looks at each of them, by as many threads as the session has where they are many.
std::vector<LookedAgain> look_again(Session& session, const std::string& store,
                                    const std::vector<const catalog::Entry*>& known);

}  // namespace ckpt
