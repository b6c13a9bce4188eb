#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "api/c/c_handles.hpp"
#include "api/run/dcp_save.hpp"
#include "ckpt/dcp.h"

/// A save that was begun.
struct ckpt_dcp {
  ckpt::c::Owner owner{};
  std::unique_ptr<ckpt::Io> io{};
  std::unique_ptr<ckpt::Publication> publication{};  // uses `io`; null once it was published
};

namespace ckpt::c {
namespace {

constexpr std::size_t kFirstItemBytes = offsetof(ckpt_dcp_item, length) + sizeof(uint64_t);

/// The items of a C caller: the stride between them is the first one's size.
class DcpItems {
 public:
  static Result<DcpItems> read(ckpt_dcp_item* given, uint64_t count) {
    DcpItems out;
    if (count == 0) return out;
    CKPT_TRY(const ckpt_dcp_item first, read_sized(given, kFirstItemBytes, "an item"));
    out.first_ = reinterpret_cast<std::byte*>(given);
    out.stride_ = static_cast<std::size_t>(first.size);
    out.items_.reserve(static_cast<std::size_t>(count));
    for (uint64_t i = 0; i < count; ++i) {
      CKPT_TRY(const ckpt_dcp_item item, read_sized(out.at(i), kFirstItemBytes, "an item"));
      if (item.size != out.stride_) return fail(Errc::usage, "items of different sizes");
      if (item.bytes != 0) CKPT_CHECK(need(item.data, "the data of an item"));
      if (item.dtype != nullptr && item.ndim != 0) CKPT_CHECK(need(item.shape, "the shape of an item"));
      DcpItem& read = out.items_.emplace_back();
      read.bytes = {static_cast<const std::byte*>(item.data), static_cast<std::size_t>(item.bytes)};
      if (item.dtype == nullptr) continue;
      read.dtype = item.dtype;
      if (read.dtype.empty()) return fail(Errc::usage, "the dtype of an item is empty");
      read.shape.assign(item.shape, item.shape + item.ndim);
    }
    return out;
  }
  const std::vector<DcpItem>& items() const { return items_; }
  void fill_in(const std::vector<Extent>& places) const {
    for (std::size_t i = 0; i < places.size(); ++i) {
      at(i)->offset = places[i].begin;
      at(i)->length = places[i].size();
    }
  }

 private:
  ckpt_dcp_item* at(std::size_t i) const { return reinterpret_cast<ckpt_dcp_item*>(first_ + i * stride_); }

  std::byte* first_ = nullptr;
  std::size_t stride_ = 0;
  std::vector<DcpItem> items_{};
};

}  // namespace
}  // namespace ckpt::c

using ckpt::Result;
using ckpt::c::guarded;
using ckpt::c::need;

int ckpt_dcp_begin(const char* target, int32_t mode, ckpt_dcp** save) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(target, "the target"));
    CKPT_CHECK(need(save, "the output pointer for the save"));
    if (mode != CKPT_DCP_NEW && mode != CKPT_DCP_REPLACE)
      return ckpt::fail(ckpt::Errc::usage, "ckpt_dcp_begin: unknown mode " + std::to_string(mode));
    auto made = std::make_unique<ckpt_dcp>();
    CKPT_TRY(made->io, ckpt::open_io(ckpt::IoKind::automatic));
    const auto kind = mode == CKPT_DCP_REPLACE ? ckpt::DcpTarget::replace : ckpt::DcpTarget::fresh;
    CKPT_TRY(made->publication, ckpt::begin_dcp_save(*made->io, target, kind));
    *save = made.release();
    return {};
  });
}

int ckpt_dcp_write(const char* target, const char* name, ckpt_dcp_item* items, uint64_t count, uint32_t threads,
                   ckpt_dcp_progress progress, void* user) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(target, "the target"));
    CKPT_CHECK(need(name, "the name"));
    CKPT_TRY(const auto given, ckpt::c::DcpItems::read(items, count));
    ckpt::DcpWriteOptions options;
    if (threads != 0) options.threads = threads;
    if (progress != nullptr) {
      options.progress = [=](std::uint64_t done, std::uint64_t total) { return progress(user, done, total) == 0; };
    }
    CKPT_TRY(const auto io, ckpt::open_io(ckpt::IoKind::automatic));
    CKPT_TRY(const auto places, ckpt::write_dcp_file(*io, target, name, given.items(), options));
    given.fill_in(places);
    return {};
  });
}

int ckpt_dcp_publish(ckpt_dcp* save, const void* metadata, uint64_t bytes) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(save, "the save"));
    CKPT_CHECK(save->owner.check());
    CKPT_CHECK(need(metadata, "the metadata"));
    const auto publication = std::exchange(save->publication, nullptr);
    if (!publication) return ckpt::fail(ckpt::Errc::usage, "already published");
    return ckpt::publish_dcp_save(*publication, std::string(static_cast<const char*>(metadata), bytes));
  });
}

void ckpt_dcp_free(ckpt_dcp* save) {
  if (save != nullptr && save->owner.is_here()) delete save;
}
