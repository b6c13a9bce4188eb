#include "api/run/noted_io.hpp"

#include <cerrno>
#include <type_traits>
#include <utility>

#include "engine/io/forwarding_io.hpp"

namespace ckpt {
namespace {

/// Whether the system has refused an operation before it did anything. After any other failure it may have been done:
/// over a network answers are lost.
bool is_refusal(const Error& error) {
  switch (error.code) {
    case Errc::target_exists:
    case Errc::not_found:
    case Errc::linked:
    case Errc::interrupted:
      return true;
    default:
      return error.system_code == EACCES || error.system_code == EPERM || error.system_code == EROFS;
  }
}

class NotedIo final : public ForwardingIo {
 public:
  NotedIo(std::unique_ptr<Io> inner, Changes& changes) : ForwardingIo(std::move(inner)), changes_(changes) {}

  Result<std::unique_ptr<Io>> new_instance() const override {
    CKPT_TRY(auto own, inner().new_instance());
    return make_noted_io(std::move(own), changes_);
  }
  Result<> make_dir(const std::string& path) override {
    return noted(path, [&] { return ForwardingIo::make_dir(path); });
  }
  Result<> link(const std::string& from, const std::string& to) override {
    return noted(to, [&] { return ForwardingIo::link(from, to); });
  }
  Result<> rename(const std::string& from, const std::string& to, RenameMode mode) override {
    return noted(to, [&] { return ForwardingIo::rename(from, to, mode); });
  }
  Result<> unlink(const std::string& path) override {
    return noted(path, [&] { return ForwardingIo::unlink(path); });
  }
  Result<> remove_dir(const std::string& path) override {
    return noted(path, [&] { return ForwardingIo::remove_dir(path); });
  }
  Result<FileHandle> open(const std::string& path, OpenOptions options) override {
    if (options.mode == OpenOptions::Mode::read) return ForwardingIo::open(path, options);
    return noted(path, [&] { return ForwardingIo::open(path, options); });
  }

 private:
  template <class Change>
  std::invoke_result_t<Change> noted(const std::string& path, const Change& change) {
    if (!changes_.begin()) return fail(Errc::interrupted, path + ": change: stopped");
    auto done = change();
    changes_.end(done || !is_refusal(done.error()));
    return done;
  }

  Changes& changes_;
};

}  // namespace

bool Changes::begin() {
  int state = state_.load();
  while (state >= 0) {
    if (state_.compare_exchange_weak(state, state + 1)) return true;
  }
  return state == kChanged;
}

void Changes::end(bool changed) {
  if (changed) {
    state_.store(kChanged);  // changes are not refused during this attempt
    return;
  }
  int state = state_.load();
  while (state > 0) {
    if (state_.compare_exchange_weak(state, state - 1)) return;
  }
}

bool Changes::refuse() {
  int none = 0;
  return state_.compare_exchange_strong(none, kRefused);
}

std::unique_ptr<Io> make_noted_io(std::unique_ptr<Io> inner, Changes& changes) {
  return std::make_unique<NotedIo>(std::move(inner), changes);
}

}  // namespace ckpt
