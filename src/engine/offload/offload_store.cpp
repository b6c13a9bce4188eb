#include "engine/offload/offload_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/io/exceptions_to_result.hpp"
#include "engine/offload/offload_impl.hpp"
#include "format/checked.hpp"

namespace ckpt {

using offload::Lock;
using offload::Part;
using offload::Task;
using State = Part::State;

namespace {

Result<> check_options(const OffloadStore::Options& options) {
  const auto wrong = [](const std::string& reason) { return fail(Errc::usage, "offload store: " + reason); };
  if (options.buffer_bytes == 0 || options.buffer_bytes % kAlignment != 0 || options.block_bytes == 0 ||
      options.block_bytes % kAlignment != 0) {
    return wrong(fmt::format("buffers of {} and blocks of {} bytes: must be multiples of {}", options.buffer_bytes,
                             options.block_bytes, kAlignment));
  }
  if (options.memory_bytes / options.buffer_bytes < 2) {
    return wrong(
        fmt::format("{} bytes of memory do not hold two buffers of {}", options.memory_bytes, options.buffer_bytes));
  }
  if (options.queue_depth == 0) return wrong("a queue depth of 0");
  return {};
}

/// Creates the directory, locks it and removes files of a store that was killed. The lock is null on file systems
/// without locks.
Result<std::unique_ptr<HeldLock>> take_directory(Io& io, const std::string& directory) {
  if (auto made = io.make_dir(directory); !made && made.error().code != Errc::target_exists) {
    return fail(std::move(made).error());
  }
  auto lock = io.lock(directory, LockMode::exclusive);
  if (!lock && lock.error().code != Errc::unsupported) {
    return fail(with_hint(std::move(lock).error(), "give every process a directory of its own"));
  }
  CKPT_TRY(const std::vector<DirEntry> entries, io.list(directory));
  for (const DirEntry& entry : entries) {
    if (entry.kind != FileInfo::Kind::file || !offload::is_swap_file_name(entry.name)) continue;
    CKPT_CHECK(io.unlink(join_path(directory, entry.name)));
  }
  return lock ? std::move(*lock) : nullptr;
}

}  // namespace

// --- opening and closing -------------------------------------------------------------------------------------------

Result<std::unique_ptr<OffloadStore>> OffloadStore::open(IoFactory make_io, const Options& options) {
  CKPT_CHECK(check_options(options));
  CKPT_TRY(auto pool, BufferPool::open({.buffer_bytes = options.buffer_bytes,
                                        .buffer_count = options.memory_bytes / options.buffer_bytes}));
  auto impl = std::make_unique<Impl>(options, std::move(pool));
  CKPT_CHECK(impl->start(std::move(make_io)));
  return std::unique_ptr<OffloadStore>(new OffloadStore(std::move(impl)));
}

OffloadStore::OffloadStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

OffloadStore::~OffloadStore() {
  offload::Shared& shared = impl_->shared;
  {
    const std::lock_guard held(shared.mutex);
    shared.stopping = true;
    shared.urgent.clear();
    shared.queue.clear();
    for (auto& [name, tensor] : impl_->tensors) shared.rest.push_back(std::move(tensor));
  }
  shared.work.notify_one();
  impl_->thread.join();
  shared.removed.clear();  // remaining ones if the thread had ended before; their buffers go before the pool
  shared.rest.clear();
}

Result<> OffloadStore::Impl::start(IoFactory make_io) {
  std::promise<Result<>> started;
  auto answer = started.get_future();
  thread =
      std::jthread([this, make = std::move(make_io), started = std::move(started)]() mutable { work(make, started); });
  return answer.get();
}

/// The store's thread: an Io belongs to the thread that made it.
void OffloadStore::Impl::work(const IoFactory& make_io, std::promise<Result<>>& started) {
  auto io = exceptions_to_result([&] { return make_io(); });
  if (!io) return started.set_value(fail(std::move(io).error()));
  auto lock = take_directory(**io, options.directory);
  if (!lock) return started.set_value(fail(std::move(lock).error()));
  io_name = (*io)->name();
  started.set_value({});

  offload::Worker worker(
      shared, **io,
      {.block_bytes = std::min(options.block_bytes, options.buffer_bytes), .queue_depth = options.queue_depth});
  auto outcome = exceptions_to_result([&] { return worker.run(); });
  if (outcome) return;
  io->reset();  // ends requests in flight, as far as that can be, before their buffers are given back
  worker.abandon(outcome.error());
}

offload::Tensor& OffloadStore::Impl::make(const std::string& name) {
  auto tensor = std::make_unique<offload::Tensor>();
  tensor->name = name;
  tensor->file.path = join_path(options.directory, offload::swap_file_name(next_serial++, name));
  return *(tensors[name] = std::move(tensor));
}

// --- buffers -------------------------------------------------------------------------------------------------------

/// A buffer for the caller, which waits until one is free. Fails only if all hold unwritable data.
Result<BufferPool::Buffer> OffloadStore::Impl::acquire(Lock& lock) {
  bool retried = false;
  for (;;) {
    if (shared.broken) return fail(*shared.broken);
    if (auto buffer = shared.memory.take(true)) return std::move(*buffer);
    if (shared.pending == 0) {
      if (retried || retry_all() == 0) break;
      retried = true;
    }
    shared.demand = true;
    shared.changed.wait(lock);
    shared.demand = false;
  }
  for (const auto& [name, tensor] : tensors) {
    const bool held = std::any_of(tensor->parts.begin(), tensor->parts.end(),
                                  [](const Part& part) { return part.state == State::unwritten; });
    if (!held || !tensor->failure) continue;
    Error error = *tensor->failure;
    return fail(with_hint(std::move(error), "memory is full of tensors that cannot be written; remove some"));
  }
  return fail(Errc::internal, "offload store: no buffer is free and none will be");
}

std::size_t OffloadStore::Impl::retry_all() {
  std::size_t count = 0;
  for (const auto& [name, tensor] : tensors) count += shared.retry(*tensor);
  return count;
}

/// Removes the tensor's tasks from the queues and waits for those in progress. Its parts are stable then; a removed
/// write leaves its part dirty, which is allowed only when the value is replaced or removed.
void OffloadStore::Impl::end_transfers(offload::Tensor& tensor, Lock& lock) {
  std::erase_if(shared.wanted, [&](const offload::Shared::Wanted& each) { return each.tensor == &tensor; });
  for (auto* queue : {&shared.urgent, &shared.queue}) {
    std::erase_if(*queue, [&](const Task& task) {
      if (task.tensor != &tensor) return false;
      if (!task.write) shared.memory.drop(tensor.parts[task.part]);
      --tensor.under_way;
      --shared.pending;
      return true;
    });
  }
  shared.changed.wait(lock, [&] { return tensor.under_way == 0; });
}

// --- the rest ------------------------------------------------------------------------------------------------------

Result<> OffloadStore::prefetch(const std::string& name) {
  Lock lock(impl_->shared.mutex);
  offload::Shared& shared = impl_->shared;
  offload::Tensor* tensor = impl_->find(name);
  if (tensor == nullptr) return fail(offload::no_such_tensor("prefetch", name));
  impl_->hold(*tensor, true);
  if (!tensor->lost) shared.wanted.push_back({.tensor = tensor});
  shared.begin_wanted();
  return {};
}

Result<> OffloadStore::remove(const std::string& name) {
  Lock lock(impl_->shared.mutex);
  if (impl_->find(name) == nullptr) return fail(offload::no_such_tensor("remove", name));
  impl_->forget(name, lock);
  return {};
}

void OffloadStore::Impl::forget(const std::string& name, Lock& lock) {
  const auto found = tensors.find(name);
  offload::Tensor& tensor = *found->second;
  end_transfers(tensor, lock);
  for (Part& part : tensor.parts) shared.memory.drop(part);
  if (shared.unreported && shared.unreported->tensor == name) shared.unreported.reset();
  shared.removed.push_back(std::move(found->second));
  tensors.erase(found);
  shared.begin_wanted();
  shared.work.notify_one();
}

Result<> OffloadStore::flush() {
  Lock lock(impl_->shared.mutex);
  offload::Shared& shared = impl_->shared;
  const auto settled = [&] { return shared.pending == 0; };
  shared.changed.wait(lock, settled);
  if (shared.broken) return fail(*shared.broken);
  if (impl_->retry_all() > 0) shared.changed.wait(lock, settled);
  if (shared.broken) return fail(*shared.broken);
  // Unreported failures of existing tensors are reported below, or have been resolved.
  auto unreported = std::exchange(shared.unreported, std::nullopt);
  if (unreported && impl_->find(unreported->tensor) == nullptr) return fail(std::move(*unreported));
  for (const auto& [name, tensor] : impl_->tensors) {
    if (tensor->lost) return fail(*tensor->lost);
    for (const Part& part : tensor->parts) {
      if (part.state == State::unwritten) return fail(tensor->failure.value_or(Error{}));
    }
  }
  return {};
}

std::optional<std::uint64_t> OffloadStore::size_of(const std::string& name) const {
  const offload::Tensor* tensor = impl_->find(name);
  return tensor == nullptr ? std::nullopt : std::optional(tensor->bytes);
}

OffloadStore::Statistics OffloadStore::statistics() const {
  const std::lock_guard held(impl_->shared.mutex);
  const offload::Shared& shared = impl_->shared;
  Statistics out = impl_->counts;
  out.read_bytes = shared.read_bytes;
  out.written_bytes = shared.written_bytes;
  out.write_failures = shared.write_failures;
  out.memory_bytes = shared.memory.buffers() * shared.memory.buffer_bytes();
  out.peak_memory_bytes = shared.memory.peak_buffers() * shared.memory.buffer_bytes();
  out.io_name = impl_->io_name;
  out.page_kind = shared.memory.page_kind();
  out.direct = shared.direct;
  return out;
}

}  // namespace ckpt
