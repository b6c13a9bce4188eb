// Deletion in two phases: what it refuses, what it leaves, and what a failure or a power loss at any operation leaves.
#include "catalog/trash/trash.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "catalog/scan/marks.hpp"
#include "catalog/trash_deeds.hpp"
#include "engine/store/run_directory.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"

namespace ckpt::catalog {
namespace {

using State = TrashRecord::State;

const std::string kName = "step-000000007.g3";
const std::string kLive = "/s/r/" + kName;
const std::string kGone = "/s/.ckpt/trash/r/" + kName;

std::unique_ptr<MemoryDisk> make_store(MemoryDisk::Options options = {}) {
  auto disk = std::make_unique<MemoryDisk>(options);
  disk->put(kLive + "/shards/weights/00000-00000.safetensors", "weights");
  disk->put(kLive + "/index/manifest.json", "manifest");
  disk->put(kLive + "/manifest.json", "manifest");
  disk->put("/s/r/step-000000008.g4/manifest.json", "newer");
  return disk;
}

bool whole(const MemoryDisk& disk, const std::string& path) {
  return disk.text(path + "/shards/weights/00000-00000.safetensors") == "weights" &&
         disk.text(path + "/manifest.json") == "manifest" && disk.text(path + "/index/manifest.json") == "manifest";
}

bool holds_anything(const MemoryDisk& disk, const std::string& path) {
  for (const std::string& one : disk.tree()) {
    if (one == path + "/") return true;
  }
  return false;
}

Deleter::Deletion deletion(const std::string& name = kName) {
  return {.run = "r",
          .name = name,
          .record = {.id = "abc",
                     .step = 7,
                     .series = 2,
                     .series_from = 5,
                     .created = at(-9),
                     .bytes = 23,
                     .deleted = at(0),
                     .by = "ana@n17",
                     .why = "not in the newest 3 (4th)",
                     .policy = "pretrain",
                     .purge_at = at(24)}};
}

bool is_due(const TrashEntry& entry) {
  return entry.record.purge_at <= at(25);
}

TrashEntry only_entry(Io& io) {
  const auto entries = list_trash(io, "/s");
  EXPECT_TRUE(entries && entries->size() == 1);
  return entries && !entries->empty() ? entries->front() : TrashEntry{};
}

TEST(Trash, PutMovesACheckpointAndSaysWhoAndWhy) {
  const auto disk = make_store();
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash) << trash.error().message;
  const auto outcome = (*trash)->put(deletion());
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(*outcome, LockOutcome::free);
  EXPECT_FALSE(holds_anything(*disk, kLive));
  EXPECT_TRUE(whole(*disk, kGone));
  const TrashEntry entry = only_entry(*io);
  EXPECT_TRUE(entry.present && entry.recorded);
  EXPECT_EQ(entry.run, "r");
  EXPECT_EQ(entry.name, kName);
  TrashRecord wanted = deletion().record;
  wanted.changed = at(0);
  wanted.changed_by = "ana@n17";
  EXPECT_EQ(entry.record, wanted);
}

TEST(Trash, WhatIsReadStays) {
  const auto disk = make_store();
  const auto reader = disk->io();
  const auto lease = reader->lock(kLive, LockMode::shared);
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  EXPECT_EQ((*trash)->put(deletion()).value(), LockOutcome::read);
  EXPECT_TRUE(whole(*disk, kLive));
  EXPECT_TRUE(list_trash(*io, "/s")->empty());
}

TEST(Trash, WhatIsNotAnyMoreWhatWasDecidedAboutStays) {
  const auto disk = make_store();
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  Deleter::Deletion changed = deletion();
  std::string asked;
  changed.still = [&](const std::string& path) -> Result<bool> {
    asked = path;
    return false;
  };
  EXPECT_EQ((*trash)->put(changed).value(), LockOutcome::vanished);
  EXPECT_EQ(asked, kLive);
  EXPECT_TRUE(whole(*disk, kLive));
  EXPECT_EQ((*trash)->put(deletion("step-000000009.g9")).value(), LockOutcome::vanished);
}

TEST(Trash, WhatHoldsAnotherFileStays) {
  const std::string partly_written = kLive + "/marks/pin-0123456789abcdef.json.tmp";
  for (const std::string name : {"thesis.tex", "shards/weights/model.bin", "shards/optim/00000-0.safetensors",
                                 "marks/notes.json", "derived/manifest.json", "manifest.json.bak"}) {
    const auto disk = make_store();
    disk->put(partly_written, "{");
    disk->put(kLive + "/" + name, "mine");
    const auto io = disk->io();
    const auto trash = Deleter::open(*io, "/s", now(), {});
    ASSERT_TRUE(trash);
    const auto refused = (*trash)->put(deletion());
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().code, Errc::not_done);
    const std::string shown = name.starts_with("derived") ? "derived/" : name;
    EXPECT_EQ(refused.error().message, "it also holds " + shown);
    EXPECT_TRUE(whole(*disk, kLive));
    EXPECT_TRUE(list_trash(*io, "/s")->empty());
    ASSERT_TRUE(io->unlink(kLive + "/" + name));
    EXPECT_EQ((*trash)->put(deletion()).value(), LockOutcome::free) << name;
  }
}

