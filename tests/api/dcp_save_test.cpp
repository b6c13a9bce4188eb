// DCP checkpoints from memory: after a failure, or a power loss, at any operation the target is the old checkpoint or the
// new one, and the next save works.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/run/dcp_save.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"

namespace ckpt::test {
namespace {

constexpr const char* kTarget = "/out/step-5";

/// A tensor of 5 MiB, so that its checksum is known after the first leaf was written, and an object.
Result<> save(Io& io, std::byte value, const std::string& metadata, DcpTarget mode = DcpTarget::replace) {
  const std::vector<std::byte> bytes(5u << 20, value);
  const std::vector<DcpItem> items{{.bytes = std::span(bytes).first(100)},
                                   {.dtype = "float32", .shape = {5, 256, 1024}, .bytes = bytes}};
  CKPT_TRY(const auto publication, begin_dcp_save(io, kTarget, mode));
  for (const char* name : {"__0_0.distcp", "__1_0.distcp"}) {
    CKPT_TRY(const auto places, write_dcp_file(io, kTarget, name, items, {}));
    EXPECT_EQ(places.size(), 2U);
  }
  return publish_dcp_save(*publication, metadata);
}

bool is_whole(const MemoryDisk& disk, std::byte value, const std::string& metadata) {
  const std::string target = kTarget;
  const std::string first = disk.text(target + "/__0_0.distcp");
  return disk.text(target + "/.metadata") == metadata && first == disk.text(target + "/__1_0.distcp") &&
         first.size() > (5u << 20) && first.substr(0, 100) == std::string(100, static_cast<char>(value)) &&
         first.find(std::string(5u << 20, static_cast<char>(value))) != std::string::npos;
}

bool has_partial(const MemoryDisk& disk) {
  for (const std::string& path : disk.tree())
    if (path.find(".partial-") != std::string::npos) return true;
  return false;
}

TEST(DcpSave, APowerLossAtAnyOperationLeavesTheOldOrTheNewCheckpoint) {
  bool over = false;
  for (std::uint64_t n = 0; !over; ++n) {
    MemoryDisk disk({.capacity_bytes = std::uint64_t{1} << 26});
    disk.put("/out/other", "");
    ASSERT_TRUE(save(*disk.io(), std::byte{1}, "old"));
    const auto plan = std::make_shared<FaultPlan>();
    plan->fail_from(n, Errc::io);
    const auto io = make_fault_io(disk.io(), plan);
    const bool done = save(*io, std::byte{2}, "new").has_value();
    over = plan->first_failed().empty();
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
    disk.power_off();
    const bool is_new = is_whole(disk, std::byte{2}, "new");
    EXPECT_TRUE(is_new || (!done && is_whole(disk, std::byte{1}, "old")));
    const auto again = save(*disk.io(), std::byte{3}, "next");
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_TRUE(is_whole(disk, std::byte{3}, "next"));
    EXPECT_FALSE(has_partial(disk));
    if (HasFailure()) return;
  }
}

TEST(DcpSave, AFailureThatPassesLeavesNothingBehind) {
  std::size_t failed = 0;
  for (std::uint64_t n = 0;; ++n) {
    MemoryDisk disk({.capacity_bytes = std::uint64_t{1} << 26});
    disk.put("/out/other", "");
    const auto plan = std::make_shared<FaultPlan>();
    plan->fail_once(n, Errc::no_space);
    const auto io = make_fault_io(disk.io(), plan);
    const auto done = save(*io, std::byte{1}, "new", DcpTarget::fresh);
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
    if (plan->first_failed().empty()) break;
    failed += done ? 0U : 1U;
    if (done) {
      EXPECT_TRUE(is_whole(disk, std::byte{1}, "new"));
    } else if (done.error().code != Errc::not_durable) {
      EXPECT_EQ(disk.text(std::string(kTarget) + "/.metadata"), "(none)");
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(failed, 15U);
}

TEST(DcpSave, WrongCallsAreRefusedBeforeAnythingIsWritten) {
  MemoryDisk disk;
  disk.put("/out/step-5/notes.txt", "mine");
  const auto io = disk.io();
  for (const DcpTarget mode : {DcpTarget::fresh, DcpTarget::replace}) EXPECT_FALSE(begin_dcp_save(*io, kTarget, mode));
  const std::vector<std::byte> bytes(16);
  const auto code = [&](const std::string& name, DcpItem item) {
    item.bytes = bytes;
    const auto written = write_dcp_file(*io, "/out/new", name, {&item, 1}, {});
    return written ? Errc::internal : written.error().code;
  };
  EXPECT_EQ(code("__0_0.distcp", {.dtype = "float32", .shape = {4}}), Errc::not_found);  // not begun
  const auto begun = begin_dcp_save(*io, "/out/new", DcpTarget::fresh);
  ASSERT_TRUE(begun) << begun.error().message;
  EXPECT_EQ(begin_dcp_save(*io, "/out/new", DcpTarget::fresh).error().code, Errc::locked);
  EXPECT_EQ(code("../x.distcp", {.dtype = "float32", .shape = {4}}), Errc::usage);
  EXPECT_EQ(code("__0_0.distcp", {.dtype = "float32", .shape = {5}}), Errc::usage);
  EXPECT_EQ(code("__0_0.distcp", {.dtype = "float33", .shape = {4}}), Errc::unsupported);
  for (const std::string& path : disk.tree()) EXPECT_EQ(path.find(".distcp"), std::string::npos) << path;
}

}  // namespace
}  // namespace ckpt::test
