#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "api/c_handles.hpp"

namespace ckpt::c {
namespace {

/// A struct that begins with its size, as this build knows it: what an older caller does not have is zero.
template <class Struct>
Struct read_sized(const Struct* given) {
  Struct out{};
  if (given != nullptr) std::memcpy(&out, given, std::min<std::size_t>(given->size, sizeof(Struct)));
  return out;
}

Result<IoKind> io_kind(const char* name) {
  const std::string_view text = name == nullptr ? "auto" : name;
  if (text == "auto") return IoKind::automatic;
  if (text == "uring") return IoKind::uring;
  if (text == "threads") return IoKind::threads;
  return fail(Errc::usage, fmt::format("'{}' is no I/O engine: auto, uring or threads", text));
}

StoreOptions store_options(const ckpt_options& given) {
  StoreOptions options{.staging_bytes = given.staging_memory,
                       .every_steps = given.every_steps,
                       .every = std::chrono::duration<double>(given.every_seconds),
                       .time_limit = std::chrono::duration<double>(given.time_limit_s),
                       .catch_signals = given.catch_signals != 0,
                       .verify_all = given.verify_all != 0};
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

/// A save that is being prepared, and the store it belongs to, both alive.
Result<Saver*> saver_of(ckpt_save* save) {
  CKPT_CHECK(need(save, "the save"));
  CKPT_CHECK(save->store->owner.check());
  return &save->store->store->saver();
}

}  // namespace
}  // namespace ckpt::c

using ckpt::Result;
using ckpt::c::guarded;
using ckpt::c::io_kind;
using ckpt::c::need;
using ckpt::c::outcome_of;
using ckpt::c::read_sized;
using ckpt::c::saver_of;
using ckpt::c::store_options;
using ckpt::c::tensor_of;
using ckpt::c::timeout_of;

uint32_t ckpt_abi_version(void) {
  return CKPT_ABI_VERSION;
}

int ckpt_comm_world(ckpt_comm_table* table) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(table, "the place for the table"));
    CKPT_TRY(*table, ckpt::load_mpi_table());
    return {};
  });
}

int ckpt_store_open(const char* run_directory, const ckpt_options* options, ckpt_store** store) {
  return guarded([&]() -> Result<> {
    const ckpt_options given = read_sized(options);
    auto comm = given.comm != nullptr ? std::make_unique<ckpt::Comm>(*given.comm) : ckpt::Comm::solo();
    CKPT_CHECK(need(run_directory, "the run's directory"));
    CKPT_CHECK(need(store, "the place for the store"));
    CKPT_TRY(const ckpt::IoKind kind, io_kind(given.io));
    CKPT_TRY(auto io, ckpt::open_io(kind));
    auto made = std::make_unique<ckpt_store>();
    CKPT_TRY(made->store, ckpt::Store::open(std::move(io), std::move(comm), run_directory, store_options(given)));
    *store = made.release();
    return {};
  });
}

int ckpt_store_close(ckpt_store* store) {
  return guarded([&]() -> Result<> {
    if (store == nullptr) return {};
    if (!store->owner.is_here()) return store->owner.check();  // its threads are the parent's: left as it is
    const std::unique_ptr<ckpt_store> mine(store);
    constexpr auto kCloseTimeout = std::chrono::hours(1);
    return mine->store->wait_all(kCloseTimeout);
  });
}

int ckpt_should_save(ckpt_store* store, uint64_t step, int* answer) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(store, "the store"));
    CKPT_CHECK(need(answer, "the place for the answer"));
    *answer = 0;
    CKPT_CHECK(store->owner.check());
    CKPT_TRY(const bool yes, store->store->should_save(step));
    *answer = yes ? 1 : 0;
    return {};
  });
}

int ckpt_stop_requested(const ckpt_store* store) {
  return store != nullptr && store->owner.is_here() && store->store->stop_requested() ? 1 : 0;
}

int ckpt_ranks_lost(const ckpt_store* store) {
  return store != nullptr && store->owner.is_here() && store->store->ranks_lost() ? 1 : 0;
}

int ckpt_begin(ckpt_store* store, uint64_t step, ckpt_save** save) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(store, "the store"));
    CKPT_CHECK(need(save, "the place for the save"));
    CKPT_CHECK(store->owner.check());
    auto made = std::make_unique<ckpt_save>();
    made->store = store;
    CKPT_CHECK(store->store->begin(step));
    *save = made.release();
    return {};
  });
}

int ckpt_set(ckpt_save* save, const char* key, const char* text) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(save, "the save"));
    CKPT_CHECK(need(key, "the key"));
    CKPT_CHECK(need(text, "the text"));
    save->user.emplace_back(key, text);
    return {};
  });
}

int ckpt_metric(ckpt_save* save, const char* name, double value) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(save, "the save"));
    CKPT_CHECK(need(name, "the metric's name"));
    save->user.emplace_back(fmt::format("metric.{}", name), fmt::format("{}", value));
    return {};
  });
}

int ckpt_add(ckpt_save* save, const char* name, const void* data, uint64_t bytes) {
  return guarded([&]() -> Result<> {
    CKPT_TRY(ckpt::Saver * saver, saver_of(save));
    CKPT_CHECK(need(name, "the name"));
    if (bytes != 0) CKPT_CHECK(need(data, "the data"));
    return saver->add({.name = name, .memory = {.data = static_cast<const std::byte*>(data), .bytes = bytes}});
  });
}

