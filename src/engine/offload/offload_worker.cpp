#include "engine/offload/offload_worker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "format/checked.hpp"

namespace ckpt::offload {
namespace {

constexpr std::size_t kMaxOpenFiles = 256;
constexpr std::string_view kSuffix = ".ckpt-swap";
constexpr std::size_t kSerialDigits = 8;  // at least

}  // namespace

// --- both threads ------------------------------------------------------------------------------------------------

void Shared::begin_read(Tensor& tensor, std::size_t part, BufferPool::Buffer buffer, bool is_urgent) {
  tensor.parts[part].buffer = std::move(buffer);
  tensor.parts[part].state = Part::State::reading;
  ++tensor.under_way;
  ++pending;
  (is_urgent ? urgent : queue).push_back({.tensor = &tensor, .part = part, .write = false});
  work.notify_one();
}

void Shared::begin_write(Tensor& tensor, std::size_t part) {
  tensor.parts[part].state = Part::State::dirty;
  ++tensor.under_way;
  ++pending;
  queue.push_back({.tensor = &tensor, .part = part, .write = true});
  work.notify_one();
}

void Shared::begin_wanted() {
  while (!wanted.empty() && !demand && !broken) {
    Wanted& first = wanted.front();
    for (; first.next < first.tensor->parts.size(); ++first.next) {
      Part& part = first.tensor->parts[first.next];
      if (part.state != Part::State::absent) continue;
      auto buffer = memory.take(false);
      if (!buffer) return;
      part.ahead = true;
      memory.use(part);
      begin_read(*first.tensor, first.next, std::move(*buffer), false);
    }
    wanted.pop_front();
  }
}

std::size_t Shared::retry(Tensor& tensor) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < tensor.parts.size(); ++i) {
    if (tensor.parts[i].state != Part::State::unwritten) continue;
    begin_write(tensor, i);
    ++count;
  }
  return count;
}

// --- the store's thread --------------------------------------------------------------------------------------------

Result<> Worker::run() {
  options_.queue_depth = std::min(options_.queue_depth, io_.queue_depth());
  blocks_.resize(options_.queue_depth);
  while (wait_for_work()) {
    remove_files(&Shared::removed);
    submit_blocks();
    if (in_flight_ > 0) CKPT_CHECK(reap());
  }
  current_ = nullptr;
  while (in_flight_ > 0) CKPT_CHECK(reap());
  remove_files(&Shared::removed);
  remove_files(&Shared::rest);
  return {};
}

bool Worker::wait_for_work() {
  std::unique_lock held(shared_.mutex);
  for (;;) {
    if (shared_.stopping) return false;
    shared_.begin_wanted();
    const bool idle = in_flight_ == 0 && current_ == nullptr && shared_.urgent.empty() && shared_.queue.empty();
    if (!idle || !shared_.removed.empty()) return true;
    shared_.work.wait(held);
  }
}

void Worker::remove_files(std::vector<std::unique_ptr<Tensor>> Shared::*tensors) {
  std::vector<std::unique_ptr<Tensor>> removed;
  {
    const std::lock_guard held(shared_.mutex);
    removed.swap(shared_.*tensors);
  }
  for (const auto& tensor : removed) {
    SwapFile& file = tensor->file;
    if (file.handle.value >= 0) {
      static_cast<void>(io_.close(file.handle));  // the unwritable value is no longer wanted
      std::erase(open_, tensor.get());
    }
    if (!file.created) continue;
    if (auto gone = io_.unlink(file.path); !gone && gone.error().code != Errc::not_found) {
      const std::lock_guard held(shared_.mutex);
      if (!shared_.unreported) shared_.unreported = with_tensor(std::move(gone).error(), tensor->name);
    }
  }
}

void Worker::submit_blocks() {
  while (in_flight_ < options_.queue_depth) {
    if (current_ == nullptr) current_ = begin_next();
    if (current_ == nullptr) return;
    submit_block(*current_);
  }
}