TEST(Trash, AnotherToolsCheckpointStaysWhereARepositoryOrOneOfOursIsInIt) {
  for (const std::string inside :
       {".git/HEAD", ".ckpt/x", "step-000000001.g1/shards/weights/x", "derived/manifest.json", "any/deep/.git/HEAD",
        "any/r/step-000000001.g1/x", "any/deep/derived/manifest.json"}) {
    const auto disk = make_store();
    disk->put("/s/r/global_step5/latest", "one");
    disk->put("/s/r/global_step5/any/file", "its own");
    disk->put("/s/r/global_step5/" + inside, R"({"format":"ckpt","version":"1.0"})");
    const auto io = disk->io();
    const auto trash = Deleter::open(*io, "/s", now(), {});
    ASSERT_TRUE(trash);
    const auto refused = (*trash)->put(deletion("global_step5"));
    ASSERT_FALSE(refused) << inside;
    const std::size_t stray = inside.find_first_of("/", inside.starts_with("any/") ? inside.rfind('/') : 0);
    const bool in_checkpoint = inside.starts_with("step-");
    EXPECT_EQ(refused.error().message,
              "it also holds " + inside.substr(0, (in_checkpoint ? inside.find('/') : stray) + 1));
  }
}

TEST(Trash, RestoreBringsItBackAndKeepsTheHistory) {
  const auto disk = make_store();
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  ASSERT_TRUE((*trash)->put(deletion()));
  const auto back = (*trash)->restore(only_entry(*io), at(1), "bo@n2");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, LockOutcome::free);
  EXPECT_TRUE(whole(*disk, kLive));
  EXPECT_FALSE(holds_anything(*disk, kGone));
  const TrashEntry entry = only_entry(*io);
  EXPECT_EQ(entry.record.state, State::restored);
  EXPECT_EQ(entry.record.changed_by, "bo@n2");
  EXPECT_EQ(entry.record.by, "ana@n17");
  EXPECT_EQ((*trash)->restore(entry, at(1), "bo@n2").error().code, Errc::not_found);
  EXPECT_EQ((*trash)->put(deletion()).value(), LockOutcome::free);  // and again
}

TEST(Trash, RestoreNeverReplacesWhatHasItsName) {
  const auto disk = make_store();
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  ASSERT_TRUE((*trash)->put(deletion()));
  disk->put(kLive + "/manifest.json", "another");
  EXPECT_EQ((*trash)->restore(only_entry(*io), at(1), "bo").error().code, Errc::target_exists);
  EXPECT_EQ(disk->text(kLive + "/manifest.json"), "another");
  EXPECT_TRUE(whole(*disk, kGone));
}

TEST(Trash, PurgeRemovesWhatIsChosenAndNothingThatIsRead) {
  const auto disk = make_store();
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  ASSERT_TRUE((*trash)->put(deletion()));
  const auto none = (*trash)->purge(at(25), "cron", [](const TrashEntry&) { return false; });
  EXPECT_EQ(none.value().gone.size(), 0U);
  EXPECT_TRUE(whole(*disk, kGone));
  {
    const auto lease = io->lock(kGone, LockMode::shared);
    const auto refused = (*trash)->purge(at(25), "cron", is_due);
    EXPECT_EQ(refused.value().gone.size(), 0U);
    EXPECT_EQ(refused.value().kept, std::vector<std::string>{"r/" + kName + ": being read"});
    EXPECT_TRUE(whole(*disk, kGone));
  }
  const auto purged = (*trash)->purge(at(25), "cron", is_due);
  EXPECT_EQ(purged.value().gone.size(), 1U);
  EXPECT_EQ(purged.value().bytes, 23U);
  EXPECT_FALSE(holds_anything(*disk, kGone));
  EXPECT_EQ(only_entry(*io).record.state, State::purged);
}

