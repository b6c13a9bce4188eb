// A convert that ends at any operation on several ranks, or with the power, and is run again on other ranks: it ends
// with the bytes of one that was never stopped.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "api/conversion_targets.hpp"
#include "api/verbs.hpp"
#include "support/fault_io.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/memory_io.hpp"
#include "support/temp_dir.hpp"
#include "support/thread_comm.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string name;
  IoKind engine = IoKind::threads;
  ConversionTarget target;
  std::uint64_t stride = 1;  // between the operations at which all are killed
};
void PrintTo(const Case& each, std::ostream* out) {
  *out << each.name;
}
const auto kName = [](const auto& each) { return each.param.name; };

class ConvertRanksResume : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto io = open_io(GetParam().engine);
    if (!io && GetParam().engine == IoKind::uring) GTEST_SKIP() << io.error().message;
  }
  /// All ranks share `plan`: where it fails, all are killed.
  Result<ConvertReport> convert_on(int ranks, const std::shared_ptr<FaultPlan>& plan) {
    std::vector<Result<ConvertReport>> out(static_cast<std::size_t>(ranks));
    const ThreadRanks threads(ranks);
    threads.run([&](Comm& comm) {
      auto io = open_io(GetParam().engine, 4);
      if (!io) return;
      *io = make_fault_io(std::move(*io), plan);
      Session session{.io = **io,
                      .comm = comm,
                      .memory_bytes = std::uint64_t{1} << 31,
                      .record_every = std::chrono::milliseconds(0)};
      out[static_cast<std::size_t>(comm.rank())] = convert(session, {.source = source_,
                                                                     .target = target_,
                                                                     .to = GetParam().target.to,
                                                                     .shard_bytes = GetParam().target.shard_bytes,
                                                                     .options = GetParam().target.options});
    });
    return out[0];
  }

  const TempDir directory_{memory_temp_dir()};
  const std::string source_ = golden_root(GetParam().target.golden);
  const std::string target_ = directory_.path() + "/" + GetParam().target.path;
};

TEST_P(ConvertRanksResume, KilledOnAnyRanksItGoesOnOnAnyOthers) {
  ASSERT_TRUE(convert_on(1, std::make_shared<FaultPlan>()));
  const test::FileTree expected = test::read_tree(target_);
  std::uint64_t resumed = 0;
  for (std::uint64_t n = 0;; n += GetParam().stride) {
    fs::remove_all(target_);
    const auto plan = std::make_shared<FaultPlan>();
    plan->fail_from(n, Errc::io);
    const auto done = convert_on(3, plan);
    SCOPED_TRACE("operation " + std::to_string(n));
    if (plan->first_failed().empty()) break;
    const auto again = convert_on(1 + static_cast<int>(n % 3), std::make_shared<FaultPlan>());
    ASSERT_TRUE(again) << again.error().message;
    resumed = std::max(resumed, again->resumed_bytes);
    ASSERT_EQ(test::read_tree(target_), expected);
    ASSERT_EQ(std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator()), 1) << "left over";
  }
  EXPECT_GT(resumed, 0U);
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const IoKind engine : {IoKind::threads, IoKind::uring}) {
    const std::string name = engine == IoKind::uring ? "Uring" : "Threads";
    out.push_back({.name = name + "Shards", .engine = engine, .target = shards_target(), .stride = 7});
    for (const ConversionTarget& target : foreign_targets())
      out.push_back({name + target.name, engine, target, fault_stride(target, 17)});
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Targets, ConvertRanksResume, testing::ValuesIn(cases()), kName);

class ConvertPowerCut : public testing::TestWithParam<Case> {};

TEST_P(ConvertPowerCut, AtAnyOperationTheNextRunEndsWithTheSameBytes) {
  const auto convert_on = [](std::unique_ptr<Io> io) {
    const auto comm = Comm::solo();
    Session session{
        .io = *io, .comm = *comm, .memory_bytes = std::uint64_t{1} << 31, .record_every = std::chrono::milliseconds(0)};
    return convert(session, {.source = "/source",
                             .target = "/d/" + GetParam().target.path,
                             .to = GetParam().target.to,
                             .shard_bytes = GetParam().target.shard_bytes,
                             .options = GetParam().target.options});
  };
  const auto make_disk = [] {
    auto disk = std::make_unique<MemoryDisk>();
    const std::string root = golden_root(GetParam().target.golden);
    test::FileTree files = test::read_tree(root);
    for (auto& [path, bytes] : files) disk->put("/source/" + path, std::move(bytes));
    disk->put("/d/other", "other");
    return disk;
  };
  const auto target_of = [](const MemoryDisk& disk) {
    test::FileTree out;
    for (const std::string& path : disk.tree()) {
      if (path.starts_with("/d/m") && !path.ends_with('/')) out[path] = disk.text(path);
    }
    return out;
  };
  const auto whole = make_disk();
  const auto made = convert_on(whole->io());
  ASSERT_TRUE(made) << made.error().message;
  const test::FileTree expected = target_of(*whole);
  std::uint64_t resumed = 0;
  for (std::uint64_t n = 0;; n += GetParam().stride) {
    const auto disk = make_disk();
    const auto faults = std::make_shared<FaultPlan>();
    faults->fail_from(n, Errc::io);
    static_cast<void>(convert_on(make_fault_io(disk->io(), faults)));
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + faults->first_failed());
    if (faults->first_failed().empty()) break;
    disk->power_off({.name_operations = MemoryDisk::kAllNames, .block_seed = n + 1});
    const auto again = convert_on(disk->io());
    ASSERT_TRUE(again) << again.error().message;
    resumed += again->resumed_bytes;
    ASSERT_EQ(target_of(*disk), expected);
  }
  if (made->files.size() > 1) {
    EXPECT_GT(resumed, 0U) << "no leaf and its slot ever survived together";
  }
}

std::vector<Case> power_cases() {
  std::vector<Case> out{
      {.name = "Universal",
       .target = {.name = "Universal", .path = "m", .to = "ckpt", .golden = "deepspeed/zero3_fp32_dp3_tied_tiny"}}};
  for (const ConversionTarget& target : foreign_targets())
    out.push_back({target.name, IoKind::threads, target, fault_stride(target, 5)});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Targets, ConvertPowerCut, testing::ValuesIn(power_cases()), kName);

}  // namespace
}  // namespace ckpt
