#pragma once

#include <optional>
#include <string>

#include "api/doctor/disk_speed.hpp"
#include "cli/report/document.hpp"
#include "cli/text/units.hpp"

/// Measurements of --bench, in the same form for every command.
namespace ckpt::cli {

/// "write 1.9 GiB/s with its sync, read 2.4 GiB/s   (1.0 GiB, one process)"
std::string disk_text(const DiskSpeed& speed, SizeStyle sizes);
/// null where nothing was measured.
void put(json::Writer& out, const std::optional<DiskSpeed>& speed);

}  // namespace ckpt::cli