TEST(Trash, WhatCameToAPutAwayCheckpointStaysThereWithIt) {
  const auto disk = make_store();
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  ASSERT_TRUE((*trash)->put(deletion()));
  for (const std::string name : {"results.txt", "nested/manifest.json"}) {
    disk->put(kGone + "/" + name, "mine");
    const std::string shown = name.substr(0, name.find('/') + 1);
    const auto purged = (*trash)->purge(at(25), "cron", is_due);
    ASSERT_TRUE(purged) << purged.error().message;
    EXPECT_EQ(purged->gone.size(), 0U);
    EXPECT_EQ(purged->kept,
              std::vector<std::string>{"r/" + kName + ": it also holds " + (shown.empty() ? name : shown)});
    EXPECT_TRUE(whole(*disk, kGone));
    EXPECT_EQ(disk->text(kGone + "/" + name), "mine");
    ASSERT_TRUE(io->unlink(kGone + "/" + name));
  }
  EXPECT_EQ((*trash)->purge(at(25), "cron", is_due).value().gone.size(), 1U);
}

TEST(Trash, NoMarkIsTakenWhileItIsPutThereAndAPinInTheTrashIsKept) {
  const auto disk = make_store();
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  Deleter::Deletion pinned_late = deletion();
  const auto other = disk->io();
  pinned_late.still = [&](const std::string& path) -> Result<bool> {
    const auto written = write_mark(*other, path + "/marks", {.kind = Mark::Kind::pin, .name = "late"});
    EXPECT_EQ(written.error().code, Errc::locked);
    return true;
  };
  ASSERT_EQ((*trash)->put(pinned_late).value(), LockOutcome::free);
  for (const char* mark : {"{ torn", R"({"schema":"ckpt.mark/1","kind":"pin","name":"p"})"}) {
    disk->put(kGone + "/marks/pin-0.json", mark);
    const auto kept = (*trash)->purge(at(25), "cron", is_due);
    EXPECT_EQ(kept.value().gone.size(), 0U) << mark;
    EXPECT_EQ(kept.value().kept.size(), 1U) << mark;
    EXPECT_TRUE(whole(*disk, kGone)) << mark;
  }
  const auto purged = (*trash)->purge(at(25), "cron", is_due);
  EXPECT_EQ(purged.value().kept, std::vector<std::string>{"r/" + kName + ": pinned"});
  disk->put(kGone + "/marks/pin-0.json",
            R"({"schema":"ckpt.mark/1","kind":"pin","name":"p","until":"1980-01-01T00:00:00Z"})");
  EXPECT_EQ((*trash)->purge(at(25), "cron", is_due).value().gone.size(), 1U) << "the pin is over";
}

TEST(Trash, AGenerationIsNotGivenTwiceWhenItsCheckpointIsGone) {
  const auto disk = make_store();
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  ASSERT_TRUE((*trash)->put(deletion("step-000000008.g4")));
  EXPECT_EQ(next_generation(*io, "/s/r").value(), 5U);
  ASSERT_TRUE((*trash)->purge(at(25), "cron", is_due));
  EXPECT_EQ(next_generation(*io, "/s/r").value(), 5U);
  ASSERT_TRUE((*trash)->purge(at(24 * 400), "cron", is_due));  // records of long ago are forgotten, but not this one
  EXPECT_EQ(next_generation(*io, "/s/r").value(), 5U);
}

TEST(Trash, RecordsOfLongAgoAreForgotten) {
  const auto disk = make_store();
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  ASSERT_TRUE((*trash)->put(deletion()));
  ASSERT_TRUE((*trash)->put(deletion("step-000000008.g4")));
  ASSERT_TRUE((*trash)->purge(at(25), "cron", is_due));
  ASSERT_TRUE((*trash)->purge(at(24 * 100), "cron", is_due));
  EXPECT_EQ(list_trash(*io, "/s")->size(), 2U);
  ASSERT_TRUE((*trash)->purge(at(24 * 400), "cron", is_due));
  EXPECT_EQ(only_entry(*io).name, "step-000000008.g4");
}

TEST(Trash, WithoutARecordNothingIsPurged) {
  const auto disk = make_store();
  disk->put(kGone + "/manifest.json", "moved by hand");
  disk->put("/s/.ckpt/trash/r/step-000000009.g9/manifest.json", "torn record");
  disk->put("/s/.ckpt/trash/r/step-000000009.g9.json", "{");
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  const auto purged = (*trash)->purge(at(24 * 1000), "cron", [](const TrashEntry&) { return true; });
  EXPECT_EQ(purged.value().gone.size(), 0U);
  EXPECT_EQ(disk->text(kGone + "/manifest.json"), "moved by hand");
  EXPECT_EQ(disk->text("/s/.ckpt/trash/r/step-000000009.g9/manifest.json"), "torn record");
}

