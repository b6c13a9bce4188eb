#pragma once

#include <string>
#include <vector>

#include "catalog/scan/links.hpp"
#include "engine/io/io.hpp"

namespace ckpt::catalog {

/// The files that the virtual checkpoint STORE/RUN/NAME refers to, as links of its own: note_links then counts a
/// reference to each checkpoint that holds one. Its marks in them (reference_marks.hpp) do the same, but lose it when it
/// is moved or copied. Empty for any other checkpoint, and for one of which both manifests are damaged. A manifest that
/// cannot be read now may refer to any checkpoint of the run.
std::vector<FoundLink> find_virtual_links(Io& io, const std::string& store, const std::string& run,
                                          const std::string& name);

}  // namespace ckpt::catalog
