#include "support/fault_io.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/io/hard_links.hpp"
#include "engine/io/hold_directory.hpp"
#include "format/checked.hpp"

namespace ckpt {
namespace {

using Outcome = FaultPlan::Outcome;

class FaultIo final : public Io, public HardLinks, public HoldsDirectories {
 public:
  FaultIo(std::unique_ptr<Io> inner, std::shared_ptr<FaultPlan> plan)
      : inner_(std::move(inner)), plan_(std::move(plan)), slots_(inner_->queue_depth()) {}
  ~FaultIo() override { leave_to_kernel(); }
  FaultIo(const FaultIo&) = delete;
  FaultIo& operator=(const FaultIo&) = delete;

  std::string_view name() const override { return inner_->name(); }
  Result<std::unique_ptr<Io>> new_instance() const override {
    CKPT_TRY(auto inner, inner_->new_instance());
    return make_fault_io(std::move(inner), plan_);
  }

  Result<std::unique_ptr<HeldDirectory>> hold_directory(const std::string& path, const HoldOptions& options) override {
    return ckpt::hold_directory(*inner_, path, options);
  }
  Result<FileInfo> stat(const std::string& path) override {
    return decide("stat", path, [&] { return inner_->stat(path); });
  }
  Result<std::vector<DirEntry>> list(const std::string& path) override {
    return decide("list", path, [&] { return inner_->list(path); });
  }
  Result<> make_dir(const std::string& path) override {
    return decide("mkdir", path, [&] { return inner_->make_dir(path); });
  }
  Result<> sync_dir(const std::string& path) override {
    return decide("fsync directory", path, [&] { return inner_->sync_dir(path); });
  }
  Result<> rename(const std::string& from, const std::string& to, RenameMode mode) override {
    return decide("rename", to, [&] { return inner_->rename(from, to, mode); });
  }
  Result<> unlink(const std::string& path) override {
    return decide("unlink", path, [&] { return inner_->unlink(path); });
  }
  Result<> link(const std::string& from, const std::string& to) override {
    return decide("link", to, [&] { return link_file(*inner_, from, to); });
  }
  Result<> remove_dir(const std::string& path) override {
    return decide("rmdir", path, [&] { return inner_->remove_dir(path); });
  }
  Result<std::unique_ptr<HeldLock>> lock(const std::string& path, LockMode mode) override {
    return decide("lock", path, [&] { return inner_->lock(path, mode); });
  }
  LockScope lock_scope(const std::string& path) override { return inner_->lock_scope(path); }
  Result<std::uint64_t> free_bytes(const std::string& path) override {
    return decide("statvfs", path, [&] { return inner_->free_bytes(path); });
  }

  bool recycles(const std::string& directory) override {
    return plan_->next("statfs", directory).outcome == Outcome::pass && inner_->recycles(directory);
  }

  Result<FileHandle> open(const std::string& path, OpenOptions options) override {
    std::optional<FileHandle> opened;
    auto result = decide("open", path, [&] {
      auto file = inner_->open(path, options);
      if (file) opened = *file;
      return file;
    });
    if (result) {
      paths_[result->value] = path;
    } else if (opened) {
      static_cast<void>(inner_->close(*opened));  // the caller never sees it
    }
    return result;
  }
  bool is_direct(FileHandle file) const override { return inner_->is_direct(file); }
  Result<FileInfo> info(FileHandle file) override {
    return decide("fstat", path_of(file), [&] { return inner_->info(file); });
  }
  Result<> allocate(FileHandle file, std::uint64_t bytes) override {
    return decide("allocate", path_of(file), [&] { return inner_->allocate(file, bytes); });
  }
  Result<> truncate(FileHandle file, std::uint64_t bytes) override {
    return decide("truncate", path_of(file), [&] { return inner_->truncate(file, bytes); });
  }
  Result<> sync(FileHandle file) override {
    return decide("fdatasync", path_of(file), [&] { return inner_->sync(file); });
  }
  Result<> close(FileHandle file) override {
    FaultPlan::Verdict verdict = plan_->next("close", path_of(file));
    auto closed = inner_->close(file);
    return verdict.outcome == Outcome::pass ? closed : fail(std::move(verdict.error));
  }
  Result<> read_at(FileHandle file, std::uint64_t offset, std::span<std::byte> data) override {
    const auto torn = [&](Error error) -> Result<> {
      const std::size_t half = data.size() / 2;
      CKPT_CHECK(inner_->read_at(file, offset, data.first(half)));
      error.code = Errc::corrupt;
      error.offset = offset + half;
      return fail(std::move(error));
    };
    return decide(
        "read", path_of(file), [&] { return inner_->read_at(file, offset, data); }, torn, offset);
  }
  Result<> write_at(FileHandle file, std::uint64_t offset, std::span<const std::byte> data) override {
    const auto torn = [&](Error error) -> Result<> {
      CKPT_CHECK(inner_->write_at(file, offset, data.first(data.size() / 2)));
      return fail(std::move(error));
    };
    return decide(
        "write", path_of(file), [&] { return inner_->write_at(file, offset, data); }, torn, offset);
  }