int ckpt_add_fill(ckpt_save* save, const char* name, uint64_t bytes, ckpt_fill fill, void* user) {
  return guarded([&]() -> Result<> {
    CKPT_TRY(ckpt::Saver * saver, saver_of(save));
    CKPT_CHECK(need(name, "the name"));
    if (fill == nullptr) return ckpt::fail(ckpt::Errc::usage, "fill is null");
    const std::string what = name;
    return saver->add(
        {.name = name,
         .memory = {.bytes = bytes,
                    .fill = [fill, user, what](std::byte* out, std::uint64_t offset, std::uint64_t size) -> Result<> {
                      const int code = fill(user, out, offset, size);
                      if (code == 0) return {};
                      return ckpt::fail({.code = ckpt::Errc::io,
                                         .message = fmt::format("save: {}: its fill callback returned {}", what, code),
                                         .tensor = what});
                    }}});
  });
}

int ckpt_add_part(ckpt_save* save, const ckpt_tensor* tensor, const uint64_t* offset, const uint64_t* extent,
                  const void* data, uint64_t bytes) {
  return guarded([&]() -> Result<> {
    CKPT_TRY(ckpt::Saver * saver, saver_of(save));
    CKPT_TRY(ckpt::Tensor described, tensor_of(tensor));
    if (tensor->ndim != 0) {
      CKPT_CHECK(need(offset, "the offset"));
      CKPT_CHECK(need(extent, "the extent"));
    }
    if (bytes != 0) CKPT_CHECK(need(data, "the data"));
    ckpt::Box box{ckpt::Shape(offset, offset + tensor->ndim), ckpt::Shape(extent, extent + tensor->ndim)};
    return saver->add({.described = std::move(described),
                       .chunk = {.box = std::move(box)},
                       .memory = {.data = static_cast<const std::byte*>(data), .bytes = bytes}});
  });
}

int ckpt_add_blob(ckpt_save* save, const char* name, const void* data, uint64_t bytes) {
  return guarded([&]() -> Result<> {
    CKPT_TRY(ckpt::Saver * saver, saver_of(save));
    CKPT_CHECK(need(name, "the name"));
    if (bytes != 0) CKPT_CHECK(need(data, "the data"));
    const ckpt::Shape shape{bytes};
    return saver->add(
        {.described = ckpt::Tensor{.name = name, .dtype = ckpt::Dtype::u8, .shape = shape, .role = ckpt::Role::blob},
         .chunk = {.box = ckpt::Box::whole(shape)},
         .memory = {.data = static_cast<const std::byte*>(data), .bytes = bytes}});
  });
}

int ckpt_commit(ckpt_save* save, ckpt_pending** pending) {
  const std::unique_ptr<ckpt_save> mine(save);
  return guarded([&]() -> Result<> {
    CKPT_TRY(ckpt::Saver * saver, saver_of(save));
    static_cast<void>(saver);
    CKPT_CHECK(need(pending, "the place for the pending save"));
    auto made = std::make_unique<ckpt_pending>();
    made->store = save->store;
    CKPT_TRY(made->save, save->store->store->commit(std::move(mine->user)));
    *pending = made.release();
    return {};
  });
}

void ckpt_save_drop(ckpt_save* save) {
  delete save;
}

int ckpt_wait(ckpt_pending* pending, int64_t timeout_ms) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(pending, "the pending save"));
    CKPT_CHECK(pending->store->owner.check());
    return pending->store->store->saver().wait(pending->save, timeout_of(timeout_ms));
  });
}

int ckpt_poll(ckpt_pending* pending, int* done) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(pending, "the pending save"));
    CKPT_CHECK(need(done, "the place for the answer"));
    *done = pending->save->resolved() ? 1 : 0;
    if (*done == 0) return {};
    auto outcome = pending->save->outcome();
    return outcome ? Result<>() : ckpt::fail(std::move(outcome).error());
  });
}

int ckpt_on_durable(ckpt_pending* pending, void (*callback)(void* user, int outcome), void* user) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(pending, "the pending save"));
    if (callback == nullptr) return ckpt::fail(ckpt::Errc::usage, "the callback is null");
    pending->save->on_resolved([callback, user](const auto& outcome) { callback(user, outcome_of(outcome)); });
    return {};
  });
}

const char* ckpt_pending_name(ckpt_pending* pending) {
  if (pending == nullptr) return "";
  if (const auto outcome = pending->save->outcome()) pending->name = outcome->name;
  return pending->name.c_str();
}

int ckpt_pending_stats(const ckpt_pending* pending, ckpt_stats* stats) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(pending, "the pending save"));
    CKPT_CHECK(need(stats, "the place for the statistics"));
    const ckpt::SaveTimes times = pending->save->times();
    const ckpt_stats all{.size = stats->size,
                         .bytes = times.bytes,
                         .plan_s = times.plan_s,
                         .stage_s = times.stage_s,
                         .write_s = times.write_s,
                         .commit_s = times.commit_s};
    std::memcpy(stats, &all, std::min<std::size_t>(stats->size, sizeof all));
    return {};
  });
}

void ckpt_pending_free(ckpt_pending* pending) {
  delete pending;
}
