// Deletion on a file system whose locks do not reach other hosts, by two hosts, with everything a network file system
// may do to them. Simulated: support/network_io.hpp.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "catalog/trash/trash.hpp"
#include "engine/locks/lease.hpp"
#include "engine/store/run_directory.hpp"
#include "format/universal/manifest.hpp"
#include "format/universal/seal.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"
#include "support/network_io.hpp"

namespace ckpt::catalog {
namespace {

using std::chrono::minutes;

const std::string kName = "step-000000007.g3";
const std::string kLive = "/s/r/" + kName;
const std::string kGone = "/s/.ckpt/trash/r/" + kName;
const std::string kClaims = "/s/.ckpt/claims";

Time at(std::int64_t hours) {
  return Time(std::chrono::hours(480'000 + hours));
}

Deadline now() {
  return std::chrono::steady_clock::now();
}

std::string manifest_text(std::uint64_t step) {
  universal::Manifest manifest;
  manifest.id = hash128(std::to_string(step));
  manifest.created = "2026-01-02T03:04:05.678000000Z";
  manifest.generator = "test";
  manifest.tensors.push_back(
      {.tensor = {.name = "o", .shape = {2}, .role = Role::slot, .parameter = "w", .slot = "exp_avg"}});
  manifest.tensors.push_back({.tensor = {.name = "w", .shape = {2}}});
  const auto seal =
      universal::seal(manifest,
                      {{.key = {.file_class = universal::FileClass::weights}, .bytes = 4104, .data_begin = 4096},
                       {.key = {.file_class = universal::FileClass::optim}, .bytes = 4104, .data_begin = 4096}},
                      {Hash128{}, Hash128{}});
  EXPECT_TRUE(seal) << seal.error().message;
  return seal ? seal->manifest : std::string();
}

Deleter::Deletion deletion(std::uint64_t step = 7, const std::string& name = kName) {
  return {.run = "r",
          .name = name,
          .record = {.id = hash128(std::to_string(step)).hex(),
                     .step = step,
                     .bytes = 23,
                     .deleted = at(0),
                     .by = "ana@n17",
                     .why = "no rule",
                     .policy = "p",
                     .purge_at = at(0)}};
}

class NetworkTrash : public testing::TestWithParam<bool> {
 protected:
  NetworkTrash() : network_(disk_, {.locks = GetParam()}) {
    put(7, kLive);
    disk_.put(kClaims + "/ready", "");
  }
  void put(std::uint64_t step, const std::string& path) {
    disk_.put(path + "/shards/weights/00000-00000.safetensors", "weights");
    disk_.put(path + "/index/manifest.json", manifest_text(step));
    disk_.put(path + "/manifest.json", manifest_text(step));
  }
  bool whole(const std::string& path) const {
    return disk_.text(path + "/shards/weights/00000-00000.safetensors") == "weights" &&
           disk_.text(path + "/manifest.json") != "(none)";
  }

  MemoryDisk disk_;
  NetworkDisk network_;
};

INSTANTIATE_TEST_SUITE_P(Locks, NetworkTrash, testing::Bool(),
                         [](const auto& one) { return one.param ? "OfOneHost" : "None"; });

TEST_P(NetworkTrash, WhatAnotherHostReadsStaysAndItSaysWhoReads) {
  const auto reader = network_.io("n17", 4211);
  const auto lease = Lease::take(*reader, kLive, {});
  ASSERT_TRUE(lease) << lease.error().message;
  const auto io = network_.io("n2");
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash) << trash.error().message;
  EXPECT_EQ((*trash)->put(deletion()).value(), LockOutcome::read);
  EXPECT_EQ((*trash)->reader(), "host n17 pid 4211");
  EXPECT_EQ((*trash)->demote(deletion()).value(), LockOutcome::read);
  EXPECT_TRUE(whole(kLive));
  EXPECT_TRUE(list_trash(*io, "/s")->empty());
}

TEST_P(NetworkTrash, WhatNobodyReadsGoes) {
  const auto io = network_.io("n2");
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash) << trash.error().message;
  EXPECT_EQ((*trash)->put(deletion()).value(), LockOutcome::free);
  EXPECT_TRUE(whole(kGone));
  network_.forget();
  EXPECT_EQ((*trash)->purge(at(1), "cron", [](const TrashEntry&) { return true; })->gone.size(), 1u);
  EXPECT_FALSE(whole(kGone));
}

TEST_P(NetworkTrash, AReaderThatBeginsJustBeforeTheRenameGetsItBack) {
  const auto plan = std::make_shared<FaultPlan>();
  const auto io = make_fault_io(network_.io("n2"), plan);
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  const auto reader = network_.io("n17", 4211);
  std::unique_ptr<Lease> lease;
  // Every rename of the deletion in turn: the one of the checkpoint itself is among them.
  plan->count_only({"rename"});
  bool was_between = false;
  for (std::uint64_t n = 0; n < 6; ++n) {
    lease.reset();
    bool began = false;
    plan->call_at(plan->operation_count() + n, [&] {
      auto taken = Lease::take(*reader, kLive, {});
      if (taken) lease = *std::move(taken);
      began = lease != nullptr;
    });
    const auto outcome = (*trash)->put(deletion());
    ASSERT_TRUE(outcome) << outcome.error().message;
    if (began) {
      EXPECT_EQ(*outcome, LockOutcome::read) << "rename " << n;
      EXPECT_TRUE(whole(kLive));
      was_between = was_between || plan->first_failed() == "rename " + kGone;
      continue;
    }
    EXPECT_EQ(*outcome, LockOutcome::free);
    break;
  }
  EXPECT_TRUE(was_between);
}

TEST_P(NetworkTrash, AReaderThatBeginsJustBeforeADemotionKeepsItsOptimizer) {
  disk_.put(kLive + "/shards/optim/00000-00000.safetensors", "optim");
  const auto plan = std::make_shared<FaultPlan>();
  const auto io = make_fault_io(network_.io("n2"), plan);
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  const auto reader = network_.io("n17", 4211);
  std::unique_ptr<Lease> lease;
  // Every rename of the demotion in turn: that of the revised manifest is among them.
  plan->count_only({"rename"});
  bool was_between = false;
  std::uint64_t revision = 0;
  for (std::uint64_t n = 0; n < 8; ++n) {
    lease.reset();
    plan->call_at(plan->operation_count() + n, [&] {
      auto taken = Lease::take(*reader, kLive, {});
      if (taken) lease = *std::move(taken);
    });
    const auto outcome = (*trash)->demote(deletion());
    ASSERT_TRUE(outcome) << outcome.error().message;
    const auto manifest = universal::parse_manifest(disk_.text(kLive + "/manifest.json"));
    ASSERT_TRUE(manifest) << manifest.error().message;
    const bool before = plan->first_failed() == "rename " + kLive + "/manifest.json";
    was_between = was_between || before;
    if (*outcome == LockOutcome::free) {
      EXPECT_FALSE(before);
      EXPECT_EQ(disk_.text(kLive + "/shards/optim/00000-00000.safetensors"), "(none)");
      break;
    }
    EXPECT_EQ(*outcome, LockOutcome::read) << "rename " << n;
    EXPECT_EQ((*trash)->reader(), "host n17 pid 4211");
    EXPECT_FALSE(manifest->is_dropped(universal::FileClass::optim)) << "rename " << n;
    EXPECT_EQ(disk_.text(kLive + "/shards/optim/00000-00000.safetensors"), "optim");
    EXPECT_GE(manifest->revision, revision);
    revision = manifest->revision;
    if (revision != 0) {
      EXPECT_EQ(disk_.text(kLive + "/index/manifest.json"), disk_.text(kLive + "/manifest.json"));
    }
    network_.forget();
    EXPECT_TRUE(list_trash(*io, "/s")->empty());
  }
  EXPECT_TRUE(was_between);
  EXPECT_GT(revision, 0u) << "it was taken back";
}

TEST_P(NetworkTrash, ThePurgeLooksAgain) {
  const auto io = network_.io("n2");
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  ASSERT_EQ((*trash)->put(deletion()).value(), LockOutcome::free);
  const auto all = [](const TrashEntry&) { return true; };
  const auto reader = network_.io("n17", 4211);
  {
    // As of a host that still remembers the name it had: the id is the same.
    const auto claim = ClaimFile::write(*reader, "/s", deletion().record.id);
    ASSERT_TRUE(claim);
    const auto refused = (*trash)->purge(at(1), "cron", all);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->kept, std::vector<std::string>{"r/" + kName + ": being read: host n17 pid 4211"});
    EXPECT_TRUE(whole(kGone));
  }
  EXPECT_EQ((*trash)->purge(at(1), "cron", all)->gone.size(), 1u);
}

TEST_P(NetworkTrash, OneWithoutAnIdIsKnownByItsPlace) {
  disk_.put("/s/r/global_step5/latest", "x");
  const auto reader = network_.io("n17", 4211);
  const auto io = network_.io("n2");
  const auto trash = Deleter::open(*io, "/s", now(), {});
  ASSERT_TRUE(trash);
  Deleter::Deletion one = deletion(5, "global_step5");
  one.record.id.clear();
  auto lease = Lease::take(*reader, "/s/r/global_step5", {});
  ASSERT_TRUE(lease);
  EXPECT_EQ((*trash)->put(one).value(), LockOutcome::read);
  lease->reset();
  EXPECT_EQ((*trash)->put(one).value(), LockOutcome::free);
  const auto claim = ClaimFile::write(*reader, "/s", place_key("/s", "/s/r/global_step5"));
  EXPECT_EQ((*trash)->purge(at(1), "cron", [](const TrashEntry&) { return true; })->gone.size(), 0u);
}

TEST_P(NetworkTrash, AKilledReaderOfAnotherHostIsForgottenWhenItWasSilentForTenMinutes) {
  const auto reader = network_.io("n17", 4211);
  auto lease = Lease::take(*reader, kLive, {});
  ASSERT_TRUE(lease);
  network_.kill("n17", 4211);
  lease->reset();
  const auto prune = [&] {
    const auto io = network_.io("n2");
    const auto trash = Deleter::open(*io, "/s", now(), {});
    EXPECT_TRUE(trash) << trash.error().message;
    return trash ? (*trash)->put(deletion()).value() : LockOutcome::unknown;
  };
  EXPECT_EQ(prune(), LockOutcome::read);
  network_.wait(minutes(9));
  EXPECT_EQ(prune(), LockOutcome::read);
  network_.wait(minutes(1));
  EXPECT_EQ(prune(), LockOutcome::free) << "each of a cron job's runs is a process of its own";
}

TEST_P(NetworkTrash, HostsTakeTurns) {
  const auto first = network_.io("n1");
  const auto second = network_.io("n2");
  auto trash = Deleter::open(*first, "/s", now(), {});
  ASSERT_TRUE(trash);
  const auto refused = Deleter::open(*second, "/s", now(), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::locked);
  EXPECT_NE(refused.error().message.find("host n1 pid 100"), std::string::npos) << refused.error().message;
  trash->reset();
  EXPECT_TRUE(Deleter::open(*second, "/s", now(), {}));
}

TEST_P(NetworkTrash, ADeleterThatWasKilledHoldsUpOthersForTenMinutes) {
  const auto first = network_.io("n1");
  auto trash = Deleter::open(*first, "/s", now(), {});
  ASSERT_TRUE(trash);
  network_.kill("n1");
  trash->reset();
  EXPECT_FALSE(Deleter::open(*network_.io("n2"), "/s", now(), {}));
  EXPECT_TRUE(Deleter::open(*network_.io("n1", 101), "/s", now(), {})) << "its own host knows at once";
  EXPECT_TRUE(Deleter::open(*network_.io("n2"), "/s", now(), {}));
}

/// Two hosts read, delete, restore and purge, while answers of renames are lost, listings are old, processes are killed
/// and time goes by. What a live lease holds is never gone, nothing is ever half there under its name, and what was
/// purged was in the trash before.
TEST_P(NetworkTrash, NothingThatIsReadIsEverDeleted) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    MemoryDisk disk;
    NetworkDisk network(disk, {.locks = GetParam(), .lost_answers = 2 + random() % 3});
    disk.put(kClaims + "/ready", "");
    constexpr std::uint64_t kSteps = 4;
    const auto name_of = [](std::uint64_t step) { return CheckpointName{.step = step, .generation = step}.text(); };
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      disk.put("/s/r/" + name_of(step) + "/shards/weights/00000-00000.safetensors", "weights");
      disk.put("/s/r/" + name_of(step) + "/index/manifest.json", manifest_text(step));
      disk.put("/s/r/" + name_of(step) + "/manifest.json", manifest_text(step));
    }
    struct Reading {
      std::uint64_t step;
      std::string host;
      std::uint64_t pid;
      std::unique_ptr<Io> io;
      std::unique_ptr<Lease> lease;
    };
    std::vector<Reading> readings;
    std::uint64_t next_pid = 1000;
    std::size_t deleted = 0;
    for (int turn = 0; turn < 60; ++turn) {
      const std::uint64_t step = 1 + random() % kSteps;
      const std::string host = random() % 2 == 0 ? "n1" : "n2";
      const std::string path = "/s/r/" + name_of(step);
      const std::string told = "seed " + std::to_string(seed) + " turn " + std::to_string(turn);
      switch (random() % 7) {
        case 0: {
          Reading one{.step = step, .host = host, .pid = next_pid++};
          one.io = network.io(one.host, one.pid);
          auto lease = Lease::take(*one.io, path, {});
          if (!lease) break;
          one.lease = *std::move(lease);
          readings.push_back(std::move(one));
          break;
        }
        case 1:
          if (!readings.empty()) {
            const std::size_t i = random() % readings.size();
            if (random() % 2 == 0) network.kill(readings[i].host, readings[i].pid);
            readings[i].lease.reset();
            readings.erase(readings.begin() + static_cast<std::ptrdiff_t>(i));
          }
          break;
        case 2:
          network.wait(minutes(random() % 5));
          for (Reading& one : readings) one.io->beat();
          if (random() % 3 == 0) network.forget();
          break;
        default: {
          const auto io = network.io(host, next_pid++);
          const auto trash = Deleter::open(*io, "/s", now(), {});
          if (!trash) break;
          if (random() % 3 != 0) {
            const auto outcome = (*trash)->put(deletion(step, name_of(step)));
            if (outcome && *outcome == LockOutcome::free) ++deleted;
          } else if (random() % 2 == 0) {
            const auto entries = list_trash(*io, "/s");
            if (!entries) break;
            for (const TrashEntry& entry : *entries)
              if (entry.present && entry.name == name_of(step))
                static_cast<void>((*trash)->restore(entry, at(1), "bo"));
          } else {
            static_cast<void>(
                (*trash)->purge(at(1), "cron", [&](const TrashEntry& e) { return e.name == name_of(step); }));
          }
        }
      }
      for (const Reading& one : readings)
        ASSERT_EQ(disk.text("/s/r/" + name_of(one.step) + "/shards/weights/00000-00000.safetensors"), "weights")
            << told << ": what " << one.host << " reads is gone";
      for (std::uint64_t s = 1; s <= kSteps; ++s) {
        const bool manifest = disk.text("/s/r/" + name_of(s) + "/manifest.json") != "(none)";
        const bool weights = disk.text("/s/r/" + name_of(s) + "/shards/weights/00000-00000.safetensors") != "(none)";
        ASSERT_EQ(manifest, weights) << told << ": half of " << name_of(s);
      }
    }
    EXPECT_GT(deleted, 0u) << seed;
    readings.clear();
  }
}

}  // namespace
}  // namespace ckpt::catalog
