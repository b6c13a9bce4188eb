#include "engine/stand_in_io.hpp"

#include <algorithm>
#include <utility>

namespace ckpt {
namespace {

class StandInIo final : public Io {
 public:
  StandInIo(Io& inner, StandIn stand_in) : inner_(&inner), stand_in_(std::move(stand_in)) {}
  StandInIo(std::unique_ptr<Io> owned, StandIn stand_in)
      : owned_(std::move(owned)), inner_(owned_.get()), stand_in_(std::move(stand_in)) {}

  std::string_view name() const override { return inner_->name(); }
  Result<std::unique_ptr<Io>> fresh() const override {
    CKPT_TRY(auto inner, std::as_const(*inner_).fresh());
    return std::unique_ptr<Io>(std::make_unique<StandInIo>(std::move(inner), stand_in_));
  }

  Result<FileInfo> stat(const std::string& path) override { return inner_->stat(seen(path)); }
  Result<std::vector<DirEntry>> list(const std::string& path) override {
    CKPT_TRY(auto entries, inner_->list(path));
    if (join_path(path, "") != parent_path(stand_in_.path)) return entries;
    const DirEntry entry{.name = base_name(stand_in_.path)};
    const auto at = std::ranges::lower_bound(entries, entry.name, {}, &DirEntry::name);
    if (at == entries.end() || at->name != entry.name) entries.insert(at, entry);
    return entries;
  }
  Result<> make_dir(const std::string& path) override { return inner_->make_dir(path); }
  Result<> sync_dir(const std::string& path) override { return inner_->sync_dir(path); }
  Result<> rename(const std::string& from, const std::string& to, RenameMode mode) override {
    return inner_->rename(from, to, mode);
  }
  Result<> unlink(const std::string& path) override { return inner_->unlink(path); }
  Result<> remove_dir(const std::string& path) override { return inner_->remove_dir(path); }
  Result<std::unique_ptr<HeldLock>> lock(const std::string& path, LockMode mode) override {
    return inner_->lock(path, mode);
  }
  LockScope lock_scope(const std::string& path) override { return inner_->lock_scope(path); }
  Result<std::uint64_t> free_bytes(const std::string& path) override { return inner_->free_bytes(path); }
  bool recycles(const std::string& directory) override { return inner_->recycles(directory); }

  Result<FileHandle> open(const std::string& path, OpenOptions options) override {
    return inner_->open(options.mode == OpenOptions::Mode::read ? seen(path) : path, options);
  }
  bool is_direct(FileHandle file) const override { return std::as_const(*inner_).is_direct(file); }
  Result<FileInfo> info(FileHandle file) override { return inner_->info(file); }
  Result<> allocate(FileHandle file, std::uint64_t bytes) override { return inner_->allocate(file, bytes); }
  Result<> truncate(FileHandle file, std::uint64_t bytes) override { return inner_->truncate(file, bytes); }
  Result<> sync(FileHandle file) override { return inner_->sync(file); }
  Result<> close(FileHandle file) override { return inner_->close(file); }
  Result<> read_at(FileHandle file, std::uint64_t offset, std::span<std::byte> data) override {
    return inner_->read_at(file, offset, data);
  }
  Result<> write_at(FileHandle file, std::uint64_t offset, std::span<const std::byte> data) override {
    return inner_->write_at(file, offset, data);
  }

  std::size_t queue_depth() const override { return std::as_const(*inner_).queue_depth(); }
  Result<> submit(const Request& request) override { return inner_->submit(request); }
  Result<std::size_t> reap(std::span<Completion> out, bool wait) override { return inner_->reap(out, wait); }

  const Host& host() const override { return std::as_const(*inner_).host(); }
  void beat() override {
    Io::beat();
    inner_->beat();
  }

 private:
  const std::string& seen(const std::string& path) const { return path == stand_in_.path ? stand_in_.bytes_of : path; }

  std::unique_ptr<Io> owned_{};  // null where the caller owns it
  Io* inner_;
  StandIn stand_in_;
};

}  // namespace

std::unique_ptr<Io> make_stand_in_io(Io& inner, StandIn stand_in) {
  return std::make_unique<StandInIo>(inner, std::move(stand_in));
}

}  // namespace ckpt
