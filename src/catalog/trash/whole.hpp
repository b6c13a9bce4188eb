#pragma once

#include <memory>
#include <string>

#include "engine/io/hold_directory.hpp"
#include "engine/io/io.hpp"
#include "format/result.hpp"

namespace ckpt::catalog {

/// A ckpt checkpoint that is about to be changed or removed: its directory, held for reads too, and the proof that all
/// its files are inside it.
/// errors  linked: one of its folders is a symbolic link; not_found; io
Result<std::unique_ptr<HeldDirectory>> hold_whole(Io& io, const std::string& checkpoint);

}  // namespace ckpt::catalog
