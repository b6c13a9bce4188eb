#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "engine/offload/offload_store.hpp"
#include "engine/offload/offload_worker.hpp"

namespace ckpt {

/// The caller's side of the store. Everything under `shared.mutex` where `lock` is passed, but the copying of bytes.
struct OffloadStore::Impl {
  Impl(Options wanted, std::unique_ptr<BufferPool> made)
      : options(std::move(wanted)), pool(std::move(made)), shared(*pool) {}

  Result<> start(IoFactory make_io);
  void work(const IoFactory& make_io, std::promise<Result<>>& started);

  std::size_t parts_of(std::uint64_t bytes) const {
    return static_cast<std::size_t>((bytes + options.buffer_bytes - 1) / options.buffer_bytes);
  }
  std::size_t part_bytes(const offload::Tensor& tensor, std::size_t part) const {
    return static_cast<std::size_t>(
        std::min<std::uint64_t>(options.buffer_bytes, tensor.bytes - part * options.buffer_bytes));
  }
  offload::Tensor* find(const std::string& name) const {
    const auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : found->second.get();
  }
  offload::Tensor& make(const std::string& name);

  Result<BufferPool::Buffer> acquire(offload::Lock& lock);
  std::size_t retry_all();
  void end_transfers(offload::Tensor& tensor, offload::Lock& lock);
  void forget(const std::string& name, offload::Lock& lock);
  Result<> put_whole(offload::Tensor* old, const std::string& name, std::span<const std::byte> bytes,
                     offload::Lock& lock);
  Result<> put_through(offload::Tensor* old, const std::string& name, std::span<const std::byte> bytes,
                       offload::Lock& lock);
  void fill(offload::Tensor& tensor, std::size_t part, std::span<const std::byte> bytes, offload::Lock& lock);
  void count_get(const offload::Tensor& tensor);
  void hold(offload::Tensor& tensor, bool ahead);
  Result<> read_on(offload::Tensor& tensor, std::size_t part, std::size_t& next_read, offload::Lock& lock);
  Result<> copy_out(offload::Tensor& tensor, std::size_t index, std::size_t& next_read, std::span<std::byte> out,
                    offload::Lock& lock);

  Options options;
  std::unique_ptr<BufferPool> pool;
  offload::Shared shared;
  std::map<std::string, std::unique_ptr<offload::Tensor>> tensors;  // of the caller's thread
  std::uint64_t next_serial = 0;
  Statistics counts{};  // of the caller's thread: hits and misses
  std::string io_name{};
  std::jthread thread;  // last member: joined before the members it uses are destroyed
};

}  // namespace ckpt