TEST(Trash, ANameThatComesAgainGetsAnotherPlace) {
  const auto disk = make_store();
  disk->put("/s/r/global_step5/latest", "one");
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  ASSERT_TRUE((*trash)->put(deletion("global_step5")));
  disk->put("/s/r/global_step5/latest", "two");
  ASSERT_TRUE((*trash)->put(deletion("global_step5")));
  const auto entries = list_trash(*io, "/s").value();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[1].kept_as, "global_step5.~2");
  EXPECT_EQ(entries[1].name, "global_step5");
  ASSERT_EQ((*trash)->restore(entries[1], at(1), "bo").value(), LockOutcome::free);
  EXPECT_EQ(disk->text("/s/r/global_step5/latest"), "two");
}

TEST(Trash, APurgeRemovesTheMarkersOfAnotherToolFirst) {
  const auto disk = make_store();
  for (const char* file : {"a", "deep/mark", "z"}) disk->put(std::string("/s/r/global_step5/") + file, "x");
  const auto plan = std::make_shared<FaultPlan>();
  const auto io = make_fault_io(disk->io(), plan);
  const auto trash = Deleter::open(*io, "/s", now(), {.markers = {"deep/mark", "none"}});
  ASSERT_TRUE(trash);
  ASSERT_TRUE((*trash)->put(deletion("global_step5")));
  plan->keep_operations();
  ASSERT_TRUE((*trash)->purge(at(25), "cron", is_due));
  std::vector<std::string> removed;
  for (const FaultPlan::Operation& one : plan->operations()) {
    const std::string name = base_name(one.object);
    if (one.name == "unlink" && (name == "a" || name == "mark" || name == "z")) removed.push_back(name);
  }
  ASSERT_EQ(removed.size(), 3U);
  EXPECT_EQ(removed.front(), "mark");
}

TEST(Trash, TwoProcessesDoNotDeleteAtOnce) {
  const auto disk = make_store();
  const auto io = disk->io();
  const auto other = disk->io();
  auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  EXPECT_EQ(Deleter::open(*other, "/s", now(), {}).error().code, Errc::locked);
  trash->reset();
  EXPECT_TRUE(Deleter::open(*other, "/s", now(), {}));
}

TEST(Trash, WithoutLocksNothingIsDeleted) {
  const auto disk = make_store({.locks = false});
  const auto io = disk->io();
  EXPECT_EQ(Deleter::open(*io, "/s", now(), {}).error().code, Errc::unsupported);
}

TEST(Trash, ARunMayLieInTheStoreItselfOrDeepBelow) {
  const auto disk = make_store();
  disk->put("/s/step-000000001.g1/manifest.json", "in the store");
  disk->put("/s/prod/llama/step-000000001.g6/manifest.json", "deep");
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  for (const std::string run : {".", "prod/llama"}) {
    Deleter::Deletion one = deletion(run == "." ? "step-000000001.g1" : "step-000000001.g6");
    one.run = run;
    ASSERT_EQ((*trash)->put(one).value(), LockOutcome::free) << run;
  }
  const auto entries = list_trash(*io, "/s").value();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].run, ".");
  EXPECT_EQ(entries[1].run, "prod/llama");
  EXPECT_EQ(next_generation(*io, "/s/prod/llama").value(), 7U);
  for (const TrashEntry& entry : entries) EXPECT_EQ((*trash)->restore(entry, at(1), "bo").value(), LockOutcome::free);
  EXPECT_EQ(disk->text("/s/step-000000001.g1/manifest.json"), "in the store");
  EXPECT_EQ(disk->text("/s/prod/llama/step-000000001.g6/manifest.json"), "deep");
}

// --- failures at every operation -----------------------------------------------------------------------------------

Result<> put_it(Io& io) {
  CKPT_TRY(const auto trash, Deleter::open(io, "/s", now(), {}));
  CKPT_TRY(const LockOutcome outcome, trash->put(deletion()));
  // After a crash the first process may have done it already.
  const bool done = outcome == LockOutcome::free || outcome == LockOutcome::vanished;
  return done ? Result<>() : fail(Errc::locked, "put: refused");
}

Result<> restore_it(Io& io) {
  CKPT_TRY(const auto trash, Deleter::open(io, "/s", now(), {}));
  CKPT_TRY(const auto entries, list_trash(io, "/s"));
  for (const TrashEntry& entry : entries) {
    if (!entry.present) continue;
    CKPT_TRY(const LockOutcome outcome, trash->restore(entry, at(1), "bo"));
    if (outcome != LockOutcome::free) return fail(Errc::locked, "restore: refused");
  }
  return {};
}

