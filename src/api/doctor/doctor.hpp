#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "api/doctor/disk_speed.hpp"
#include "api/doctor/store_facts.hpp"
#include "api/verbs.hpp"
#include "catalog/bucket.hpp"
#include "engine/io/volume_facts.hpp"
#include "engine/process/machine_facts.hpp"

namespace ckpt {

struct DoctorRequest {
  std::string path;               ///< a directory that holds checkpoints, or will
  std::uint64_t bench_bytes = 0;  ///< 0: nothing is measured
  catalog::Time now{};            ///< by the machine's clock
};

struct DoctorReport {
  MachineFacts machine{};
  VolumeFacts volume{};
  std::optional<StoreFacts> store{};  ///< where the directory is one
  std::optional<DiskSpeed> speed{};
};

/// Looks at this machine and a directory's file system, and probes the operations that saves rely on, with files that it
/// removes. For a store also leftovers of killed saves, its catalog, its trash and the marks of its checkpoints.
/// errors  not_found, usage: no directory; those of measure_disk
Result<DoctorReport> doctor(Session& session, const DoctorRequest& request);

}  // namespace ckpt
