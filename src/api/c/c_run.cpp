#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string_view>

#include "api/c/c_handles.hpp"
#include "engine/io/exceptions_to_result.hpp"

namespace ckpt::c {
namespace {

Result<Replicas> replicas_of(int32_t given) {
  switch (given) {
    case CKPT_REPLICAS_AUTOMATIC:
      return Replicas::automatic;
    case CKPT_REPLICAS_READ:
      return Replicas::read;
    case CKPT_REPLICAS_EXCHANGE:
      return Replicas::exchange;
    default:
      return fail(Errc::usage, fmt::format("{} is not a value of ckpt_replicas", given));
  }
}

Run::Options run_options(const ckpt_options& given) {
  Run::Options options{.staging_bytes = given.staging_memory,
                       .every_steps = given.every_steps,
                       .every = std::chrono::duration<double>(given.every_seconds),
                       .time_limit = std::chrono::duration<double>(given.time_limit_s),
                       .catch_signals = given.catch_signals != 0,
                       .optimal = given.optimal != 0,
                       .most_overhead = given.max_overhead,
                       .mtbf_s = given.mtbf_s,
                       .restart_s = given.restart_s,
                       .drain_bytes_per_second = given.drain_bytes_per_second,
                       .verify_all = given.verify_all != 0,
                       .replicas = replicas_of(given.replicas).value_or(Replicas::automatic)};
  if (given.policy_store != nullptr) options.policy_store = given.policy_store;
  if (given.local_directory != nullptr) options.local_directory = given.local_directory;
  if (given.local_keep != 0) options.local_keep = given.local_keep;
  if (given.copy_threads != 0) options.copy_threads = given.copy_threads;
  if (given.write_threads != 0) options.write_threads = given.write_threads;
  if (given.patience_ms > 0) options.patience = std::chrono::milliseconds(given.patience_ms);
  if (given.framework != nullptr) options.framework = given.framework;
  if (given.framework_version != nullptr) options.framework_version = given.framework_version;
  if (given.log != nullptr) {
    options.log = [log = given.log, user = given.log_user](const std::string& text) { log(user, text.c_str()); };
  }
  return options;
}

std::chrono::milliseconds timeout_of(int64_t milliseconds) {
  return std::chrono::milliseconds(std::max<int64_t>(milliseconds, 0));
}

int outcome_of(const Result<SaveOutcome>& outcome) {
  return outcome ? 0 : exit_code(outcome.error());
}

Result<> poll(const SaveEvent& event, int* done) {
  CKPT_CHECK(need(done, "the output pointer for the answer"));
  *done = event.known() ? 1 : 0;
  if (*done == 0) return {};
  auto outcome = event.take_outcome();
  return outcome ? Result<>() : fail(std::move(outcome).error());
}

Result<> call_when_known(SaveEvent& event, void (*callback)(void* user, int outcome), void* user) {
  if (callback == nullptr) return fail(Errc::usage, "the callback is null");
  event.on_known([callback, user](const auto& outcome) { callback(user, outcome_of(outcome)); });
  return {};
}

/// A save from commit on, of this process.
Result<> usable(const ckpt_pending* pending) {
  CKPT_CHECK(need(pending, "the pending save"));
  return pending->owner.check();
}

MemorySource memory_of(const void* data, std::uint64_t bytes) {
  return {.data = static_cast<const std::byte*>(data), .bytes = bytes};
}

/// The last text of a key counts.
void set_text(ckpt_save& save, std::string key, std::string text) {
  std::erase_if(save.user, [&](const auto& pair) { return pair.first == key; });
  save.user.emplace_back(std::move(key), std::move(text));
}

/// The run that a save was begun in, open, where nothing was begun after it.
Result<std::shared_ptr<OpenRun>> run_of(const ckpt_save* save) {
  CKPT_CHECK(need(save, "the save"));
  CKPT_CHECK(save->owner.check());
  auto opened = save->opened.lock();
  if (!opened) return fail(Errc::usage, "the save's run is closed");
  if (opened->begun != save->number) return fail(Errc::usage, "another save was begun after this one");
  return opened;
}

/// Calls `add` with the saver. A rank that cannot add something must not commit without it: commit then fails on all.
template <class Add>
Result<> add_to(ckpt_save* save, Add add) {
  CKPT_TRY(const auto opened, run_of(save));
  Saver& saver = opened->run->saver();
  auto added = exceptions_to_result([&] { return add(saver); });
  if (!added) saver.refuse(added.error());
  return added;
}

/// Adds what `make` gives.
template <class Make>
Result<> add_piece(ckpt_save* save, Make make) {
  return add_to(save, [&](Saver& saver) -> Result<> {
    CKPT_TRY(Piece piece, make());
    return saver.add(std::move(piece));
  });
}

/// A box of a described tensor, in the caller's memory.
Result<Piece> part_of(Tensor described, const uint64_t* offset, const uint64_t* extent, const void* data,
                      uint64_t bytes) {
  const std::size_t ndim = described.shape.size();
  if (ndim != 0) {
    CKPT_CHECK(need(offset, "the offset"));
    CKPT_CHECK(need(extent, "the extent"));
  }
  if (bytes != 0) CKPT_CHECK(need(data, "the data"));
  Box box{Shape(offset, offset + ndim), Shape(extent, extent + ndim)};
  return Piece{.described = std::move(described), .chunk = {.box = std::move(box)}, .memory = memory_of(data, bytes)};
}

/// The parts that one call adds.
Result<> add_parts(Saver& saver, const ckpt_parts& parts) {
  if (parts.count == 0) return {};
  CKPT_CHECK(need(parts.names, "the names"));
  CKPT_CHECK(need(parts.dtypes, "the dtypes"));
  CKPT_CHECK(need(parts.ndims, "the numbers of dimensions"));
  CKPT_CHECK(need(parts.data, "the data"));
  CKPT_CHECK(need(parts.bytes, "the sizes of the parts"));
  if ((parts.offsets == nullptr) != (parts.extents == nullptr))
    return fail(Errc::usage, "the parts have offsets or extents, but not both");
  const bool whole = parts.offsets == nullptr;
  const char* name = parts.names;
  const char* dtype = parts.dtypes;
  std::size_t at = 0;
  for (uint64_t i = 0; i < parts.count; ++i) {
    const uint32_t ndim = parts.ndims[i];
    if (ndim != 0) CKPT_CHECK(need(parts.shapes, "the shapes"));
    const ckpt_tensor tensor{
        .size = sizeof tensor, .name = name, .dtype = dtype, .shape = parts.shapes + at, .ndim = ndim};
    CKPT_TRY(Tensor described, tensor_of(&tensor));
    if (parts.roles != nullptr) {
      constexpr std::array<Role, 3> kRoles{Role::param, Role::buffer, Role::slot};  // by CKPT_PARAM and so on
      if (parts.roles[i] >= kRoles.size()) return fail(Errc::usage, fmt::format("{}: no such role", described.name));
      described.role = kRoles[parts.roles[i]];
    }
    const Shape origin(whole ? ndim : 0, 0);
    const uint64_t* offset = whole ? origin.data() : parts.offsets + at;
    const uint64_t* extent = (whole ? parts.shapes : parts.extents) + at;
    CKPT_TRY(Piece piece, part_of(std::move(described), offset, extent, parts.data[i], parts.bytes[i]));
    CKPT_CHECK(saver.add(std::move(piece)));
    name += std::strlen(name) + 1;
    dtype += std::strlen(dtype) + 1;
    at += ndim;
  }
  return {};
}

}  // namespace
}  // namespace ckpt::c