  std::size_t queue_depth() const override { return inner_->queue_depth(); }

  Result<> submit(const Request& request) override {
    const auto slot = std::find_if(slots_.begin(), slots_.end(), [](const Slot& each) { return !each.used; });
    if (slot == slots_.end()) return fail(Errc::internal, path_of(request.file) + ": submit: the queue is full");
    const bool is_read = request.op == Request::Op::read;
    FaultPlan::Verdict verdict = plan_->next(is_read ? "read" : "write", path_of(request.file), request.offset);
    Request forwarded = request;
    forwarded.tag = static_cast<std::uint64_t>(slot - slots_.begin());
    if (verdict.outcome == Outcome::tear) {
      const std::size_t unit = inner_->is_direct(request.file) ? kAlignment : 1;
      forwarded.bytes = static_cast<std::size_t>(round_down(request.bytes / 2, unit));
    }
    const bool started = verdict.outcome != Outcome::fail && forwarded.bytes > 0;
    const bool held = started && plan_->requests_are_held();
    if (started && !held) CKPT_CHECK(inner_->submit(forwarded));
    *slot = {.used = true, .started = started, .is_read = is_read, .tag = request.tag, .verdict = std::move(verdict)};
    if (held) slot->held = forwarded;
    if (held && !is_read) slot->before = hash128({forwarded.data, forwarded.bytes});
    slot->verdict.error.offset = request.offset;
    return {};
  }

  Result<std::size_t> reap(std::span<Completion> out, bool wait) override {
    if (plan_->queues_are_broken()) {
      leave_to_kernel();
      return fail(Errc::io, "queue: reap: injected failure");
    }
    for (Slot& slot : slots_) {
      if (!slot.used || !slot.held) continue;
      CKPT_CHECK(inner_->submit(*slot.held));
      slot.held.reset();
    }
    std::size_t count = 0;
    for (Slot& slot : slots_) {
      if (count == out.size()) return count;
      if (slot.used && !slot.started) out[count++] = finish(slot, 0);
    }
    CKPT_TRY(const std::size_t reaped, inner_->reap(out.subspan(count), wait && count == 0));
    for (std::size_t i = count; i < count + reaped; ++i) {
      out[i] = finish(slots_[static_cast<std::size_t>(out[i].tag)], std::move(out[i].bytes));
    }
    return count + reaped;
  }
  const Host& host() const override { return std::as_const(*inner_).host(); }

 private:
  struct Slot {
    bool used = false;
    bool started = false;  // by the inner Io
    bool is_read = false;
    std::uint64_t tag = 0;
    FaultPlan::Verdict verdict{};
    std::optional<Request> held{};  // as it will be submitted
    Hash128 before{};               // of its bytes, of a write
  };

  void leave_to_kernel() {
    for (Slot& slot : slots_) {
      if (slot.used && slot.held) plan_->leave_to_kernel(*slot.held, slot.before);
      slot.held.reset();
    }
  }

  static Completion finish(Slot& slot, Result<std::size_t> bytes) {
    slot.used = false;
    const Outcome outcome = slot.verdict.outcome;
    const bool passes = outcome == Outcome::pass || (outcome == Outcome::tear && slot.is_read);
    if (!passes) bytes = fail(std::move(slot.verdict.error));
    return {.tag = slot.tag, .bytes = std::move(bytes)};
  }

  template <class Call>
  auto decide(const char* operation, const std::string& object, Call call) -> decltype(call()) {
    return decide(operation, object, call, [](Error error) { return fail(std::move(error)); });
  }
  template <class Call, class Torn>
  auto decide(const char* operation, const std::string& object, Call call, Torn torn, std::uint64_t offset = 0)
      -> decltype(call()) {
    FaultPlan::Verdict verdict = plan_->next(operation, object, offset);
    if (verdict.outcome == Outcome::pass) return call();
    if (verdict.outcome == Outcome::tear) return torn(std::move(verdict.error));
    if (verdict.outcome == Outcome::carry_out_and_fail) static_cast<void>(call());
    return fail(std::move(verdict.error));
  }

