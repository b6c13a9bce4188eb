#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "engine/io/io.hpp"
#include "support/memory_io.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {

using Mode = OpenOptions::Mode;

constexpr std::size_t kDepth = 8;

struct Subject {
  std::string name;
  std::function<Result<std::unique_ptr<Io>>()> open;
};

/// Aligned bytes, filled by a seed.
class Block {
 public:
  explicit Block(std::size_t bytes, unsigned seed = 0) : bytes_(bytes) {
    data_.reset(
        static_cast<std::byte*>(std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment)));
    for (std::size_t i = 0; i < bytes; ++i)
      data_.get()[i] = std::byte(static_cast<unsigned char>((i * 31 + seed * 7 + i / 251) & 0xff));
  }
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return bytes_; }
  std::span<std::byte> span() const { return {data(), size()}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_;
};

/// One suite for every Io: what engine/io/io.hpp promises holds for the ring, the threads and the memory. Where the
/// ring is forbidden its tests are skipped, with the reason.
class IoContract : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    auto io = GetParam().open();
    if (!io && io.error().code == Errc::unsupported) GTEST_SKIP() << io.error().message;
    ASSERT_TRUE(io) << io.error().message;
    io_ = std::move(*io);
    root_ = directory_.path();
    if (io_->name() == "memory") {
      root_ = "/root";
      ASSERT_TRUE(io_->make_dir(root_));
    }
  }
  std::string at(const std::string& name) const { return root_ + "/" + name; }

  /// Makes a file with these bytes.
  void put(const std::string& name, std::string_view text) {
    auto file = io_->open(at(name), {.mode = Mode::write_new});
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_TRUE(io_->write_at(*file, 0, std::as_bytes(std::span(text))));
    ASSERT_TRUE(io_->close(*file));
  }
  std::string text(const std::string& name) {
    auto read = read_small_file(*io_, at(name), 1U << 20);
    return read ? *read : "error: " + read.error().message;
  }
  /// Reaps until nothing is in flight: tag -> result.
  std::map<std::uint64_t, Result<std::size_t>> drain(Io& io) {
    std::map<std::uint64_t, Result<std::size_t>> results;
    for (;;) {
      Completion out[3];
      auto count = io.reap(out, true);
      EXPECT_TRUE(count);
      if (!count || *count == 0) return results;
      for (std::size_t i = 0; i < *count; ++i) {
        EXPECT_TRUE(results.emplace(out[i].tag, std::move(out[i].bytes)).second) << "tag given twice";
      }
    }
  }
  template <class T>
  static Errc code(const Result<T>& result) {
    return result ? Errc::differs : result.error().code;  // differs is never an Io's error
  }

  TempDir directory_;
  std::unique_ptr<Io> io_;
  std::string root_;
};

inline std::vector<Subject> io_subjects() {
  return {{.name = "threads", .open = [] { return open_io(IoKind::threads, kDepth); }},
          {.name = "uring", .open = [] { return open_io(IoKind::uring, kDepth); }},
          {.name = "memory", .open = []() -> Result<std::unique_ptr<Io>> { return MemoryDisk().io(kDepth); }}};
}

}  // namespace ckpt