Worker::Active* Worker::begin_next() {
  for (;;) {
    Active& active = active_.emplace_back();
    {
      const std::lock_guard held(shared_.mutex);
      auto& queue = shared_.urgent.empty() ? shared_.queue : shared_.urgent;
      if (queue.empty()) {
        active_.pop_back();
        return nullptr;
      }
      active.task = queue.front();
      queue.pop_front();
      const Tensor& tensor = *active.task.tensor;
      active.data = tensor.parts[active.task.part].buffer.data();
      active.offset = active.task.part * shared_.memory.buffer_bytes();
      active.file_bytes = round_up(tensor.bytes, kAlignment);
      active.bytes = static_cast<std::size_t>(
          std::min<std::uint64_t>(shared_.memory.buffer_bytes(), active.file_bytes - active.offset));
    }
    auto ready = ready_file(active);
    if (ready) return &active;
    active.error = std::move(ready).error();
    finish(active);
  }
}

/// Submits the next block; when it was the last one or could not be submitted the task takes no further ones.
void Worker::submit_block(Active& active) {
  const auto slot = std::find_if(blocks_.begin(), blocks_.end(), [](const Block& b) { return b.active == nullptr; });
  const std::size_t bytes = std::min(options_.block_bytes, active.bytes - active.submitted);
  SwapFile& file = active.task.tensor->file;
  auto submitted = io_.submit({.op = active.task.write ? Request::Op::write : Request::Op::read,
                               .file = file.handle,
                               .offset = active.offset + active.submitted,
                               .data = active.data + active.submitted,
                               .bytes = bytes,
                               .tag = static_cast<std::uint64_t>(slot - blocks_.begin())});
  if (!submitted) {
    current_ = nullptr;
    if (!active.error) active.error = std::move(submitted).error();
    if (active.in_flight == 0) finish(active);
    return;
  }
  *slot = {.active = &active, .bytes = bytes};
  active.submitted += bytes;
  ++active.in_flight;
  ++file.in_flight;
  ++in_flight_;
  if (active.submitted == active.bytes) current_ = nullptr;
}

/// Opens the tensor's file, and for a write reserves all its space, so that lack of space is found before writing.
Result<> Worker::ready_file(const Active& active) {
  Tensor& tensor = *active.task.tensor;
  SwapFile& file = tensor.file;
  file.last_use = ++clock_;
  if (file.handle.value < 0) CKPT_CHECK(open_file(tensor));
  // Nothing of this file is in flight when it must grow: a put waits for the transfers of the value before.
  if (active.task.write && file.allocated_bytes < active.file_bytes) {
    CKPT_CHECK(io_.allocate(file.handle, active.file_bytes));
    file.allocated_bytes = active.file_bytes;
  }
  return {};
}

Result<> Worker::open_file(Tensor& tensor) {
  if (open_.size() >= kMaxOpenFiles) close_oldest();
  SwapFile& file = tensor.file;
  const auto mode = file.created ? OpenOptions::Mode::write_existing : OpenOptions::Mode::write_new;
  auto opened = io_.open(file.path, {.mode = mode, .direct = true});
  if (!opened && !file.created && opened.error().code == Errc::target_exists) {
    // No other has this name: an earlier try made the file, and failed after that.
    opened = io_.open(file.path, {.mode = OpenOptions::Mode::write_existing, .direct = true});
  }
  if (!opened) return fail(std::move(opened).error());
  file.handle = *opened;
  file.created = true;
  open_.push_back(&tensor);
  if (io_.is_direct(file.handle)) return {};
  const std::lock_guard held(shared_.mutex);
  shared_.direct = false;
  return {};
}

/// A failed close may have lost bytes that counted as written: parts in memory stay there.
void Worker::close_oldest() {
  Tensor* oldest = nullptr;
  for (Tensor* candidate : open_) {
    if (candidate->file.in_flight > 0) continue;
    if (oldest == nullptr || candidate->file.last_use < oldest->file.last_use) oldest = candidate;
  }
  if (oldest == nullptr) return;
  std::erase(open_, oldest);
  auto closed = io_.close(std::exchange(oldest->file.handle, {}));
  if (closed) return;
  const std::lock_guard held(shared_.mutex);
  ++shared_.write_failures;
  oldest->failure = with_tensor(std::move(closed).error(), oldest->name);
  if (!shared_.unreported) shared_.unreported = oldest->failure;
  for (std::size_t i = 0; i < oldest->parts.size(); ++i) {
    Part& part = oldest->parts[i];
    if (part.state == Part::State::absent || part.state == Part::State::reading) oldest->lost = oldest->failure;
    if (part.state != Part::State::clean) continue;
    part.state = Part::State::unwritten;
    shared_.memory.update_lists(*oldest, i);
  }
}

