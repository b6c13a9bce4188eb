// Measures the offload store: writes tensors, writes them again, reads them, and prints the seconds of each as JSON.
//
//   bench_offload DIRECTORY [TOTAL_MIB [TENSOR_MIB [MEMORY_MIB [uring|threads]]]]
//
// The pool is touched before the clock starts, as in a store that has run for a while. A write ends when every byte was
// passed to the disk (flush); nothing is synced, because swap files never are. A read ends in the caller's memory, with
// the next tensor read ahead.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "engine/offload/offload_store.hpp"
#include "engine/run/buffer_pool.hpp"

namespace {

using Bytes = std::span<std::byte>;

/// Fills with bytes that a disk cannot compress.
Bytes random_bytes(Bytes out, std::uint64_t seed) {
  std::uint64_t state = seed * 2 + 1;
  for (std::size_t i = 0; i + 8 <= out.size(); i += 8) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t mixed = state ^ (state >> 29);
    std::memcpy(out.data() + i, &mixed, 8);
  }
  return out;
}

template <class Work>
double seconds(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void must(const ckpt::Result<>& result) {
  if (result) return;
  fmt::print(stderr, "bench_offload: {}\n", result.error().message);
  std::exit(ckpt::exit_code(result.error()));
}

std::size_t mib(int argc, char** argv, int index, std::size_t otherwise) {
  const std::size_t value = argc > index ? std::strtoull(argv[index], nullptr, 10) : otherwise;
  return value << 20;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_offload DIRECTORY [TOTAL_MIB [TENSOR_MIB [MEMORY_MIB [uring|threads]]]]\n");
    return 2;
  }
  const std::size_t total = mib(argc, argv, 2, 2048);
  const std::size_t tensor_bytes = mib(argc, argv, 3, 64);
  const std::size_t memory = mib(argc, argv, 4, 256);
  const ckpt::IoKind kind =
      argc > 5 && std::string(argv[5]) == "threads" ? ckpt::IoKind::threads : ckpt::IoKind::automatic;
  auto opened =
      ckpt::OffloadStore::open([&] { return ckpt::open_io(kind); }, {.directory = argv[1], .memory_bytes = memory});
  if (!opened) must(tl::unexpected(opened.error()));
  ckpt::OffloadStore& store = **opened;

  // The trainer's own memory, in huge pages like any large tensor of a tuned trainer.
  auto memory_of_trainer = ckpt::BufferPool::open({.buffer_bytes = tensor_bytes, .buffer_count = 3});
  if (!memory_of_trainer) must(tl::unexpected(memory_of_trainer.error()));
  ckpt::BufferPool::Buffer buffers[3];
  for (auto& buffer : buffers) buffer = *(*memory_of_trainer)->try_acquire();
  const Bytes even = random_bytes({buffers[0].data(), tensor_bytes}, 1);
  const Bytes odd = random_bytes({buffers[1].data(), tensor_bytes}, 2);
  const Bytes out = random_bytes({buffers[2].data(), tensor_bytes}, 3);
  const auto value = [&](std::size_t i) { return i % 2 == 0 ? even : odd; };
  const auto name = [](std::size_t i) { return "tensor" + std::to_string(i); };
  const std::size_t count = total / tensor_bytes;

  for (std::size_t i = 0; i * tensor_bytes < memory; ++i) must(store.put("warm" + std::to_string(i), value(i)));
  for (std::size_t i = 0; i * tensor_bytes < memory; ++i) must(store.remove("warm" + std::to_string(i)));
  // Files are removed before the next tensor is written: what stays is one small file.
  must(store.put("last", out.first(4096)));
  must(store.flush());

  const auto write_all = [&](std::size_t shift) {
    for (std::size_t i = 0; i < count; ++i) must(store.put(name(i), value(i + shift)));
    must(store.flush());
  };
  const double write_s = seconds([&] { write_all(0); });
  const double overwrite_s = seconds([&] { write_all(1); });

  const std::uint64_t hits_before = store.statistics().read_bytes;
  bool equal = true;
  const double read_s = seconds([&] {
    must(store.prefetch(name(0)));
    for (std::size_t i = 0; i < count; ++i) {
      if (i + 1 < count) must(store.prefetch(name(i + 1)));
      must(store.get(name(i), out));
      equal = equal && out[i] == value(i + 1)[i];
    }
  });
  const ckpt::OffloadStore::Statistics statistics = store.statistics();
  fmt::print(
      "{{\"bytes\": {}, \"write_s\": {:.4f}, \"overwrite_s\": {:.4f}, \"read_s\": {:.4f}, \"read_bytes\": {}, "
      "\"memory_bytes\": {}, \"io\": \"{}\", \"direct\": {}, \"pages\": \"{}\", \"equal\": {}}}\n",
      count * tensor_bytes, write_s, overwrite_s, read_s, statistics.read_bytes - hits_before,
      statistics.peak_memory_bytes, statistics.io_name, statistics.direct, statistics.page_kind, equal);
  return equal ? 0 : 1;
}
