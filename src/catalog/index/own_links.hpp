#pragma once

#include <string>
#include <vector>

#include "catalog/index/links.hpp"
#include "engine/io/io.hpp"

namespace ckpt::catalog {

/// A checkpoint of ours, by its place.
struct OwnPlace {
  std::string run{};
  std::string name{};
};

/// The symbolic links among the files of a checkpoint of ours. No save makes one, but who wants to save space may have
/// put one in the place of a file that another checkpoint holds too: note_links makes it refer to that one. Links in
/// `marks` are nobody's data. A directory of it that cannot be read may hold any: it counts as a link that nobody can
/// follow. Costs some listings, and is not known to the index.
std::vector<FoundLink> find_own_links(Io& io, const std::string& store, const OwnPlace& place);

}  // namespace ckpt::catalog
