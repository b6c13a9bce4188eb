// Dropping the optimizer of a checkpoint, and bringing it back: what it refuses, and what a failure or a power loss at
// any operation leaves. The weights are the same bytes at every instant.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "catalog/trash/trash.hpp"
#include "catalog/trash_deeds.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/seal.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"

namespace ckpt::catalog {
namespace {

using State = TrashRecord::State;
using universal::FileClass;
using universal::Manifest;

const std::string kName = "step-000000007.g3";
const std::string kLive = "/s/r/" + kName;
const std::string kKept = "/s/.ckpt/trash/r/" + kName + ".optim";
const std::string kWeights = "/shards/weights/00000-00000.safetensors";
const std::string kFile = "/00000-00000.safetensors";
const std::string kOptim = "/shards/optim" + kFile;

Manifest described(const std::string& slot = "exp_avg") {
  Manifest out;
  out.id = hash128("demote");
  out.created = "2026-01-02T03:04:05.678000000Z";
  out.generator = "test";
  out.tensors.push_back({.tensor = {.name = "o", .shape = {2}, .role = Role::slot, .parameter = "p", .slot = slot}});
  out.tensors.push_back({.tensor = {.name = "w", .shape = {2}}});
  return out;
}

universal::Seal sealed(const Manifest& manifest) {
  auto seal = universal::seal(manifest,
                              {{.key = {.file_class = FileClass::weights}, .bytes = 4104, .data_begin = 4096},
                               {.key = {.file_class = FileClass::optim}, .bytes = 4104, .data_begin = 4096}},
                              {Hash128{}, Hash128{}});
  EXPECT_TRUE(seal) << seal.error().message;
  return seal ? *std::move(seal) : universal::Seal{};
}

std::unique_ptr<MemoryDisk> make_store(const Manifest& manifest, MemoryDisk::Options options = {}) {
  const universal::Seal seal = sealed(manifest);
  auto disk = std::make_unique<MemoryDisk>(options);
  disk->put(kLive + kWeights, "weights");
  disk->put(kLive + kOptim, "optim");
  disk->put(kLive + "/sums.bin", seal.sums);
  disk->put(kLive + "/index/manifest.json", seal.manifest);
  disk->put(kLive + "/manifest.json", seal.manifest);
  return disk;
}

Deleter::Deletion demotion() {
  return {.run = "r",
          .name = kName,
          .record = {.id = hash128("demote").hex(),
                     .step = 7,
                     .created = at(-9),
                     .bytes = 4104,
                     .deleted = at(0),
                     .by = "ana@n17",
                     .why = "drop_optimizer_after",
                     .policy = "pretrain",
                     .purge_at = at(24)}};
}

Result<> demote_it(Io& io) {
  CKPT_TRY(const auto trash, Deleter::open(io, "/s", now(), {}));
  CKPT_TRY(const LockOutcome outcome, trash->demote(demotion()));
  // After a crash the first process may have done it already.
  return outcome == LockOutcome::free || outcome == LockOutcome::vanished ? Result<>()
                                                                          : fail(Errc::locked, "demote: refused");
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

Manifest manifest_of(const MemoryDisk& disk, const std::string& file) {
  const auto manifest = universal::parse_manifest(disk.text(kLive + file));
  EXPECT_TRUE(manifest) << file << ": " << manifest.error().message;
  return manifest ? *manifest : Manifest{};
}

/// What no fault may do: "" where the checkpoint is whole, with its optimizer or without.
std::string broken(const MemoryDisk& disk) {
  if (disk.text(kLive + kWeights) != "weights") return "the weights are not what they were";
  if (disk.text(kLive + "/sums.bin") != sealed(described()).sums) return "sums.bin is not what it was";
  const auto manifest = universal::parse_manifest(disk.text(kLive + "/manifest.json"));
  if (!manifest) return "no manifest";
  if (!manifest->is_dropped(FileClass::optim) && disk.text(kLive + kOptim) != "optim") return "no optimizer";
  const auto copy = universal::parse_manifest(disk.text(kLive + "/index/manifest.json"));
  if (!copy || copy->id != manifest->id) return "no copy of the manifest";
  return "";
}

bool is_demoted(const MemoryDisk& disk) {
  return manifest_of(disk, "/manifest.json").is_dropped(FileClass::optim) &&
         disk.text(kLive + "/manifest.json") == disk.text(kLive + "/index/manifest.json") &&
         disk.text(kLive + kOptim) == "(none)" && disk.text(kKept + kFile) == "optim";
}

bool is_back(const MemoryDisk& disk) {
  return !manifest_of(disk, "/manifest.json").is_dropped(FileClass::optim) &&
         disk.text(kLive + "/manifest.json") == disk.text(kLive + "/index/manifest.json") &&
         disk.text(kLive + kOptim) == "optim" && disk.text(kKept + kFile) == "(none)";
}

TEST(Demote, TheOptimizerGoesToTheTrashAndTheManifestSaysSo) {
  const auto disk = make_store(described());
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  const auto outcome = (*trash)->demote(demotion());
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(*outcome, LockOutcome::free);
  EXPECT_EQ(broken(*disk), "");
  EXPECT_TRUE(is_demoted(*disk));
  const Manifest manifest = manifest_of(*disk, "/manifest.json");
  EXPECT_EQ(manifest.revision, 1U);
  EXPECT_EQ(manifest.tensors.size(), 2U) << "rows of what was dropped stay";
  const auto entries = list_trash(*io, "/s");
  ASSERT_EQ(entries->size(), 1U);
  EXPECT_EQ(entries->front().name, kName);
  EXPECT_EQ(entries->front().record.dropped, "optim");
  EXPECT_EQ((*trash)->demote(demotion()).value(), LockOutcome::vanished) << "once is enough";
}

TEST(Demote, OtherFilesAmongTheOptimizersStopIt) {
  const auto disk = make_store(described());
  disk->put(kLive + "/shards/optim/notes.txt", "mine");
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  const auto refused = (*trash)->demote(demotion());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "it also holds shards/optim/notes.txt");
  EXPECT_EQ(broken(*disk), "");
  EXPECT_EQ(manifest_of(*disk, "/manifest.json").revision, 0U);
}

TEST(Demote, UndeleteBringsItBackWithTheNextRevision) {
  const auto disk = make_store(described());
  const auto io = disk->io();
  ASSERT_TRUE(demote_it(*io));
  ASSERT_TRUE(restore_it(*io));
  EXPECT_EQ(broken(*disk), "");
  EXPECT_TRUE(is_back(*disk));
  EXPECT_EQ(manifest_of(*disk, "/manifest.json").revision, 2U);
  ASSERT_TRUE(demote_it(*io));
  EXPECT_TRUE(is_demoted(*disk));
  EXPECT_EQ(manifest_of(*disk, "/manifest.json").revision, 3U);
}

TEST(Demote, WhatCameToADroppedOptimizerStaysThereWithIt) {
  const auto disk = make_store(described());
  const auto io = disk->io();
  ASSERT_TRUE(demote_it(*io));
  disk->put(kKept + "/notes.txt", "mine");
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  const auto purged = (*trash)->purge(at(99), "cron", [](const TrashEntry&) { return true; });
  ASSERT_TRUE(purged) << purged.error().message;
  EXPECT_EQ(purged->kept, (std::vector<std::string>{"r/" + kName + ": it also holds notes.txt"}));
  EXPECT_TRUE(is_demoted(*disk));
}

/// An undelete that failed, or was killed, at any operation: a prune long after the grace removes nothing of what was
/// asked back, and finishes it where it had begun.
TEST(DemoteFault, WhatWasAskedBackIsNeverPurged) {
  std::size_t finished = 0;
  for (std::uint64_t n = 0;; ++n) {
    ASSERT_LT(n, 500U);
    const auto disk = make_store(described());
    ASSERT_TRUE(demote_it(*disk->io()));
    const auto plan = std::make_shared<FaultPlan>();
    plan->fail_from(n, Errc::no_space);
    const auto restored = restore_it(*make_fault_io(disk->io(), plan));
    if (plan->first_failed().empty()) break;
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
    const auto io = disk->io();
    const auto entries = list_trash(*io, "/s");
    ASSERT_TRUE(entries);
    ASSERT_EQ(entries->size(), 1U);
    const bool began = entries->front().record.state == TrashRecord::State::restoring;
    {
      const auto trash = Deleter::open(*io, "/s", now(), {});
      ASSERT_TRUE(trash);
      ASSERT_TRUE(
          (*trash)->purge(at(99), "cron", [](const TrashEntry& entry) { return entry.record.purge_at < at(99); }));
    }
    EXPECT_EQ(broken(*disk), "");
    EXPECT_TRUE(!began || is_back(*disk)) << "what was begun is lost";
    EXPECT_TRUE(!restored || is_back(*disk));
    finished += began ? 1U : 0U;
  }
  EXPECT_GT(finished, 5U);
}

TEST(Demote, WhatIsReadStaysWhole) {
  const auto disk = make_store(described());
  const auto reader = disk->io();
  auto lease = reader->lock(kLive, LockMode::shared);
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  EXPECT_EQ((*trash)->demote(demotion()).value(), LockOutcome::read);
  EXPECT_EQ(disk->text(kLive + kOptim), "optim");
  EXPECT_EQ(manifest_of(*disk, "/manifest.json").revision, 0U);
}

TEST(Demote, WeightsThatStandOnlyInTheOptimizerAreNotDropped) {
  const auto disk = make_store(described("master"));  // of a parameter that has no row
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  EXPECT_EQ((*trash)->demote(demotion()).error().code, Errc::unsupported);
  EXPECT_EQ(disk->text(kLive + kOptim), "optim");
  EXPECT_EQ(manifest_of(*disk, "/manifest.json").revision, 0U);
}

TEST(Demote, AnotherCheckpointOfThatNameGetsNoStrangeOptimizer) {
  const auto disk = make_store(described());
  const auto io = disk->io();
  ASSERT_TRUE(demote_it(*io));
  Manifest other = described();
  other.id = hash128("other");
  disk->put(kLive + "/manifest.json", sealed(other).manifest);
  EXPECT_FALSE(restore_it(*io));
  EXPECT_EQ(disk->text(kKept + kFile), "optim");
}

TEST(Demote, PurgeRemovesTheOptimizerAlone) {
  const auto disk = make_store(described());
  const auto io = disk->io();
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  ASSERT_TRUE((*trash)->demote(demotion()));
  const auto purged = (*trash)->purge(at(25), "cron", [](const TrashEntry&) { return true; });
  ASSERT_TRUE(purged);
  EXPECT_EQ(purged->gone.size(), 1U);
  EXPECT_EQ(disk->text(kKept + kFile), "(none)");
  EXPECT_EQ(broken(*disk), "");
}

std::vector<Deed> deeds() {
  return {{"demote", false, demote_it, is_demoted}, {"restore", true, restore_it, is_back}};
}

std::unique_ptr<MemoryDisk> prepared(const Deed& deed, MemoryDisk::Options options) {
  auto disk = make_store(described(), options);
  if (deed.in_trash) {
    const auto io = disk->io();
    EXPECT_TRUE(demote_it(*io));
  }
  return disk;
}

TEST(DemoteFault, PowerLossAtAnyOperationLeavesItWholeOrWeightsOnlyAndIsMended) {
  expect_power_losses_mended({.all = deeds(), .prepared = prepared, .broken = [](const MemoryDisk& disk, const Deed&) {
                                return broken(disk);
                              }});
}

TEST(DemoteFault, AFailureOfAnyOperationIsToldOrMakesNoDifference) {
  expect_failures_told({.all = deeds(), .prepared = prepared, .broken = [](const MemoryDisk& disk, const Deed&) {
                          return broken(disk);
                        }});
}

TEST(DemoteFault, WhatTheNextProcessGoesOnFromOutlivesAPowerLoss) {
  for (const Deed& deed : deeds()) {
    for (std::uint64_t n = 0;; ++n) {
      ASSERT_LT(n, 200U);
      const auto disk = prepared(deed, {.whole_renames = true});
      auto plan = std::make_shared<FaultPlan>();
      plan->fail_once(n, Errc::io);
      static_cast<void>(deed.act(*make_fault_io(disk->io(), plan)));
      if (plan->first_failed().empty()) break;
      {
        const auto next = disk->io();
        const auto trash = Deleter::open(*next, "/s", now(), {});
        ASSERT_TRUE(trash);
        if (!deed.in_trash) {
          ASSERT_TRUE((*trash)->purge(at(25), "cron", [](const TrashEntry&) { return true; }));
        }
      }
      disk->power_off();
      const std::string where = std::string(deed.name) + ": " + plan->first_failed();
      ASSERT_EQ(broken(*disk), "") << where;
      const bool dropped = manifest_of(*disk, "/manifest.json").is_dropped(FileClass::optim);
      if (deed.in_trash && dropped) {
        EXPECT_EQ(disk->text(kKept + kFile), "optim") << where;
      }
    }
  }
}

}  // namespace
}  // namespace ckpt::catalog
