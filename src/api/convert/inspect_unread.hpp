#pragma once

#include <optional>
#include <string>

#include "api/verbs.hpp"

namespace ckpt {

/// The report of a checkpoint whose format is recognised but not read: its files, step and time, and whether it is
/// complete where the format's names show it. Nothing if the format can be read or is not known.
/// errors  as find_unread
Result<std::optional<InspectReport>> inspect_unread(Session& session, const std::string& path, const std::string& from);

}  // namespace ckpt