using ckpt::Piece;
using ckpt::Result;
using ckpt::c::add_parts;
using ckpt::c::add_piece;
using ckpt::c::add_to;
using ckpt::c::call_when_known;
using ckpt::c::check_sized;
using ckpt::c::guarded;
using ckpt::c::memory_of;
using ckpt::c::need;
using ckpt::c::OpenRun;
using ckpt::c::part_of;
using ckpt::c::poll;
using ckpt::c::read_sized;
using ckpt::c::replicas_of;
using ckpt::c::run_of;
using ckpt::c::run_options;
using ckpt::c::set_text;
using ckpt::c::tensor_of;
using ckpt::c::timeout_of;
using ckpt::c::usable;

uint32_t ckpt_abi_version(void) {
  return CKPT_ABI_VERSION;
}

int ckpt_comm_world(ckpt_comm_table* table) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(table, "the output pointer for the table"));
    CKPT_TRY(*table, ckpt::load_mpi_table());
    return {};
  });
}

int ckpt_run_open(const char* run_directory, const ckpt_options* options, ckpt_run** run) {
  return guarded([&]() -> Result<> {
    ckpt_options given{};
    if (options != nullptr) {
      CKPT_TRY(given, read_sized(options, offsetof(ckpt_options, log_user) + sizeof(void*), "the options"));
    }
    if (given.comm != nullptr && given.comm->size < offsetof(ckpt_comm_table, close) + sizeof(void*)) {
      return ckpt::fail(ckpt::Errc::mpi_launch,
                        "the table of the communicator is empty: MPI refused, or it was never filled");
    }
    auto comm = ckpt::Comm::solo();
    if (given.comm != nullptr) {
      ckpt_comm_table table{};  // an older trainer's ends earlier
      std::memcpy(&table, given.comm, std::min<std::size_t>(static_cast<std::size_t>(given.comm->size), sizeof table));
      comm = std::make_unique<ckpt::Comm>(table);
    }
    // From here on other ranks wait for this one.
    auto io = [&]() -> Result<std::unique_ptr<ckpt::Io>> {
      CKPT_CHECK(need(run_directory, "the run's directory"));
      CKPT_CHECK(need(run, "the output pointer for the run"));
      CKPT_CHECK(replicas_of(given.replicas));
      if (!(given.max_overhead >= 0 && given.max_overhead <= 1))
        return ckpt::fail(ckpt::Errc::usage, fmt::format("max_overhead {} is not between 0 and 1", given.max_overhead));
      CKPT_TRY(const ckpt::IoKind kind, ckpt::c::io_kind(given.io));
      return ckpt::open_io(kind);
    }();
    auto made = std::make_unique<ckpt_run>();
    made->opened = std::make_shared<OpenRun>();
    CKPT_TRY(made->opened->run, ckpt::Run::open(std::move(io), std::move(comm),
                                                run_directory == nullptr ? "" : run_directory, run_options(given)));
    *run = made.release();
    return {};
  });
}

