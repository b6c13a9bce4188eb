#include <algorithm>
#include <cstring>

#include "api/c/c_handles.hpp"
#include "api/offload/deepspeed_options.hpp"
#include "ckpt/offload.h"
#include "engine/offload/offload_store.hpp"
#include "format/files/deepspeed_offload.hpp"

struct ckpt_offload {
  ckpt::c::Owner owner{};
  std::unique_ptr<ckpt::OffloadStore> store{};
};

namespace ckpt::c {
namespace {

Result<> check(const ckpt_offload* offload) {
  CKPT_CHECK(need(offload, "the offload handle"));
  return offload->owner.check();
}

Result<> check(const ckpt_offload* offload, const char* name) {
  CKPT_CHECK(check(offload));
  return need(name, "the name");
}

Result<std::unique_ptr<ckpt_offload>> open_offload(const OffloadStore::Options& options, IoKind io) {
  auto made = std::make_unique<ckpt_offload>();
  CKPT_TRY(made->store, OffloadStore::open([io] { return open_io(io); }, options));
  return made;
}

}  // namespace
}  // namespace ckpt::c

using ckpt::Result;
using ckpt::c::guarded;
using ckpt::c::need;

int ckpt_offload_open(const ckpt_offload_options* options, ckpt_offload** offload) {
  return guarded([&]() -> Result<> {
    CKPT_TRY(const ckpt_offload_options given,
             ckpt::c::read_sized(options, offsetof(ckpt_offload_options, io) + sizeof(char*), "the options"));
    CKPT_CHECK(need(given.directory, "the directory"));
    CKPT_CHECK(need(offload, "the output pointer for the handle"));
    CKPT_TRY(const ckpt::IoKind io, ckpt::c::io_kind(given.io));
    ckpt::OffloadStore::Options wanted{.directory = given.directory};
    if (given.memory_bytes != 0) wanted.memory_bytes = static_cast<std::size_t>(given.memory_bytes);
    if (given.buffer_bytes != 0) wanted.buffer_bytes = static_cast<std::size_t>(given.buffer_bytes);
    wanted.block_bytes = given.block_bytes != 0 ? static_cast<std::size_t>(given.block_bytes)
                                                : std::min(wanted.block_bytes, wanted.buffer_bytes);
    if (given.queue_depth != 0) wanted.queue_depth = given.queue_depth;
    CKPT_TRY(auto made, ckpt::c::open_offload(wanted, io));
    *offload = made.release();
    return {};
  });
}

int ckpt_offload_open_deepspeed(const char* configuration, int32_t which, const ckpt_offload_sizes* sizes,
                                ckpt_offload** offload) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(need(configuration, "the configuration"));
    CKPT_CHECK(need(offload, "the output pointer for the handle"));
    CKPT_TRY(const ckpt_offload_sizes given,
             ckpt::c::read_sized(sizes, offsetof(ckpt_offload_sizes, rank) + sizeof(uint64_t), "the sizes"));
    if (which != CKPT_OFFLOAD_PARAMETERS && which != CKPT_OFFLOAD_OPTIMIZER)
      return ckpt::fail(ckpt::Errc::usage, "offload: neither parameters nor optimizer were requested");
    CKPT_TRY(const auto parsed, ckpt::deepspeed::parse_offload_config(configuration));
    CKPT_TRY(const auto options,
             ckpt::offload_options(parsed.aio, which == CKPT_OFFLOAD_PARAMETERS ? parsed.parameters : parsed.optimizer,
                                   {.element_bytes = given.element_bytes == 0 ? 4 : given.element_bytes,
                                    .largest_tensor_bytes = given.largest_tensor_bytes,
                                    .rank = given.rank}));
    CKPT_TRY(auto made, ckpt::c::open_offload(options, ckpt::IoKind::automatic));
    *offload = made.release();
    return {};
  });
}

int ckpt_offload_close(ckpt_offload* offload) {
  return guarded([&]() -> Result<> {
    if (offload == nullptr) return {};
    CKPT_CHECK(offload->owner.check());  // its thread and files belong to the parent: unchanged
    delete offload;
    return {};
  });
}

int ckpt_offload_put(ckpt_offload* offload, const char* name, const void* data, uint64_t bytes) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(ckpt::c::check(offload, name));
    if (bytes != 0) CKPT_CHECK(need(data, "the data"));
    return offload->store->put(name, {static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes)});
  });
}

int ckpt_offload_get(ckpt_offload* offload, const char* name, void* out, uint64_t bytes) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(ckpt::c::check(offload, name));
    if (bytes != 0) CKPT_CHECK(need(out, "the output buffer"));
    return offload->store->get(name, {static_cast<std::byte*>(out), static_cast<std::size_t>(bytes)});
  });
}

int ckpt_offload_prefetch(ckpt_offload* offload, const char* name) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(ckpt::c::check(offload, name));
    return offload->store->prefetch(name);
  });
}

int ckpt_offload_remove(ckpt_offload* offload, const char* name) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(ckpt::c::check(offload, name));
    return offload->store->remove(name);
  });
}

int ckpt_offload_flush(ckpt_offload* offload) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(ckpt::c::check(offload));
    return offload->store->flush();
  });
}

int ckpt_offload_bytes(const ckpt_offload* offload, const char* name, uint64_t* bytes) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(ckpt::c::check(offload, name));
    CKPT_CHECK(need(bytes, "the output pointer for the bytes"));
    const auto size = offload->store->size_of(name);
    if (!size)
      return ckpt::fail({.code = ckpt::Errc::not_found,
                         .message = std::string("offload: ") + name + ": no such tensor",
                         .tensor = name});
    *bytes = *size;
    return {};
  });
}

int ckpt_offload_get_stats(const ckpt_offload* offload, ckpt_offload_stats* stats) {
  return guarded([&]() -> Result<> {
    CKPT_CHECK(ckpt::c::check(offload));
    CKPT_CHECK(need(stats, "the output pointer for the statistics"));
    CKPT_CHECK(ckpt::c::check_sized(stats, offsetof(ckpt_offload_stats, direct) + sizeof(int32_t), "the statistics"));
    const ckpt::OffloadStore::Statistics now = offload->store->statistics();
    const ckpt_offload_stats all{.size = stats->size,
                                 .hits = now.hits,
                                 .misses = now.misses,
                                 .read_bytes = now.read_bytes,
                                 .written_bytes = now.written_bytes,
                                 .write_failures = now.write_failures,
                                 .memory_bytes = now.memory_bytes,
                                 .peak_memory_bytes = now.peak_memory_bytes,
                                 .direct = now.direct ? 1 : 0};
    std::memcpy(stats, &all, std::min<std::size_t>(stats->size, sizeof all));
    return {};
  });
}
