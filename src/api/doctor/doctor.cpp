#include "api/doctor/doctor.hpp"

namespace ckpt {

Result<DoctorReport> doctor(Session& session, const DoctorRequest& request) {
  DoctorReport out;
  CKPT_TRY(out.volume, read_volume_facts(session.io, request.path));
  out.machine = read_machine_facts();
  CKPT_TRY(out.store, read_store_facts(session, request.path, request.now));
  if (request.bench_bytes == 0 || !out.volume.tried.writable) return out;
  CKPT_TRY(out.speed, measure_disk(session.io, request.path, request.bench_bytes, session.stop));
  return out;
}

}  // namespace ckpt
