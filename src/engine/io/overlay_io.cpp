#include "engine/io/overlay_io.hpp"

#include <algorithm>
#include <utility>

#include "engine/io/forwarding_io.hpp"

namespace ckpt {
namespace {

class StandInIo final : public ForwardingIo {
 public:
  StandInIo(Io& inner, StandIn overlay) : ForwardingIo(inner), stand_in_(std::move(overlay)) {}
  StandInIo(std::unique_ptr<Io> inner, StandIn overlay)
      : ForwardingIo(std::move(inner)), stand_in_(std::move(overlay)) {}

  Result<std::unique_ptr<Io>> new_instance() const override {
    CKPT_TRY(auto own, inner().new_instance());
    return std::unique_ptr<Io>(std::make_unique<StandInIo>(std::move(own), stand_in_));
  }
  Result<FileInfo> stat(const std::string& path) override { return ForwardingIo::stat(seen(path)); }
  Result<std::vector<DirEntry>> list(const std::string& path) override {
    CKPT_TRY(auto entries, ForwardingIo::list(path));
    if (join_path(path, "") != parent_path(stand_in_.path)) return entries;
    const DirEntry entry{.name = base_name(stand_in_.path)};
    const auto at = std::ranges::lower_bound(entries, entry.name, {}, &DirEntry::name);
    if (at == entries.end() || at->name != entry.name) entries.insert(at, entry);
    return entries;
  }
  Result<FileHandle> open(const std::string& path, OpenOptions options) override {
    return ForwardingIo::open(options.mode == OpenOptions::Mode::read ? seen(path) : path, options);
  }

 private:
  const std::string& seen(const std::string& path) const { return path == stand_in_.path ? stand_in_.bytes_of : path; }

  StandIn stand_in_;
};

}  // namespace

std::unique_ptr<Io> make_overlay_io(Io& inner, StandIn overlay) {
  return std::make_unique<StandInIo>(inner, std::move(overlay));
}

}  // namespace ckpt
