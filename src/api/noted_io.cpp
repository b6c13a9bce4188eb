#include "api/noted_io.hpp"

#include <utility>

#include "engine/forwarding_io.hpp"

namespace ckpt {
namespace {

class NotedIo final : public ForwardingIo {
 public:
  NotedIo(std::unique_ptr<Io> inner, std::atomic<bool>& changed) : ForwardingIo(std::move(inner)), changed_(changed) {}

  Result<std::unique_ptr<Io>> fresh() const override {
    CKPT_TRY(auto own, inner().fresh());
    return make_noted_io(std::move(own), changed_);
  }
  Result<> make_dir(const std::string& path) override {
    changed_.store(true);
    return ForwardingIo::make_dir(path);
  }
  Result<> link(const std::string& from, const std::string& to) override {
    changed_.store(true);
    return ForwardingIo::link(from, to);
  }
  Result<> rename(const std::string& from, const std::string& to, RenameMode mode) override {
    changed_.store(true);
    return ForwardingIo::rename(from, to, mode);
  }
  Result<> unlink(const std::string& path) override {
    changed_.store(true);
    return ForwardingIo::unlink(path);
  }
  Result<> remove_dir(const std::string& path) override {
    changed_.store(true);
    return ForwardingIo::remove_dir(path);
  }
  Result<FileHandle> open(const std::string& path, OpenOptions options) override {
    if (options.mode != OpenOptions::Mode::read) changed_.store(true);
    return ForwardingIo::open(path, options);
  }

 private:
  std::atomic<bool>& changed_;
};

}  // namespace

std::unique_ptr<Io> make_noted_io(std::unique_ptr<Io> inner, std::atomic<bool>& changed) {
  return std::make_unique<NotedIo>(std::move(inner), changed);
}

}  // namespace ckpt
