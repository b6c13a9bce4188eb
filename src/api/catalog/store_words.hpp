#pragma once

/// What the verbs of a store share with the command line: points in time, flags of policies, whether a checkpoint lacks
/// files, the name of this host.
#include "catalog/bucket.hpp"             // IWYU pragma: export
#include "catalog/index/lacks_files.hpp"  // IWYU pragma: export
#include "catalog/index/utc.hpp"          // IWYU pragma: export
#include "catalog/policy_flags.hpp"       // IWYU pragma: export
#include "engine/io/host.hpp"             // IWYU pragma: export
