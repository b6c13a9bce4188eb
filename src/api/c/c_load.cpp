#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "api/c/c_handles.hpp"
#include "api/catalog/newest_checkpoint.hpp"
#include "engine/run/run.hpp"

namespace ckpt::c {
namespace {

constexpr std::size_t kReadBuffers = 8;

Result<std::vector<NamedRead>> reads_of(const ckpt_read* reads, uint64_t count) {
  if (count != 0) CKPT_CHECK(need(reads, "the reads"));
  std::vector<NamedRead> out;
  const auto* at = reinterpret_cast<const std::byte*>(reads);
  for (uint64_t i = 0; i < count; ++i) {
    const auto* given = reinterpret_cast<const ckpt_read*>(at);
    CKPT_TRY(const ckpt_read read, read_sized(given, offsetof(ckpt_read, bytes) + sizeof(uint64_t), "a read"));
    at += reads->size;  // of each of them: the caller's sizeof
    CKPT_CHECK(need(read.name, "a read's name"));
    if (read.bytes != 0) CKPT_CHECK(need(read.out, "the output buffer of a read"));
    NamedRead& wanted =
        out.emplace_back(NamedRead{.name = read.name, .out = static_cast<std::byte*>(read.out), .bytes = read.bytes});
    if ((read.offset == nullptr) != (read.extent == nullptr)) {
      return fail(Errc::usage, std::string(read.name) + ": a box has an offset and an extent");
    }
    if (read.offset != nullptr) {
      wanted.box = Box{Shape(read.offset, read.offset + read.ndim), Shape(read.extent, read.extent + read.ndim)};
    }
  }
  return out;
}

Result<> check_report(const ckpt_load_report* report) {
  return check_sized(report, offsetof(ckpt_load_report, skipped) + sizeof(uint64_t), "the report");
}

void fill(const Checkpoint::Report& from, std::uint64_t step, std::uint64_t skipped, ckpt_load_report* report) {
  if (report == nullptr) return;
  const ckpt_load_report all{.size = report->size,
                             .step = step,
                             .needed_bytes = from.load.needed_bytes,
                             .read_bytes = from.load.read_bytes,
                             .verified_leaves = from.load.verified_leaves,
                             .unverified_bytes = from.load.unverified_bytes,
                             .missing = from.missing.size(),
                             .skipped = skipped,
                             .received_bytes = from.load.received_bytes};
  std::memcpy(report, &all, std::min<std::size_t>(report->size, sizeof all));
}

Result<> give_memory(ckpt_checkpoint& handle) {
  CKPT_TRY(handle.pool, BufferPool::open({.buffer_bytes = kRunBufferBytes, .buffer_count = kReadBuffers}));
  return {};
}

Result<> load(ckpt_run* run, std::optional<std::uint64_t> step, const ckpt_read* reads, uint64_t read_count,
              int32_t mode, ckpt_load_report* report) {
  CKPT_CHECK(need(run, "the run"));
  CKPT_CHECK(run->owner.check());
  auto wanted = reads_of(reads, read_count);
  const Result<> mine = wanted ? check_report(report) : fail(wanted.error());
  const auto asked = wanted ? std::move(*wanted) : std::vector<NamedRead>();
  CKPT_TRY(const Run::Loaded loaded, run->opened->run->load(asked, mode == CKPT_PARTIAL, mine, step));
  fill(loaded.report, loaded.step, loaded.skipped.size(), report);
  return {};
}

Result<> open_usable(ckpt_run* run, std::optional<std::uint64_t> step, ckpt_checkpoint** checkpoint) {
  CKPT_CHECK(need(run, "the run"));
  CKPT_CHECK(run->owner.check());
  Run& opened = *run->opened->run;
  auto made = std::make_unique<ckpt_checkpoint>();
  const Result<> mine = [&]() -> Result<> {
    CKPT_CHECK(need(checkpoint, "the output pointer for the checkpoint"));
    CKPT_CHECK(give_memory(*made));
    CKPT_TRY(made->io, opened.io().new_instance());
    return {};
  }();
  made->model = opened.model();
  made->options = opened.read_options(false);
  made->options.model = &made->model;
  CKPT_TRY(made->checkpoint, opened.usable(step, mine));
  *checkpoint = made.release();
  return {};
}

}  // namespace
}  // namespace ckpt::c

using ckpt::Result;
using ckpt::c::check_report;
using ckpt::c::fill;
using ckpt::c::give_memory;
using ckpt::c::guarded;
using ckpt::c::load;
using ckpt::c::need;
using ckpt::c::open_usable;
using ckpt::c::read_sized;
using ckpt::c::reads_of;

int ckpt_load(ckpt_run* run, const ckpt_read* reads, uint64_t read_count, int32_t mode, ckpt_load_report* report) {
  return guarded([&] { return load(run, std::nullopt, reads, read_count, mode, report); });
}

int ckpt_load_step(ckpt_run* run, uint64_t step, const ckpt_read* reads, uint64_t read_count, int32_t mode,
                   ckpt_load_report* report) {
  return guarded([&] { return load(run, step, reads, read_count, mode, report); });
}

