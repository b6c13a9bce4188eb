#pragma once

#include <string>

#include "engine/io/io.hpp"

namespace ckpt {

/// The store that the current directory is, else the nearest one that it lies in; "." if there is none.
std::string store_here();

/// Refuses to treat a directory in a store, such as a run, as a store of its own: it would get a trash that no other
/// command on the store sees.
/// errors  usage; not_found: no such directory; io
Result<> check_outermost(Io& io, const std::string& store);

}  // namespace ckpt
