#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/io/io.hpp"

/// Another tool's checkpoint shows no end of its save. What it lacks compared with the one before tells that the save may
/// have stopped.
namespace ckpt {

/// A name without its digits: "checkpoint-", "rng_state_.pth".
std::string form_of(const std::string& name);

/// Files and folders of data (not text) that `before` has and `path` lacks or has empty, by the forms of their names.
/// Nothing if one of the two cannot be listed.
std::vector<std::string> lacking_files(Io& io, const std::string& path, const std::string& before);

/// "lacks optimizer.pt, which checkpoint-100 has", compared with the checkpoint of the next smaller step in the same
/// folder whose name has the same form; "" if it lacks nothing, or there is none.
std::string lacks_text(Io& io, const std::string& path);

}  // namespace ckpt
