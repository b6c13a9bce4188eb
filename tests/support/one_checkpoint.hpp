#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "api/verbs.hpp"
#include "engine/comm/comm.hpp"
#include "engine/store/run_directory.hpp"
#include "support/memory_io.hpp"
#include "support/tiny_checkpoint.hpp"

namespace ckpt::test {

/// For commands that make a checkpoint from another, on a disk in memory.
class OneCheckpoint : public testing::Test {
 protected:
  /// A whole one in a run; its path.
  std::string save_one(Io& io, const std::string& run_directory, std::uint64_t step) const {
    EXPECT_TRUE(make_directory(io, run_directory));
    const auto name = tiny_.save(io, {.run_directory = run_directory,
                                      .step = step,
                                      .run = {.name = "r"},
                                      .created = universal::utc_text(1'700'000'000'000'000'000)});
    EXPECT_TRUE(name) << name.error().message;
    return run_directory + "/" + name.value_or("");
  }
  static Tree files_of(const MemoryDisk& disk, const std::string& root) {
    Tree out;
    for (const std::string& path : disk.tree())
      if (path.starts_with(root + "/") && path.back() != '/') out.emplace(path, disk.text(path));
    return out;
  }
  Session session(Io& io) const { return {.io = io, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 30}; }
  /// "" if it is complete.
  std::string damage_of(const MemoryDisk& disk, const std::string& path) const {
    const auto io = disk.io();
    Session here = session(*io);
    const auto verified = verify(here, {.path = path});
    if (!verified) return verified.error().message;
    return verified->ok ? "" : path + " is not whole";
  }
  static void expect_no_partials(const MemoryDisk& disk) {
    for (const std::string& path : disk.tree()) ASSERT_EQ(path.find(".partial-"), std::string::npos) << path;
  }

 private:
  TinyCheckpoints tiny_{};
  std::unique_ptr<Comm> comm_ = Comm::solo();
};

}  // namespace ckpt::test