  std::string path_of(FileHandle file) const {
    const auto found = paths_.find(file.value);
    return found == paths_.end() ? "(no file)" : found->second;
  }

  std::unique_ptr<Io> inner_;
  std::shared_ptr<FaultPlan> plan_;
  std::vector<Slot> slots_;  // requests in flight; the index is the tag that the inner Io sees
  std::map<int, std::string> paths_;
};

}  // namespace

void FaultPlan::arm(std::uint64_t n, std::uint64_t count, Outcome effect, Errc code, std::function<void()> act) {
  const std::lock_guard held(mutex_);
  first_ = n;
  failures_ = count;
  effect_ = effect;
  code_ = code;
  act_ = std::move(act);
  first_failed_.clear();
}

void FaultPlan::fail_once(std::uint64_t n, Errc code, bool carried_out, std::uint64_t count) {
  arm(n, count, carried_out ? Outcome::carry_out_and_fail : Outcome::fail, code, {});
}

void FaultPlan::fail_from(std::uint64_t n, Errc code) {
  arm(n, UINT64_MAX, Outcome::fail, code, {});
}

void FaultPlan::tear_once(std::uint64_t n, Errc code) {
  arm(n, 1, Outcome::tear, code, {});
}

void FaultPlan::call_at(std::uint64_t n, std::function<void()> act) {
  arm(n, 1, Outcome::pass, Errc::internal, std::move(act));
}

void FaultPlan::count_only(std::set<std::string> operations) {
  const std::lock_guard held(mutex_);
  counted_ = std::move(operations);
}

void FaultPlan::clear() {
  arm(0, 0, Outcome::pass, Errc::internal, {});
  const std::lock_guard held(mutex_);
  operations_.clear();
}

void FaultPlan::keep_operations() {
  const std::lock_guard held(mutex_);
  operations_kept_ = true;
}

std::vector<FaultPlan::Operation> FaultPlan::operations() const {
  const std::lock_guard held(mutex_);
  return operations_;
}

void FaultPlan::slow_down(std::chrono::milliseconds time) {
  const std::lock_guard held(mutex_);
  slowed_ = time;
}

void FaultPlan::break_queues() {
  const std::lock_guard held(mutex_);
  queues_broken_ = true;
}

bool FaultPlan::queues_are_broken() const {
  const std::lock_guard held(mutex_);
  return queues_broken_;
}

void FaultPlan::hold_requests() {
  const std::lock_guard held(mutex_);
  requests_held_ = true;
}

bool FaultPlan::requests_are_held() const {
  const std::lock_guard held(mutex_);
  return requests_held_;
}

void FaultPlan::leave_to_kernel(const Request& request, const Hash128& before) {
  const std::lock_guard held(mutex_);
  late_.emplace_back(request, before);
}

FaultPlan::Late FaultPlan::finish_late() {
  const std::lock_guard held(mutex_);
  Late out;
  for (const auto& [request, before] : late_) {
    if (request.op == Request::Op::read) {
      std::fill_n(request.data, request.bytes, kLateByte);
      ++out.reads;
    } else {
      ++out.writes;
      out.changed += hash128({request.data, request.bytes}) == before ? 0U : 1U;
    }
  }
  late_.clear();
  return out;
}

std::uint64_t FaultPlan::operation_count() const {
  const std::lock_guard held(mutex_);
  return count_;
}

std::string FaultPlan::first_failed() const {
  const std::lock_guard held(mutex_);
  return first_failed_;
}

FaultPlan::Verdict FaultPlan::next(const char* operation, const std::string& object, std::uint64_t offset) {
  std::unique_lock held(mutex_);
  if (!counted_.empty() && counted_.count(operation) == 0) return {};
  if (operations_kept_) operations_.push_back({.name = operation, .object = object, .offset = offset});
  const std::uint64_t number = count_++;
  if (slowed_.count() != 0) std::this_thread::sleep_for(slowed_);
  const bool hit = number >= first_ && number - first_ < failures_;
  if (!hit) return {};
  if (first_failed_.empty()) first_failed_ = std::string(operation) + " " + object;
  const auto act = act_;
  const Verdict verdict{
      .outcome = effect_,
      .error = {.code = code_, .message = object + ": " + operation + ": injected failure", .file = object}};
  held.unlock();
  if (act) act();
  return verdict;
}

std::unique_ptr<Io> make_fault_io(std::unique_ptr<Io> inner, std::shared_ptr<FaultPlan> plan) {
  return std::make_unique<FaultIo>(std::move(inner), std::move(plan));
}

}  // namespace ckpt