int ckpt_run_close(ckpt_run* run) {
  return guarded([&]() -> Result<> {
    if (run == nullptr) return {};
    if (!run->owner.is_here()) return run->owner.check();  // its threads belong to the parent: unchanged
    const std::unique_ptr<ckpt_run> mine(run);
    return mine->opened->run->close();
  });
}

int ckpt_should_save(ckpt_run* run, uint64_t step, int* answer) {
  return guarded([&]() -> Result<> {
    if (answer != nullptr) *answer = 0;
    CKPT_CHECK(need(run, "the run"));
    CKPT_CHECK(run->owner.check());
    CKPT_TRY(const bool yes, run->opened->run->should_save(step));
    CKPT_CHECK(need(answer, "the output pointer for the answer"));  // now: the other ranks wait for this one
    *answer = yes ? 1 : 0;
    return {};
  });
}

int ckpt_stop_requested(const ckpt_run* run) {
  return run != nullptr && run->owner.is_here() && run->opened->run->stop_requested() ? 1 : 0;
}

int ckpt_ranks_lost(const ckpt_run* run) {
  return run != nullptr && run->owner.is_here() && run->opened->run->ranks_lost() ? 1 : 0;
}

int ckpt_begin(ckpt_run* run, uint64_t step, ckpt_save** save) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(run, "the run"));
    CKPT_CHECK(run->owner.check());
    auto made = std::make_unique<ckpt_save>();
    made->opened = run->opened;
    made->number = ++run->opened->begun;
    CKPT_CHECK(run->opened->run->begin(step, need(save, "the output pointer for the save")));
    *save = made.release();
    return {};
  });
}

int ckpt_set(ckpt_save* save, const char* key, const char* text) {
  return guarded([&]() -> Result<> {
    CKPT_TRY(const auto opened, run_of(save));
    CKPT_CHECK(need(key, "the key"));
    CKPT_CHECK(need(text, "the text"));
    set_text(*save, key, text);
    return {};
  });
}

int ckpt_metric(ckpt_save* save, const char* name, double value) {
  return guarded([&]() -> Result<> {
    CKPT_TRY(const auto opened, run_of(save));
    CKPT_CHECK(need(name, "the metric's name"));
    set_text(*save, fmt::format("metric.{}", name), fmt::format("{}", value));
    return {};
  });
}

int ckpt_add(ckpt_save* save, const char* name, const void* data, uint64_t bytes) {
  return guarded([&] {
    return add_piece(save, [&]() -> Result<Piece> {
      CKPT_CHECK(need(name, "the name"));
      if (bytes != 0) CKPT_CHECK(need(data, "the data"));
      return Piece{.name = name, .memory = memory_of(data, bytes)};
    });
  });
}

int ckpt_add_fill(ckpt_save* save, const char* name, uint64_t bytes, ckpt_fill fill, void* user) {
  return guarded([&] {
    return add_piece(save, [&]() -> Result<Piece> {
      CKPT_CHECK(need(name, "the name"));
      if (fill == nullptr) return ckpt::fail(ckpt::Errc::usage, "fill is null");
      const std::string what = name;
      return Piece{
          .name = name,
          .memory = {.bytes = bytes,
                     .fill = [fill, user, what](std::byte* out, std::uint64_t offset, std::uint64_t size) -> Result<> {
                       const int code = fill(user, out, offset, size);
                       if (code == 0) return {};
                       return ckpt::fail({.code = ckpt::Errc::io,
                                          .message = fmt::format("{}: its fill callback returned {}", what, code),
                                          .tensor = what});
                     }}};
    });
  });
}

