#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "catalog/bucket.hpp"
#include "engine/comm/comm.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"

/// What a process does to the trash of a store in memory, broken at every operation.
namespace ckpt::catalog {

inline Time at(std::int64_t hours) {
  return Time(std::chrono::hours(480'000 + hours));
}

inline Deadline now() {
  return std::chrono::steady_clock::now();
}

struct Deed {
  const char* name;
  bool in_trash;                               ///< what it is about, before
  std::function<Result<>(Io& io)> act;         ///< as a new process would
  std::function<bool(const MemoryDisk&)> end;  ///< what it must lead to in the end
};

struct Deeds {
  std::vector<Deed> all{};
  std::function<std::unique_ptr<MemoryDisk>(const Deed&, MemoryDisk::Options)> prepared{};
  /// What no fault may do; "" where it was not done.
  std::function<std::string(const MemoryDisk&, const Deed&)> broken{};
};

/// The power goes off at any operation: nothing is lost, and the same deed again mends it.
inline void expect_power_losses_mended(const Deeds& deeds) {
  for (const Deed& deed : deeds.all) {
    bool done = false;
    for (std::uint64_t n = 0; !done; ++n) {
      ASSERT_LT(n, 200U);
      for (const std::size_t spared : {std::size_t{0}, std::size_t{1}, std::size_t{2}, MemoryDisk::kAllNames}) {
        const auto disk = deeds.prepared(deed, {.whole_renames = true});
        auto plan = std::make_shared<FaultPlan>();
        const auto io = make_fault_io(disk->io(), plan);
        plan->fail_from(n, Errc::io);
        done = deed.act(*io).has_value() && plan->first_failed().empty();
        disk->power_off({.name_operations = spared});
        const std::string where = std::string(deed.name) + ", operation " + std::to_string(n) + " " +
                                  plan->first_failed() + ", spared " + std::to_string(spared);
        ASSERT_EQ(deeds.broken(*disk, deed), "") << where;
        if (done) {
          EXPECT_TRUE(deed.end(*disk)) << where << ": not durable";
        }
        const auto next = disk->io();
        const auto mended = deed.act(*next);
        ASSERT_TRUE(mended) << where << ": " << mended.error().message;
        EXPECT_EQ(deeds.broken(*disk, deed), "") << where;
        EXPECT_TRUE(deed.end(*disk)) << where << ": not mended";
      }
    }
  }
}

/// Any operation fails once: that is told or makes no difference, and the same deed again mends it.
inline void expect_failures_told(const Deeds& deeds) {
  for (const bool carried_out : {false, true}) {
    for (const Deed& deed : deeds.all) {
      for (std::uint64_t n = 0;; ++n) {
        ASSERT_LT(n, 200U);
        const auto disk = deeds.prepared(deed, {});
        auto plan = std::make_shared<FaultPlan>();
        const auto io = make_fault_io(disk->io(), plan);
        plan->fail_once(n, Errc::io, carried_out);
        const auto result = deed.act(*io);
        if (plan->first_failed().empty()) break;
        const std::string where = std::string(deed.name) + ": " + plan->first_failed();
        ASSERT_EQ(deeds.broken(*disk, deed), "") << where;
        if (result) {
          EXPECT_TRUE(deed.end(*disk)) << where << ": success without the deed";
        }
        const auto next = disk->io();
        const auto again = deed.act(*next);
        ASSERT_TRUE(again) << where << ": " << again.error().message;
        EXPECT_TRUE(deed.end(*disk)) << where << ": the next one does not mend it";
      }
    }
  }
}

}  // namespace ckpt::catalog
