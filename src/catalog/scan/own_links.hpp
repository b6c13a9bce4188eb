#pragma once

#include <string>
#include <vector>

#include "catalog/scan/links.hpp"
#include "engine/io/io.hpp"

namespace ckpt::catalog {

/// A checkpoint of ours, by its place.
struct OwnPlace {
  std::string run{};
  std::string name{};
  bool is_virtual = false;
};

/// The symbolic links among the files of a checkpoint of ours. Saves make none, but users replace files by links to
/// equal files of other checkpoints to save space: note_links then counts a reference to that checkpoint. Links in
/// `marks` do not count. A directory that cannot be read may hold any link. What a virtual one refers to counts as
/// linked. Costs a few listings; the index does not store the result.
std::vector<FoundLink> find_own_links(Io& io, const std::string& store, const OwnPlace& place);

}  // namespace ckpt::catalog
