#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/doctor/diagnosis.hpp"
#include "api/doctor/disk_speed.hpp"
#include "api/verbs.hpp"
#include "catalog/bucket.hpp"

namespace ckpt {

struct DoctorRequest {
  std::string path;                           ///< a directory that holds checkpoints, or will
  std::optional<std::uint64_t> save_bytes{};  ///< of the next save
  std::uint64_t bench_bytes = 0;              ///< 0: nothing is measured
  catalog::Time now{};                        ///< by the machine's clock
};

struct DoctorReport {
  std::vector<Diagnosis> findings{};
  std::optional<DiskSpeed> speed{};
  bool healthy = true;  ///< no finding is Health::fail
};

/// Checks this machine and a directory's file system, and probes the operations that saves rely on, with files that it
/// removes. For a store also leftovers of killed saves, its catalog, its trash and the marks of its checkpoints.
/// errors  not_found, usage: no directory; those of measure_disk
Result<DoctorReport> doctor(Session& session, const DoctorRequest& request);

}  // namespace ckpt