Result<> purge_it(Io& io) {
  CKPT_TRY(const auto trash, Deleter::open(io, "/s", now(), {}));
  CKPT_TRY(const auto purged, trash->purge(at(25), "cron", is_due));
  return purged.kept.empty() ? Result<>() : fail(Errc::io, purged.kept.front());
}

std::vector<Deed> deeds() {
  const auto trashed = [](const MemoryDisk& disk) { return !holds_anything(disk, kLive) && whole(disk, kGone); };
  const auto back = [](const MemoryDisk& disk) { return whole(disk, kLive) && !holds_anything(disk, kGone); };
  const auto purged = [](const MemoryDisk& disk) {
    return !holds_anything(disk, kLive) && !holds_anything(disk, kGone);
  };
  return {{"put", false, put_it, trashed}, {"restore", true, restore_it, back}, {"purge", true, purge_it, purged}};
}

/// At every instant: whole in one of its places, or, where it is purged, no half of it with a manifest.
std::string broken(const MemoryDisk& disk, const Deed& deed) {
  const bool live = whole(disk, kLive);
  const bool trashed = whole(disk, kGone);
  if (holds_anything(disk, kLive) && !live) return "half of it in its run";
  if (std::string(deed.name) != "purge") return live || trashed ? "" : "lost";
  if (live) return "back from the dead";
  const bool marked = disk.text(kGone + "/manifest.json") != "(none)";
  const bool data = disk.text(kGone + "/shards/weights/00000-00000.safetensors") == "weights";
  return marked && !data ? "half of it looks whole" : "";
}

std::unique_ptr<MemoryDisk> prepared(const Deed& deed, MemoryDisk::Options options) {
  auto disk = make_store(options);
  if (deed.in_trash) {
    const auto io = disk->io();
    EXPECT_TRUE(put_it(*io));
  }
  return disk;
}

TEST(TrashFault, PowerLossAtAnyOperationLosesNothingAndIsMended) {
  expect_power_losses_mended({.all = deeds(), .prepared = prepared, .broken = broken});
}

TEST(TrashFault, PowerLossWhereRenamesAreTwoOperationsLosesNothing) {
  for (const Deed& deed : deeds()) {
    bool done = false;
    for (std::uint64_t n = 0; !done; ++n) {
      ASSERT_LT(n, 200U);
      const auto disk = prepared(deed, {});
      auto plan = std::make_shared<FaultPlan>();
      const auto io = make_fault_io(disk->io(), plan);
      plan->fail_from(n, Errc::io);
      done = deed.act(*io).has_value() && plan->first_failed().empty();
      disk->power_off();
      ASSERT_EQ(broken(*disk, deed), "") << deed.name << ", operation " << n << " " << plan->first_failed();
      // Whatever is done next: of what has both names none is emptied.
      const auto next = disk->io();
      const bool both = whole(*disk, kLive) && whole(*disk, kGone);
      static_cast<void>(purge_it(*next));
      if (both) {
        ASSERT_TRUE(whole(*disk, kLive)) << deed.name << ", operation " << n << " " << plan->first_failed();
      }
    }
  }
}

TEST(TrashFault, AFailureOfAnyOperationIsToldOrMakesNoDifference) {
  expect_failures_told({.all = deeds(), .prepared = prepared, .broken = broken});
}

TEST(TrashRecord, ReadsBackAsItWas) {
  TrashRecord record = deletion().record;
  record.state = State::purging;
  record.changed = at(2);
  record.changed_by = "cron";
  EXPECT_EQ(parse_record(record_text(record)).value(), record);
  record.why = "metric \"a\\b\"\n\x01 \xc3\xa9";
  EXPECT_EQ(parse_record(record_text(record)).value(), record);
  record.by = "caf\xe9";
  EXPECT_EQ(parse_record(record_text(record)).value().by, "caf?");
}

TEST(TrashRecord, AnythingElseIsRefused) {
  const std::string good = record_text(deletion().record);
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[1]"), good.substr(0, good.size() / 2), good + good}) {
    EXPECT_EQ(parse_record(text).error().code, Errc::corrupt) << text;
  }
  for (const std::string from : {"\"trashed\"", "ckpt.trash/1", "\"step\":7", "\"deleted_ms\":"}) {
    std::string text = good;
    text.replace(text.find(from), from.size(), "\"wrong\"");
    EXPECT_FALSE(parse_record(text)) << text;
  }
}

}  // namespace
}  // namespace ckpt::catalog