int ckpt_run_steps(ckpt_run* run, uint64_t* steps, uint64_t* count) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(run, "the run"));
    CKPT_CHECK(run->owner.check());
    CKPT_TRY(const std::vector<uint64_t> all, run->opened->run->steps());
    CKPT_CHECK(need(count, "the output pointer for the number of steps"));
    const uint64_t room = steps == nullptr ? 0 : *count;
    std::copy_n(all.begin(), std::min<uint64_t>(room, all.size()), steps);
    *count = all.size();
    return {};
  });
}

int ckpt_latest_usable(ckpt_run* run, ckpt_checkpoint** checkpoint) {
  return guarded([&] { return open_usable(run, std::nullopt, checkpoint); });
}

int ckpt_step_usable(ckpt_run* run, uint64_t step, ckpt_checkpoint** checkpoint) {
  return guarded([&] { return open_usable(run, step, checkpoint); });
}

int ckpt_loaded(ckpt_run* run, const ckpt_checkpoint* checkpoint) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(run, "the run"));
    CKPT_CHECK(run->owner.check());
    return run->opened->run->loaded(checkpoint == nullptr ? nullptr : checkpoint->checkpoint.get());
  });
}

int ckpt_checkpoint_open(const char* path, const ckpt_options* options, ckpt_checkpoint** checkpoint) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(path, "the path"));
    CKPT_CHECK(need(checkpoint, "the output pointer for the checkpoint"));
    ckpt_options given{};
    if (options != nullptr) {
      CKPT_TRY(given, read_sized(options, offsetof(ckpt_options, log_user) + sizeof(void*), "the options"));
    }
    auto made = std::make_unique<ckpt_checkpoint>();
    CKPT_CHECK(give_memory(*made));
    made->options.whole_leaves = given.verify_all != 0;
    CKPT_TRY(made->io, ckpt::open_io(ckpt::IoKind::automatic));
    const auto now = std::chrono::floor<ckpt::catalog::Duration>(std::chrono::system_clock::now());
    CKPT_TRY(const ckpt::FoundSource found, ckpt::newest_at(*made->io, path, now));
    CKPT_TRY(made->checkpoint, ckpt::Checkpoint::open(*made->io, found.path, true));
    *checkpoint = made.release();
    return {};
  });
}

void ckpt_checkpoint_free(ckpt_checkpoint* checkpoint) {
  if (checkpoint != nullptr && checkpoint->owner.is_here()) delete checkpoint;
}

uint64_t ckpt_checkpoint_step(const ckpt_checkpoint* checkpoint) {
  return checkpoint == nullptr ? 0 : checkpoint->checkpoint->step();
}

const char* ckpt_checkpoint_path(const ckpt_checkpoint* checkpoint) {
  return checkpoint == nullptr ? "" : checkpoint->checkpoint->path().c_str();
}

int ckpt_checkpoint_tensor(const ckpt_checkpoint* checkpoint, const char* name, uint64_t* shape, uint32_t* ndim,
                           const char** dtype) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(checkpoint, "the checkpoint"));
    CKPT_CHECK(checkpoint->owner.check());
    CKPT_CHECK(need(name, "the name"));
    CKPT_CHECK(need(ndim, "the output pointer for the number of dimensions"));
    const ckpt::Tensor* tensor = checkpoint->checkpoint->find(name);
    if (tensor == nullptr) {
      return ckpt::fail(ckpt::Errc::not_found, std::string(name) + ": the checkpoint has no such tensor");
    }
    const std::size_t room = shape == nullptr ? 0 : *ndim;
    std::copy_n(tensor->shape.begin(), std::min(room, tensor->shape.size()), shape);
    *ndim = static_cast<uint32_t>(tensor->shape.size());
    if (dtype != nullptr) *dtype = dtype_name(tensor->dtype).data();  // a literal: ends with a zero
    return {};
  });
}

int ckpt_read_plan(ckpt_checkpoint* checkpoint, const ckpt_read* reads, uint64_t read_count, ckpt_load_report* report) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(checkpoint, "the checkpoint"));
    CKPT_CHECK(checkpoint->owner.check());
    CKPT_TRY(const auto wanted, reads_of(reads, read_count));
    CKPT_CHECK(check_report(report));
    CKPT_TRY(const auto done,
             checkpoint->checkpoint->read(wanted, *checkpoint->io, *checkpoint->pool, checkpoint->options));
    fill(done, checkpoint->checkpoint->step(), 0, report);
    return {};
  });
}

int ckpt_read_into(ckpt_checkpoint* checkpoint, const char* name, const uint64_t* offset, const uint64_t* extent,
                   uint32_t ndim, void* out, uint64_t bytes) {
  const ckpt_read read{.size = sizeof(ckpt_read),
                       .name = name,
                       .offset = offset,
                       .extent = extent,
                       .ndim = ndim,
                       .out = out,
                       .bytes = bytes};
  return ckpt_read_plan(checkpoint, &read, 1, nullptr);
}