Result<> Worker::reap() {
  std::array<Completion, 16> done;
  CKPT_TRY(const std::size_t count, io_.reap(done, true));
  for (std::size_t i = 0; i < count; ++i) {
    Block& block = blocks_[static_cast<std::size_t>(done[i].tag)];
    Active& active = *std::exchange(block.active, nullptr);
    const SwapFile& file = active.task.tensor->file;
    --in_flight_;
    --active.in_flight;
    --active.task.tensor->file.in_flight;
    if (!done[i].bytes) {
      if (!active.error) active.error = std::move(done[i].bytes).error();
    } else if (*done[i].bytes != block.bytes && !active.error) {
      active.error = Error{.code = Errc::corrupt,
                           .message = file.path + ": the file is shorter than what was written",
                           .file = file.path,
                           .offset = active.offset};
    }
    if (active.in_flight == 0 && current_ != &active) finish(active);
  }
  return {};
}

void Worker::finish(Active& active) {
  {
    const std::lock_guard held(shared_.mutex);
    if (!active.error) (active.task.write ? shared_.written_bytes : shared_.read_bytes) += active.bytes;
    end_task(active.task, std::move(active.error));
    shared_.begin_wanted();
  }
  shared_.changed.notify_all();
  active_.remove_if([&](const Active& a) { return &a == &active; });
}

void Worker::end_task(const Task& task, std::optional<Error> error) {
  Tensor& tensor = *task.tensor;
  Part& part = tensor.parts[task.part];
  --tensor.under_way;
  --shared_.pending;
  if (!error && !task.write) error = tensor.lost;
  if (error) {
    tensor.failure = with_tensor(std::move(*error), tensor.name);
    if (!task.write) {
      shared_.memory.drop(part);
      return;
    }
    part.state = Part::State::unwritten;
    ++shared_.write_failures;
    if (!shared_.unreported) shared_.unreported = tensor.failure;
    return;
  }
  part.state = Part::State::clean;
  shared_.memory.update_lists(tensor, task.part);
}

void Worker::abandon(const Error& error) {
  const std::lock_guard held(shared_.mutex);
  shared_.broken = error;
  for (const Active& active : active_) {
    // The queue has failed permanently: its requests may still be executed at any time.
    if (active.in_flight != 0) active.task.tensor->parts[active.task.part].buffer.leave_to_kernel();
    end_task(active.task, error);
  }
  for (auto* queue : {&shared_.urgent, &shared_.queue}) {
    for (const Task& task : *queue) end_task(task, error);
    queue->clear();
  }
  shared_.wanted.clear();
  shared_.changed.notify_all();
}

// --- names ---------------------------------------------------------------------------------------------------------

Error no_such_tensor(const char* call, const std::string& name) {
  return {.code = Errc::not_found, .message = fmt::format("offload store: {}: no such tensor", call), .tensor = name};
}

std::string swap_file_name(std::uint64_t serial, std::string_view name) {
  constexpr std::size_t kMostShown = 120;  // of 255 that a file name may have
  std::string out = fmt::format("{:0{}x}-", serial, kSerialDigits);
  for (const char c : name) {
    if (out.size() >= kMostShown) break;
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  out += kSuffix;
  return out;
}

bool is_swap_file_name(std::string_view name) {
  const std::size_t digits = std::min(name.find_first_not_of("0123456789abcdef"), name.size());
  return digits >= kSerialDigits && name.substr(digits).starts_with('-') && name.ends_with(kSuffix);
}

}  // namespace ckpt::offload
