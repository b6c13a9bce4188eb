#pragma once

/// Shared by the commands of a store: points in time, policy options, missing files, the name of this host.
#include "catalog/bucket.hpp"             // IWYU pragma: export
#include "catalog/index/lacks_files.hpp"  // IWYU pragma: export
#include "catalog/index/utc.hpp"          // IWYU pragma: export
#include "catalog/policy_flags.hpp"       // IWYU pragma: export
#include "engine/io/host.hpp"             // IWYU pragma: export
