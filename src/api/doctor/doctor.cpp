#include "api/doctor/doctor.hpp"

#include <algorithm>
#include <utility>

#include "api/doctor/machine_health.hpp"
#include "api/doctor/store_health.hpp"
#include "api/doctor/volume_health.hpp"
#include "engine/io/volume_facts.hpp"
#include "engine/process/machine_facts.hpp"

namespace ckpt {

Result<DoctorReport> doctor(Session& session, const DoctorRequest& request) {
  DoctorReport out;
  CKPT_TRY(const VolumeFacts volume, read_volume_facts(session.io, request.path));
  out.findings = diagnose(read_machine_facts());
  std::vector<Diagnosis> of_volume = diagnose(volume, request.save_bytes);
  std::move(of_volume.begin(), of_volume.end(), std::back_inserter(out.findings));
  CKPT_TRY(const auto store, read_store_facts(session, request.path, request.now));
  if (store) std::ranges::move(diagnose(*store), std::back_inserter(out.findings));
  out.healthy = std::ranges::none_of(out.findings, [](const Diagnosis& one) { return one.health == Health::fail; });
  if (request.bench_bytes == 0 || !volume.tried.writable) return out;
  CKPT_TRY(out.speed, measure_disk(session.io, request.path, request.bench_bytes, session.stop));
  return out;
}

}  // namespace ckpt
