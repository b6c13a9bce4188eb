// Retired files feed the next save: what a power loss or a failure at any step of it leaves.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "catalog/trash/trash.hpp"
#include "engine/publish/publish.hpp"
#include "engine/store/recycle.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"

namespace ckpt::catalog {
namespace {

const std::string kOld = "step-000000007.g3";
const std::string kKept = "/s/r/step-000000008.g4";
const std::string kNew = "/s/r/step-000000009.g5";
const std::string kGone = "/s/.ckpt/trash/r/" + kOld;
const std::string kRecycle = "/s/.ckpt/recycle";
const std::string kData = "/shards/weights/00000-00000.safetensors";
constexpr std::size_t kBytes = 12288;

Time at(std::int64_t hours) {
  return Time(std::chrono::hours(480'000 + hours));
}

std::string content(char letter) {
  return std::string(kBytes, letter);
}

void put_checkpoint(MemoryDisk& disk, const std::string& path, char letter) {
  disk.put(path + kData, content(letter));
  disk.put(path + "/sums.bin", "sums");
  disk.put(path + "/index/manifest.json", std::string("all of ") + letter);
  disk.put(path + "/manifest.json", std::string("all of ") + letter);
}

std::unique_ptr<MemoryDisk> make_store(MemoryDisk::Options options = {}) {
  auto disk = std::make_unique<MemoryDisk>(options);
  put_checkpoint(*disk, "/s/r/" + kOld, 'o');
  put_checkpoint(*disk, kKept, 'k');
  return disk;
}

bool whole(const MemoryDisk& disk, const std::string& path, char letter) {
  const std::string manifest = std::string("all of ") + letter;
  return disk.text(path + kData) == content(letter) && disk.text(path + "/manifest.json") == manifest &&
         disk.text(path + "/index/manifest.json") == manifest;
}

std::vector<std::string> recycled(const MemoryDisk& disk) {
  std::vector<std::string> out;
  for (const std::string& path : disk.tree()) {
    if (path.starts_with(kRecycle + "/") && !path.ends_with("/")) out.push_back(path);
  }
  return out;
}

Deleter::Deletion deletion(const std::string& name, std::int64_t hour) {
  return {.run = "r",
          .name = name,
          .record = {.id = "abc",
                     .step = 7,
                     .created = at(hour),
                     .bytes = kBytes + 30,
                     .deleted = at(hour),
                     .by = "ana",
                     .why = "old",
                     .policy = "p",
                     .purge_at = at(hour)}};
}

Result<Deleter::Purged> purge(Io& io, std::optional<std::uint64_t> sets) {
  CKPT_TRY(const auto trash, Deleter::open(io, "/s", std::chrono::steady_clock::now(), {}));
  return trash->purge(
      at(1000), "cron", [](const TrashEntry& entry) { return entry.record.purge_at <= at(900); }, sets);
}

Result<> retire(Io& io, std::uint64_t sets = 1) {
  {
    CKPT_TRY(const auto trash, Deleter::open(io, "/s", std::chrono::steady_clock::now(), {}));
    CKPT_TRY(const LockOutcome outcome, trash->put(deletion(kOld, 0)));
    if (outcome != LockOutcome::free && outcome != LockOutcome::vanished) return fail(Errc::locked, "put: refused");
  }
  CKPT_TRY(const auto purged, purge(io, sets));
  return purged.kept.empty() ? Result<>() : fail(Errc::io, purged.kept.front());
}

Result<> save(Io& io) {
  if (io.stat(kNew)) return {};
  TargetFile file;
  file.path = kData.substr(1);
  file.bytes = kBytes;
  CKPT_TRY(const auto publication, Publication::begin(io, {.target = kNew, .id = "0123456789abcdef"}, {file}));
  CKPT_TRY(const FileHandle handle, io.open(publication->root() + kData, {.mode = OpenOptions::Mode::write_existing}));
  const std::string bytes = content('n');
  auto written = io.write_at(handle, 0, std::as_bytes(std::span(bytes)));
  if (written) written = io.sync(handle);
  auto closed = io.close(handle);
  CKPT_CHECK(std::move(written));
  CKPT_CHECK(std::move(closed));
  return publication->commit(
      {{"sums.bin", "sums"}, {"index/manifest.json", "all of n"}, {"manifest.json", "all of n"}});
}

std::string where_text(std::uint64_t n, const std::string& failed, std::size_t spared, std::uint64_t seed, bool whole) {
  return "operation " + std::to_string(n) + " " + failed + ", spared " + std::to_string(spared) + ", blocks " +
         std::to_string(seed) + (whole ? "" : ", renames in halves");
}

/// What is wrong with a store in which the one was retired and the other saved, or some steps of that.
std::string broken(const MemoryDisk& disk) {
  if (!whole(disk, kKept, 'k')) return "what is kept is damaged";
  bool live = false;
  bool committed = false;
  for (const std::string& path : disk.tree()) {
    live = live || path == "/s/r/" + kOld + "/";
    committed = committed || path == kNew + "/";
  }
  if (live && !whole(disk, "/s/r/" + kOld, 'o')) return "half of the old one in its run";
  if (committed && !whole(disk, kNew, 'n')) return "half of the new one is committed";
  const bool marked = disk.text(kGone + "/manifest.json") != "(none)";
  if (marked && disk.text(kGone + kData) != content('o')) return "half of the old one looks whole";
  for (const std::string& path : recycled(disk)) {
    if (committed && disk.inode(path) == disk.inode(kNew + kData)) return "a committed file may be overwritten";
  }
  return "";
}

TEST(Recycling, RetiredFilesAreWhatTheNextSaveIsMadeOf) {
  const auto disk = make_store();
  const std::uint64_t inode = disk->inode("/s/r/" + kOld + kData);
  const auto io = disk->io();
  ASSERT_TRUE(retire(*io));
  ASSERT_EQ(recycled(*disk).size(), 1U);
  EXPECT_EQ(disk->inode(recycled(*disk).front()), inode);
  EXPECT_EQ(disk->text(kGone + "/manifest.json"), "(none)");
  const auto told = list_trash(*io, "/s").value().front();
  EXPECT_FALSE(told.present);
  EXPECT_TRUE(told.record.recycled);
  EXPECT_EQ(told.record.state, TrashRecord::State::purged);
  EXPECT_EQ(measure_recycled(*io, "/s")->bytes, kBytes);
  ASSERT_TRUE(save(*io));
  EXPECT_EQ(disk->inode(kNew + kData), inode);
  EXPECT_TRUE(recycled(*disk).empty());
  disk->power_off();
  EXPECT_TRUE(whole(*disk, kNew, 'n'));
}

TEST(Recycling, NoMoreSetsWaitThanAskedForAndTheYoungestStay) {
  auto disk = make_store();
  const std::string base = "/s/r/step-00000000";
  for (const char digit : {'1', '2', '3'}) put_checkpoint(*disk, base + digit + ".g" + digit, digit);
  const auto io = disk->io();
  const auto put = [&](char digit) {
    const auto trash = Deleter::open(*io, "/s", std::chrono::steady_clock::now(), {}).value();
    const std::string name = std::string("step-00000000") + digit + ".g" + digit;
    ASSERT_EQ(trash->put(deletion(name, digit - '0')).value(), LockOutcome::free);
  };
  const auto letters = [&] {
    std::string out;
    for (const std::string& path : recycled(*disk)) out += disk->text(path).front();
    return out;
  };
  put('1');
  put('2');
  auto purged = purge(*io, 1);
  ASSERT_TRUE(purged) << purged.error().message;
  EXPECT_EQ(purged->gone.size(), 2U);
  EXPECT_EQ(purged->recycled_count, 1U);
  EXPECT_EQ(purged->recycled_bytes, kBytes);
  EXPECT_EQ(purged->bytes, kBytes + 30 + 30);  // what waits is not free
  EXPECT_EQ(letters(), "2");
  put('3');
  EXPECT_EQ(purge(*io, {})->recycled_count, 0U);  // not asked for: unlinked, and what waits goes on waiting
  EXPECT_EQ(letters(), "2");
  ASSERT_TRUE(retire(*io, 2));  // kOld, retired before the others
  EXPECT_EQ(letters(), "o2");
  EXPECT_EQ(measure_recycled(*io, "/s")->sets, 2U);
  purged = purge(*io, 1);
  EXPECT_EQ(letters(), "2");
  EXPECT_EQ(purged->emptied_bytes, kBytes);
  EXPECT_EQ(purge(*io, 0)->emptied_bytes, kBytes);
  EXPECT_EQ(letters(), "");
}

TEST(Recycling, WhatIsReadIsNeitherRetiredNorTaken) {
  const auto disk = make_store();
  const auto io = disk->io();
  const auto other = disk->io();
  {
    const auto lease = other->lock("/s/r/" + kOld, LockMode::shared);
    EXPECT_FALSE(retire(*io));
    EXPECT_TRUE(whole(*disk, "/s/r/" + kOld, 'o'));
  }
  const auto file = other->open("/s/r/" + kOld + kData, {});  // by somebody who holds no lease
  ASSERT_TRUE(file);
  ASSERT_TRUE(retire(*io));
  ASSERT_TRUE(save(*io));
  std::string seen(kBytes, '\0');
  ASSERT_TRUE(other->read_at(*file, 0, std::as_writable_bytes(std::span(seen))));
  EXPECT_EQ(seen, content('o'));
  EXPECT_TRUE(whole(*disk, kNew, 'n'));
}

TEST(Recycling, OfWhatWasDeletedAtOnceTheOneSavedLastIsKept) {
  constexpr int kCount = 8;
  for (int newest = 0; newest < kCount; ++newest) {
    const auto disk = make_store();
    const auto io = disk->io();
    std::uint64_t inode = 0;
    for (int i = 0; i < kCount; ++i) {
      const std::string name = "step-00000001" + std::to_string(i) + ".g1" + std::to_string(i);
      put_checkpoint(*disk, "/s/r/" + name, 'x');
      if (i == newest) inode = disk->inode("/s/r/" + name + kData);
      Deleter::Deletion one = deletion(name, 0);
      one.record.created = i == newest ? at(-1) : at(-2 - i);
      const auto trash = Deleter::open(*io, "/s", std::chrono::steady_clock::now(), {});
      ASSERT_EQ((*trash)->put(one).value(), LockOutcome::free);
    }
    ASSERT_TRUE(purge(*io, 1));
    const auto kept = recycled(*disk);
    ASSERT_EQ(kept.size(), 1U);
    EXPECT_EQ(disk->inode(kept.front()), inode) << newest;
  }
}

TEST(Recycling, OnOtherFileSystemsWhatIsPurgedIsUnlinked) {
  const auto disk = make_store({.recycles = false});
  const auto io = disk->io();
  ASSERT_TRUE(retire(*io));
  EXPECT_TRUE(recycled(*disk).empty());
  ASSERT_TRUE(save(*io));
}

TEST(Recycling, OtherToolsFilesAreUnlinked) {
  const auto disk = make_store();
  disk->put("/s/r/global_step5/model.safetensors", "other");
  const auto io = disk->io();
  {
    const auto trash = Deleter::open(*io, "/s", std::chrono::steady_clock::now(), {});
    ASSERT_EQ((*trash)->put(deletion("global_step5", 0)).value(), LockOutcome::free);
  }
  ASSERT_TRUE(purge(*io, 5));
  EXPECT_TRUE(recycled(*disk).empty());
}

TEST(RecyclingFault, PowerLossAtAnyOperationLeavesWholeCheckpointsAndIsMended) {
  for (const bool whole_renames : {true, false}) {
    bool done = false;
    for (std::uint64_t n = 0; !done; ++n) {
      ASSERT_LT(n, 300U);
      for (const std::size_t spared : {std::size_t{0}, std::size_t{1}, std::size_t{2}, MemoryDisk::kAllNames}) {
        for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}}) {
          const auto disk = make_store({.whole_renames = whole_renames});
          auto plan = std::make_shared<FaultPlan>();
          const auto io = make_fault_io(disk->io(), plan);
          plan->fail_from(n, Errc::io);
          done = retire(*io).has_value() && save(*io).has_value() && plan->first_failed().empty();
          disk->power_off({.name_operations = spared, .block_seed = seed});
          const std::string where = where_text(n, plan->first_failed(), spared, seed, whole_renames);
          ASSERT_EQ(broken(*disk), "") << where;
          if (done) {
            EXPECT_TRUE(whole(*disk, kNew, 'n')) << where << ": not durable";
          }
          if (!whole_renames) continue;  // of a file in both places no system that recycles knows
          const auto next = disk->io();
          const auto retired = retire(*next);
          ASSERT_TRUE(retired) << where << ": " << retired.error().message;
          const auto saved = save(*next);
          ASSERT_TRUE(saved) << where << ": " << saved.error().message;
          ASSERT_EQ(broken(*disk), "") << where << ", mended";
          EXPECT_TRUE(whole(*disk, kNew, 'n')) << where;
          EXPECT_EQ(disk->text(kGone + kData), "(none)") << where;
        }
      }
    }
  }
}

TEST(RecyclingFault, AFailureOfAnyOperationIsToldOrMakesNoDifference) {
  for (const bool carried_out : {false, true}) {
    for (std::uint64_t n = 0;; ++n) {
      ASSERT_LT(n, 300U);
      const auto disk = make_store();
      auto plan = std::make_shared<FaultPlan>();
      const auto io = make_fault_io(disk->io(), plan);
      plan->fail_once(n, Errc::io, carried_out);
      const bool retired = retire(*io).has_value();
      const bool saved = save(*io).has_value();
      if (plan->first_failed().empty()) break;
      const std::string where = plan->first_failed();
      ASSERT_EQ(broken(*disk), "") << where;
      if (saved) {
        EXPECT_TRUE(whole(*disk, kNew, 'n')) << where;
      }
      const auto next = disk->io();
      const auto again = retire(*next);
      ASSERT_TRUE(again) << where << ": " << again.error().message;
      EXPECT_TRUE(save(*next)) << where;
      ASSERT_EQ(broken(*disk), "") << where << ", and again";
      EXPECT_TRUE(whole(*disk, kNew, 'n')) << where << (retired ? "" : ", not retired");
    }
  }
}

TEST(RecyclingFault, AResumedConversionNeverTakesBytesOfBeforeForFinishedLeaves) {
  TargetFile file;
  file.path = kData.substr(1);
  file.bytes = kBytes;
  const Publication::Options options{.target = kNew, .id = "0123456789abcdef", .resumable = hash128("plan")};
  bool done = false;
  for (std::uint64_t n = 0; !done; ++n) {
    ASSERT_LT(n, 100U);
    const auto disk = make_store();
    const auto prepared = disk->io();
    ASSERT_TRUE(retire(*prepared));
    {
      auto plan = std::make_shared<FaultPlan>();
      const auto io = make_fault_io(disk->io(), plan);
      plan->fail_from(n, Errc::io);
      auto begun = Publication::begin(*io, options, {file});
      done = plan->first_failed().empty();
      plan->fail_from(0, Errc::io);  // killed: nothing is removed
    }
    disk->power_off({.name_operations = MemoryDisk::kAllNames, .block_seed = n + 1});
    const auto io = disk->io();
    const auto again = Publication::begin(*io, options, {file});
    ASSERT_TRUE(again) << n << ": " << again.error().message;
    for (const RecordedLeaf& leaf : (*again)->taken_over()) EXPECT_FALSE(leaf.is_finished()) << n;
    std::vector<std::string> found;
    for (const std::string& path : disk->tree()) {
      if (path.starts_with((*again)->root() + "/") && !path.ends_with("/")) found.push_back(path);
    }
    EXPECT_EQ(found, std::vector<std::string>{(*again)->root() + kData}) << n;
    EXPECT_EQ(disk->text(found.front()).size(), kBytes) << n;
  }
}

}  // namespace
}  // namespace ckpt::catalog
