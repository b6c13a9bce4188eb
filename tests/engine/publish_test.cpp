// The one commit: what it refuses, what it leaves, and what a failure or a power loss at any operation leaves.
#include "engine/publish/publish.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/fault_io.hpp"
#include "support/memory_io.hpp"

namespace ckpt {
namespace {

const std::string kId = "0123456789abcdef";

TargetFile target_file(std::string path, std::uint64_t bytes) {
  TargetFile file;
  file.path = std::move(path);
  file.bytes = bytes;
  return file;
}

/// What a test publishes, and how it looks once it is there.
struct Work {
  std::string target = "/d/m";
  bool directory = true;
  bool overwrite = false;
  std::string content = "new";  // of the data files
  bool sync_data = true;        // step 3, the caller's share

  std::string data_name() const { return directory ? "shards/weights/0.safetensors" : ""; }
  std::vector<TargetFile> files() const { return {target_file(data_name(), content.size())}; }
  std::vector<SmallFile> small_files() const {
    if (!directory) return {};
    return {{"sums.bin", "sums of " + content},
            {"index/manifest.json", "all of " + content},
            {"manifest.json", "all of " + content}};
  }
  Publication::Options options() const {
    return {.target = target,
            .id = kId,
            .directory = directory,
            .overwrite = overwrite,
            .own_files = [name = data_name()](const std::string&) -> Result<std::vector<std::string>> {
              return std::vector<std::string>{name, "sums.bin", "index/manifest.json", "manifest.json"};
            }};
  }
  /// What a reader finds: the content, "" where nothing is visible, else what is wrong.
  std::string seen(const MemoryDisk& disk) const {
    const std::string data = disk.text(directory ? join_path(target, data_name()) : target);
    bool visible = false;
    for (const std::string& path : disk.tree()) visible = visible || path == target || path == target + "/";
    if (!visible) return "";
    if (!directory) return data;
    const std::string whole = "all of " + data;
    const bool same = disk.text(target + "/manifest.json") == whole &&
                      disk.text(target + "/sums.bin") == "sums of " + data &&
                      disk.text(target + "/index/manifest.json") == whole;
    return same ? data : "half: " + data;
  }
};

/// The caller's part between begin and commit: writes the data file, cuts it, syncs it.
Result<> write_data(Io& io, const std::string& root, const Work& work) {
  CKPT_TRY(const FileHandle file,
           io.open(join_path(root, work.data_name()), {.mode = OpenOptions::Mode::write_existing}));
  auto written = io.write_at(file, 0, std::as_bytes(std::span(work.content)));
  if (written) written = io.truncate(file, work.content.size());
  if (written && work.sync_data) written = io.sync(file);
  auto closed = io.close(file);
  CKPT_CHECK(std::move(written));
  return closed;
}

Result<> publish(Io& io, const Work& work) {
  CKPT_TRY(const auto publication, Publication::begin(io, work.options(), work.files()));
  CKPT_CHECK(write_data(io, publication->root(), work));
  return publication->commit(work.small_files());
}

/// A disk with the directory /d; for an overwrite, with the old state published in it.
std::unique_ptr<MemoryDisk> make_disk(const Work& work, MemoryDisk::Options options = {}) {
  auto disk = std::make_unique<MemoryDisk>(options);
  disk->put("/d/other", "other");
  if (work.overwrite) {
    Work old = work;
    old.overwrite = false;
    old.content = "old";
    const auto io = disk->io();
    const auto done = publish(*io, old);
    EXPECT_TRUE(done) << done.error().message;
  }
  return disk;
}

std::vector<std::string> partials(const MemoryDisk& disk) {
  std::vector<std::string> found;
  for (const std::string& path : disk.tree()) {
    if (path.find(".partial-") != std::string::npos) found.push_back(path);
  }
  return found;
}

Errc code(const Result<>& result) {
  return result ? Errc::differs : result.error().code;
}

// --- every target: file and directory, fresh and over an old one -------------------------------------------------

class Publish : public testing::TestWithParam<Work> {};

TEST_P(Publish, MakesTheTargetVisibleAndDurableAndNothingElse) {
  const Work work = GetParam();
  const auto disk = make_disk(work);
  const auto io = disk->io();
  const auto done = publish(*io, work);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(work.seen(*disk), "new");
  EXPECT_TRUE(partials(*disk).empty());
  disk->power_off();
  EXPECT_EQ(work.seen(*disk), "new");
  EXPECT_EQ(disk->text("/d/other"), "other");
}

TEST_P(Publish, NothingIsVisibleBeforeCommit) {
  const Work work = GetParam();
  const std::string before = work.overwrite ? "old" : "";
  const auto disk = make_disk(work);
  const auto io = disk->io();
  {
    auto publication = Publication::begin(*io, work.options(), work.files());
    ASSERT_TRUE(publication) << publication.error().message;
    EXPECT_EQ((*publication)->root(), "/d/m.partial-" + kId);
    ASSERT_TRUE(write_data(*io, (*publication)->root(), work));
    EXPECT_EQ(work.seen(*disk), before);
    EXPECT_FALSE(partials(*disk).empty());
  }
  EXPECT_EQ(work.seen(*disk), before);
  EXPECT_TRUE(partials(*disk).empty());
}

TEST_P(Publish, ThePartialIsOnTheDiskBeforeAnythingIsWrittenIntoIt) {
  const Work work = GetParam();
  const auto disk = make_disk(work);
  const auto io = disk->io();
  const auto publication = Publication::begin(*io, work.options(), work.files());
  ASSERT_TRUE(publication);
  disk->power_off();
  EXPECT_FALSE(partials(*disk).empty()) << "the space would be lost, and nothing would name it";
}

/// What may be seen after a power loss: new once it was reported, before that new or old.
void expect_old_or_new(const Work& work, const MemoryDisk& disk, bool done, const std::string& when) {
  const std::string seen = work.seen(disk);
  const std::string old = work.overwrite ? "old" : "";
  EXPECT_TRUE(seen == "new" || (!done && seen == old)) << when << ": '" << seen << "'";
  EXPECT_EQ(disk.text("/d/other"), "other") << when;
}

/// The next run after a crash has to get through, whatever the crash left.
void expect_next_run_succeeds(const Work& work, MemoryDisk& disk, const std::string& when) {
  if (work.seen(disk) == "new") return;
  const auto io = disk.io();
  const auto again = publish(*io, work);
  EXPECT_TRUE(again) << when << ": " << again.error().message;
  EXPECT_EQ(work.seen(disk), "new") << when;
  EXPECT_TRUE(partials(disk).empty()) << when;
}

TEST_P(Publish, PowerLossAtAnyOperationLeavesOldOrNew) {
  const Work work = GetParam();
  const std::vector<MemoryDisk::PowerLoss> losses = {
      {},
      {.name_operations = MemoryDisk::kAllNames},
      {.name_operations = 1},
      {.name_operations = 3, .block_seed = 5},
      {.name_operations = MemoryDisk::kAllNames, .block_seed = 6},
  };
  for (const MemoryDisk::PowerLoss& loss : losses) {
    bool done = false;
    for (std::uint64_t n = 0; !done; ++n) {
      ASSERT_LT(n, 1000U);
      const auto disk = make_disk(work);
      const auto faults = std::make_shared<FaultPlan>();
      const auto io = make_fault_io(disk->io(), faults);
      faults->fail_from(n, Errc::io);
      done = publish(*io, work).has_value() && faults->first_failed().empty();
      const std::string when = "operation " + std::to_string(n) + ", " + faults->first_failed() + ", names kept " +
                               std::to_string(loss.name_operations);
      disk->power_off(loss);
      expect_old_or_new(work, *disk, done, when);
      expect_next_run_succeeds(work, *disk, when);
    }
  }
}

TEST_P(Publish, EveryOperationFailingOnceLeavesOldOrNewAndNoPartial) {
  const Work work = GetParam();
  for (const Errc failure : {Errc::io, Errc::no_space}) {
    bool reached_end = false;
    for (std::uint64_t n = 0; !reached_end; ++n) {
      ASSERT_LT(n, 1000U);
      const auto disk = make_disk(work);
      const auto faults = std::make_shared<FaultPlan>();
      const auto io = make_fault_io(disk->io(), faults);
      faults->fail_once(n, failure);
      const auto done = publish(*io, work);
      reached_end = faults->first_failed().empty();
      const std::string when = "operation " + std::to_string(n) + ", " + faults->first_failed();
      const bool visible = done || done.error().code == Errc::not_durable || done.error().code == Errc::not_done;
      EXPECT_EQ(work.seen(*disk), visible ? "new" : work.overwrite ? "old" : "") << when;
      if (done) {
        EXPECT_TRUE(partials(*disk).empty()) << when;
      }
      // Cleaning up is itself made of operations: only where one of those failed may something stay.
      if (!done && !visible) {
        EXPECT_TRUE(partials(*disk).empty()) << when << ": " << partials(*disk).front();
      }
      if (!done && visible && done.error().code == Errc::not_durable && !work.overwrite) {
        EXPECT_TRUE(partials(*disk).empty()) << when;
      }
      disk->power_off();
      expect_old_or_new(work, *disk, done.has_value(), when);
    }
  }
}

TEST_P(Publish, AnAnswerLostOnTheWayIsNeverTakenForTheOutcome) {
  const Work work = GetParam();
  bool rename_seen = false;
  bool reached_end = false;
  for (std::uint64_t n = 0; !reached_end; ++n) {
    ASSERT_LT(n, 1000U);
    const auto disk = make_disk(work);
    const auto faults = std::make_shared<FaultPlan>();
    const auto io = make_fault_io(disk->io(), faults);
    faults->fail_once(n, Errc::not_found, true);
    const auto done = publish(*io, work);
    reached_end = faults->first_failed().empty();
    const std::string when = "operation " + std::to_string(n) + ", " + faults->first_failed();
    const std::string seen = work.seen(*disk);
    if (faults->first_failed() == "rename /d/m") {
      rename_seen = true;
      EXPECT_TRUE(done) << when << ": " << done.error().message;
      EXPECT_EQ(seen, "new") << when;
      EXPECT_TRUE(partials(*disk).empty()) << when;
    }
    const bool visible = done || done.error().code == Errc::not_durable || done.error().code == Errc::not_done;
    EXPECT_EQ(seen, visible ? "new" : work.overwrite ? "old" : "") << when;
  }
  EXPECT_TRUE(rename_seen);
}

TEST_P(Publish, NothingIsDeletedWhileTheOutcomeIsUnknown) {
  // The rename happens, its answer is lost, and the look that follows fails: where old and new were exchanged, the
  // partial's name now leads to the old.
  const Work work = GetParam();
  bool rename_seen = false;
  bool reached_end = false;
  for (std::uint64_t n = 0; !reached_end; ++n) {
    ASSERT_LT(n, 1000U);
    const auto disk = make_disk(work);
    const auto faults = std::make_shared<FaultPlan>();
    const auto io = make_fault_io(disk->io(), faults);
    faults->fail_once(n, Errc::io, true, 2);
    const auto done = publish(*io, work);
    reached_end = faults->first_failed().empty();
    if (faults->first_failed() != "rename /d/m") continue;
    rename_seen = true;
    EXPECT_EQ(code(done), Errc::io);
    EXPECT_EQ(work.seen(*disk), "new");
    if (!work.overwrite || !work.directory) continue;  // a rename over a file leaves no old one
    Work old = work;
    old.target = "/d/m.partial-" + kId;
    EXPECT_EQ(old.seen(*disk), "old");
  }
  EXPECT_TRUE(rename_seen);
}

TEST_P(Publish, TheLastSyncFailingIsVisiblePerhapsNotDurable) {
  const Work work = GetParam();
  // The last directory sync of a run without failures is the one that makes the name durable.
  std::uint64_t last_sync = 0;
  bool found = false;
  for (std::uint64_t n = 0;; ++n) {
    const auto disk = make_disk(work);
    const auto faults = std::make_shared<FaultPlan>();
    const auto io = make_fault_io(disk->io(), faults);
    faults->fail_once(n, Errc::io);
    const auto done = publish(*io, work);
    if (faults->first_failed().empty()) break;
    if (faults->first_failed() != "fsync directory /d" || work.seen(*disk) != "new") continue;
    found = true;
    last_sync = n;
    EXPECT_EQ(code(done), Errc::not_durable);
  }
  EXPECT_TRUE(found) << last_sync;
}

TEST_P(Publish, WithoutSpaceNothingIsCreated) {
  Work work = GetParam();
  const auto disk = make_disk(work, {.capacity_bytes = 20000});
  const std::vector<std::string> before = disk->tree();
  work.content = std::string(20000, 'x');
  const auto io = disk->io();
  const auto done = publish(*io, work);
  ASSERT_EQ(code(done), Errc::no_space);
  EXPECT_NE(done.error().message.find("20.0 KiB needed"), std::string::npos) << done.error().message;
  EXPECT_EQ(disk->tree(), before);
}

TEST_P(Publish, ALeftOverOfTheSameIdIsSweptAndOneBeingWrittenIsNot) {
  const Work work = GetParam();
  const auto disk = make_disk(work);
  const std::string partial = "/d/m.partial-" + kId;
  disk->put(work.directory ? partial + "/sums.bin" : partial, "left over");
  disk->put("/d/m.partial-fedcba", "another conversion");
  const auto io = disk->io();
  {
    const auto writer = disk->io();
    auto held = writer->lock(partial, LockMode::exclusive);
    ASSERT_TRUE(held);
    EXPECT_EQ(code(publish(*io, work)), Errc::locked);
    EXPECT_EQ(disk->text(work.directory ? partial + "/sums.bin" : partial), "left over");
  }
  const auto done = publish(*io, work);
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(work.seen(*disk), "new");
  EXPECT_EQ(partials(*disk), std::vector<std::string>{"/d/m.partial-fedcba"});
}

TEST_P(Publish, ALeftOverWithWhatWasNotPutThereStaysAndStopsIt) {
  const Work work = GetParam();
  if (!work.directory) GTEST_SKIP() << "a file holds nothing else";
  const auto disk = make_disk(work);
  const std::string notes = "/d/m.partial-" + kId + "/shards/notes";
  disk->put("/d/m.partial-" + kId + "/sums.bin", "left over");
  disk->put(notes, "mine");
  const auto io = disk->io();
  const auto done = publish(*io, work);
  ASSERT_EQ(code(done), Errc::usage);
  EXPECT_NE(done.error().message.find("it also holds shards/notes"), std::string::npos) << done.error().message;
  EXPECT_EQ(disk->text(notes), "mine");
  EXPECT_EQ(disk->text("/d/m.partial-" + kId + "/sums.bin"), "left over");
}

TEST_P(Publish, WhatIsDoneAlreadyIsMadeDurableAndLosesItsLeftOvers) {
  const Work work = GetParam();
  const auto disk = make_disk(work);
  const std::string partial = "/d/m.partial-" + kId;
  const auto faults = std::make_shared<FaultPlan>();
  const auto io = make_fault_io(disk->io(), faults);
  {
    // Everything after the rename fails: visible, not durable, and an old directory stays.
    auto publication = Publication::begin(*io, work.options(), work.files());
    ASSERT_TRUE(publication && write_data(*io, (*publication)->root(), work));
    faults->count_only({"fsync directory"});
    faults->fail_from(faults->operation_count() + (work.directory ? 4 : 0), Errc::io);
    ASSERT_EQ(code((*publication)->commit(work.small_files())), Errc::not_durable);
    ASSERT_EQ(code(finish_published(*io, "/d/m", kId)), Errc::not_durable);
    ASSERT_EQ(!partials(*disk).empty(), work.directory && work.overwrite);
    faults->clear();
  }
  if (work.directory && work.overwrite) {
    const auto reader = disk->io();
    const auto held = reader->lock(partial, LockMode::shared);
    ASSERT_TRUE(held);
    EXPECT_TRUE(finish_published(*io, "/d/m", kId));
    EXPECT_FALSE(partials(*disk).empty()) << "removed while it was read";
  }
  disk->put("/d/m.partial-fedcba", "another conversion");
  EXPECT_TRUE(finish_published(*io, "/d/m/", kId));
  EXPECT_EQ(partials(*disk), std::vector<std::string>{"/d/m.partial-fedcba"});
  disk->power_off();
  EXPECT_EQ(work.seen(*disk), "new");
}

TEST_P(Publish, ThePartialIsLockedUntilItIsGone) {
  const Work work = GetParam();
  const auto disk = make_disk(work);
  const auto io = disk->io();
  const auto other = disk->io();
  auto publication = Publication::begin(*io, work.options(), work.files());
  ASSERT_TRUE(publication);
  auto second = Publication::begin(*other, work.options(), work.files());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::locked);
  publication->reset();
  EXPECT_TRUE(publish(*other, work));
  EXPECT_TRUE(other->lock("/d/m", LockMode::exclusive)) << "the lock outlives the commit";
}

TEST_P(Publish, AFileOfAnotherSizeThanPlannedIsNotPublished) {
  const Work work = GetParam();
  const auto disk = make_disk(work);
  const auto io = disk->io();
  {
    auto publication = Publication::begin(*io, work.options(), work.files());
    ASSERT_TRUE(publication);
    EXPECT_EQ(code((*publication)->commit(work.small_files())), Errc::internal);  // reserved, never cut
  }
  EXPECT_EQ(work.seen(*disk), work.overwrite ? "old" : "");
  EXPECT_TRUE(partials(*disk).empty());
}

TEST_P(Publish, WorksWhereThereAreNoLocksButSweepsAndReplacesNothing) {
  const Work work = GetParam();
  MemoryDisk disk({.locks = false});
  disk.put("/d/other", "other");
  if (work.overwrite) disk.put("/d/m", "old");
  const auto io = disk.io();
  const auto done = publish(*io, work);
  if (work.overwrite) {
    EXPECT_EQ(code(done), Errc::usage);
    EXPECT_EQ(disk.text("/d/m"), "old");
    return;
  }
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(work.seen(disk), "new");

  MemoryDisk littered({.locks = false});
  littered.put("/d/m.partial-" + kId, "perhaps being written");
  const auto careful = littered.io();
  EXPECT_EQ(code(publish(*careful, work)), Errc::locked);
  EXPECT_EQ(littered.text("/d/m.partial-" + kId), "perhaps being written");
}

TEST(PublishFile, AFileLinkedToItsTargetLosesItsFirstName) {
  Work work;
  work.directory = false;
  const auto disk = make_disk(work, {.half_rename = true});
  const auto io = disk->io();
  const auto done = publish(*io, work);
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(work.seen(*disk), "new");
  EXPECT_TRUE(partials(*disk).empty());
}

INSTANTIATE_TEST_SUITE_P(
    Targets, Publish,
    testing::Values(Work{.directory = true, .overwrite = false}, Work{.directory = true, .overwrite = true},
                    Work{.directory = false, .overwrite = false}, Work{.directory = false, .overwrite = true}),
    [](const auto& work) {
      return std::string(work.param.directory ? "Directory" : "File") + (work.param.overwrite ? "Overwrite" : "Fresh");
    });

}  // namespace
}  // namespace ckpt