int ckpt_add_part(ckpt_save* save, const ckpt_tensor* tensor, const uint64_t* offset, const uint64_t* extent,
                  const void* data, uint64_t bytes) {
  return guarded([&] {
    return add_piece(save, [&]() -> Result<Piece> {
      CKPT_TRY(ckpt::Tensor described, tensor_of(tensor));
      return part_of(std::move(described), offset, extent, data, bytes);
    });
  });
}

int ckpt_add_parts(ckpt_save* save, const ckpt_parts* parts) {
  return guarded([&] {
    return add_to(save, [&](ckpt::Saver& saver) -> Result<> {
      CKPT_TRY(const auto given, read_sized(parts, offsetof(ckpt_parts, bytes) + sizeof(void*), "the parts"));
      return add_parts(saver, given);
    });
  });
}

int ckpt_add_blob(ckpt_save* save, const char* name, const void* data, uint64_t bytes) {
  return guarded([&] {
    return add_piece(save, [&]() -> Result<Piece> {
      CKPT_CHECK(need(name, "the name"));
      if (bytes != 0) CKPT_CHECK(need(data, "the data"));
      const ckpt::Shape shape{bytes};
      return Piece{
          .described = ckpt::Tensor{.name = name, .dtype = ckpt::Dtype::u8, .shape = shape, .role = ckpt::Role::blob},
          .chunk = {.box = ckpt::Box::whole(shape)},
          .memory = memory_of(data, bytes)};
    });
  });
}

int ckpt_commit(ckpt_save* save, ckpt_pending** pending) {
  const std::unique_ptr<ckpt_save> mine(save);
  return guarded([&]() -> Result<> {
    CKPT_TRY(const auto opened, run_of(save));
    auto made = std::make_unique<ckpt_pending>();
    made->opened = opened;
    CKPT_TRY(made->save, opened->run->commit(std::move(mine->user)));
    if (pending != nullptr) *pending = made.release();
    return {};
  });
}

void ckpt_save_drop(ckpt_save* save) {
  delete save;
}

int ckpt_wait(ckpt_pending* pending, int64_t timeout_ms) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(usable(pending));
    if (const auto opened = pending->opened.lock()) {
      return opened->run->saver().wait(pending->save, timeout_of(timeout_ms));
    }
    CKPT_TRY(const auto outcome, pending->save->durable().take_outcome());  // known since its run was closed
    static_cast<void>(outcome);
    return {};
  });
}

int ckpt_wait_drained(ckpt_pending* pending, int64_t timeout_ms) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(usable(pending));
    if (const auto opened = pending->opened.lock()) {
      return opened->run->saver().wait_drained(pending->save, timeout_of(timeout_ms));
    }
    CKPT_TRY(const auto outcome, pending->save->drained().take_outcome());  // known since its run was closed
    static_cast<void>(outcome);
    return {};
  });
}

int ckpt_poll(ckpt_pending* pending, int* done) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(usable(pending));
    return poll(pending->save->durable(), done);
  });
}

int ckpt_poll_drained(ckpt_pending* pending, int* done) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(usable(pending));
    return poll(pending->save->drained(), done);
  });
}

int ckpt_on_durable(ckpt_pending* pending, void (*callback)(void* user, int outcome), void* user) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(usable(pending));
    return call_when_known(pending->save->durable(), callback, user);
  });
}

int ckpt_on_drained(ckpt_pending* pending, void (*callback)(void* user, int outcome), void* user) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(usable(pending));
    return call_when_known(pending->save->drained(), callback, user);
  });
}

const char* ckpt_pending_name(ckpt_pending* pending) {
  if (pending == nullptr || !pending->owner.is_here()) return "";
  if (const auto outcome = pending->save->outcome()) pending->name = outcome->name;
  if (const auto outcome = pending->save->drained().outcome()) pending->name = outcome->name;
  return pending->name.c_str();
}

int ckpt_pending_stats(const ckpt_pending* pending, ckpt_stats* stats) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(usable(pending));
    CKPT_CHECK(need(stats, "the output pointer for the statistics"));
    CKPT_CHECK(check_sized(stats, offsetof(ckpt_stats, commit_s) + sizeof(double), "the statistics"));
    const ckpt::SaveTimes times = pending->save->times();
    const ckpt_stats all{.size = stats->size,
                         .bytes = times.bytes,
                         .plan_s = times.plan_s,
                         .stage_s = times.stage_s,
                         .write_s = times.write_s,
                         .commit_s = times.commit_s,
                         .drain_s = times.drain_s};
    std::memcpy(stats, &all, std::min<std::size_t>(stats->size, sizeof all));
    return {};
  });
}

void ckpt_pending_free(ckpt_pending* pending) {
  if (pending != nullptr && pending->owner.is_here()) delete pending;  // in a child its locks may be held forever
}
