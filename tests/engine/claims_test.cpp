// Claims: their names, who is held to live, and what a lease writes. Hosts and their network file system are simulated.
#include "engine/locks/claims.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/io/forwarding_io.hpp"
#include "engine/locks/lease.hpp"
#include "engine/publish/move_checkpoint.hpp"
#include "format/hash.hpp"
#include "support/memory_io.hpp"
#include "support/network_io.hpp"

namespace ckpt {
namespace {

using std::chrono::minutes;
using State = FoundClaim::State;

const std::string kCheckpoint = "/s/r/step-000000001.g1";
const std::string kClaims = "/s/.ckpt/claims";
const std::string kKey(32, 'a');

class ClaimsTest : public testing::Test {
 protected:
  ClaimsTest() {
    disk_.put(kCheckpoint + "/weights", "weights");
    disk_.put(kClaims + "/ready", "");
  }
  std::vector<std::string> claims() const {
    std::vector<std::string> out;
    for (const std::string& path : disk_.tree())
      if (path.starts_with(kClaims) && ClaimName::parse(base_name(path))) out.push_back(path);
    return out;
  }
  Claims watch(Io& io) {
    auto seen = watch_claims(io, "/s");
    EXPECT_TRUE(seen) << seen.error().message;
    return seen ? *std::move(seen) : Claims{};
  }

  MemoryDisk disk_;
  NetworkDisk network_{disk_, {}};
};

TEST(ClaimNames, ReadBackAsTheyWereWritten) {
  const ClaimName name{
      .key = kKey,
      .maker = {.host = "n-17.x", .boot = std::string(32, 'b'), .pid_namespace = 4026531836, .pid = 42, .started = 99},
      .number = 3};
  EXPECT_EQ(name.text(), kKey + "-n-17.x-" + std::string(32, 'b') + "-4026531836-42-99.3");
  ASSERT_TRUE(ClaimName::parse(name.text()));
  EXPECT_EQ(*ClaimName::parse(name.text()), name);
  EXPECT_EQ(name.who(), "host n-17.x pid 42");
  ClaimName unknown;
  unknown.key = kKey;
  EXPECT_EQ(ClaimName::parse(unknown.text()), unknown);
}

TEST(ClaimNames, AHostsNameIsOnlyShownAndNeverLeavesTheDirectory) {
  ClaimName name{.key = kKey, .maker = {.host = "../\n\xff" + std::string(500, 'x')}};
  const std::string text = name.text();
  EXPECT_EQ(text.find('/'), std::string::npos);
  EXPECT_LT(text.size(), 255u);
  EXPECT_TRUE(ClaimName::parse(text));
}

TEST(ClaimNames, AnythingElseIsNone) {
  const std::string good = ClaimName{.key = kKey, .maker = {.host = "n", .pid = 1}}.text();
  for (const std::string& bad :
       {std::string(), std::string("."), std::string("ready"), "x" + good, good + "0x", good + ".tmp", good + "\n",
        std::string(32, 'g') + good.substr(32), std::string(300, '-'), kKey + "-n-" + kKey + "-01-2-3.0",
        kKey + "-n-" + kKey + "-18446744073709551616-2-3.0", kKey + "-n/../n-" + kKey + "-1-2-3.0"})
    EXPECT_FALSE(ClaimName::parse(bad)) << bad;
}

TEST(ClaimNames, WhatIsReadIsWhatWouldBeWritten) {
  std::mt19937_64 random(20);
  const std::string good = ClaimName{.key = kKey, .maker = {.host = "n-1", .boot = kKey, .pid = 17}}.text();
  for (int n = 0; n < 20'000; ++n) {
    std::string text = good;
    for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      if (random() % 3 == 0)
        text.erase(at, 1 + random() % 4);
      else if (random() % 2 == 0)
        text.insert(at, 1, static_cast<char>(random()));
      else
        text[at] = "-.09af/\n"[random() % 8];
      if (text.empty()) break;
    }
    const auto name = ClaimName::parse(text);
    if (name) {
      EXPECT_EQ(name->text(), text);
      EXPECT_EQ(text.find('/'), std::string::npos);
    }
  }
}

TEST(LockReach, IsReadFromTheMount) {
  const auto reach = [](const std::string& type, std::vector<std::string> options) {
    return reach_of(Mount{.point = "/m", .type = type, .source = "s", .device = "0:1", .options = std::move(options)});
  };
  EXPECT_EQ(reach("nfs4", {"rw", "local_lock=none"}), LockReach::server);
  EXPECT_EQ(reach("nfs", {"rw", "nolock"}), LockReach::host);
  EXPECT_EQ(reach("nfs", {"local_lock=all"}), LockReach::host);
  EXPECT_EQ(reach("nfs4", {"local_lock=flock"}), LockReach::host);
  EXPECT_EQ(reach("nfs4", {"local_lock=posix"}), LockReach::server);
  EXPECT_EQ(reach("lustre", {"flock"}), LockReach::server);
  EXPECT_EQ(reach("lustre", {"localflock"}), LockReach::host);
  EXPECT_EQ(reach("fuse.sshfs", {"rw"}), LockReach::host);
  EXPECT_EQ(reach_of(std::nullopt), LockReach::host);
}

TEST(LockReach, OfThisMachinesFileSystemsIsEveryone) {
  const auto io = open_io(IoKind::threads);
  ASSERT_TRUE(io);
  if (!is_local_file_system("/dev/shm")) GTEST_SKIP() << "no tmpfs";
  EXPECT_EQ((*io)->lock_scope("/dev/shm").reach, LockReach::everyone);
  EXPECT_EQ((*io)->lock_scope("/dev/shm/not-there-yet").reach, LockReach::everyone);
  EXPECT_NE((*io)->lock_scope("/proc/self").reach, LockReach::everyone);
  EXPECT_EQ((*io)->lock_scope("/proc/../proc/sys/.").path, "/proc/sys");
}

TEST(ThisHost, KnowsItsOwnProcesses) {
  const ThisHost host;
  const ProcessId self = host.self();
  if (self.boot.empty() || self.pid_namespace == 0) GTEST_SKIP() << "/proc does not tell";
  EXPECT_EQ(host.is_running(self), true);
  ProcessId other = self;
  other.started += 1;
  EXPECT_EQ(host.is_running(other), false) << "the pid was given again";
  other = self;
  other.boot = std::string(32, '1');
  EXPECT_EQ(host.is_running(other), std::nullopt);
  other = self;
  other.pid_namespace += 1;
  EXPECT_EQ(host.is_running(other), std::nullopt);
}

TEST_F(ClaimsTest, ALeaseClaimsOnlyWhereLocksDoNotReach) {
  const auto local = disk_.io();
  {
    const auto lease = Lease::take(*local, kCheckpoint, {});
    ASSERT_TRUE(lease);
    EXPECT_TRUE(claims().empty());
  }
  const auto remote = network_.io("n1");
  {
    const auto lease = Lease::take(*remote, kCheckpoint, {});
    ASSERT_TRUE(lease) << lease.error().message;
    ASSERT_EQ(claims().size(), 1u);
    EXPECT_EQ(ClaimName::parse(base_name(claims().front()))->maker, remote->host().self());
    const auto second = Lease::take(*remote, kCheckpoint, {});
    ASSERT_TRUE(second);
    EXPECT_EQ(claims().size(), 2u) << "each has its own";
  }
  EXPECT_TRUE(claims().empty());
}

/// One place cannot be locked.
class UnlockableIo final : public ForwardingIo {
 public:
  UnlockableIo(Io& inner, std::string path, Errc code) : ForwardingIo(inner), path_(std::move(path)), code_(code) {}
  Result<std::unique_ptr<Io>> new_instance() const override { return inner().new_instance(); }
  Result<std::unique_ptr<HeldLock>> lock(const std::string& path, LockMode mode) override {
    if (path == path_) return fail(code_, path + ": lock: refused");
    return ForwardingIo::lock(path, mode);
  }

 private:
  std::string path_;
  Errc code_;
};

TEST_F(ClaimsTest, AReaderOfAPartIsToldWhereTheWholeCannotBeHeld) {
  const auto io = disk_.io();
  const std::string part = kCheckpoint + "/part/x";
  disk_.put(part, "x");
  const auto take = [&](Errc code) {
    UnlockableIo refusing(*io, kCheckpoint, code);
    const auto lease = Lease::take(refusing, part, {});
    return lease ? (*lease)->claim_warning() : lease.error().message;
  };
  EXPECT_NE(take(Errc::io).find("so it may be deleted meanwhile"), std::string::npos) << take(Errc::io);
  EXPECT_EQ(take(Errc::unsupported), "") << "there are no locks at all";
  EXPECT_EQ(take(Errc::not_found), kCheckpoint + ": lock: refused");
  EXPECT_EQ(take(Errc::locked), kCheckpoint + ": lock: refused");
}

TEST_F(ClaimsTest, AReaderOfAPartHoldsAnotherToolsCheckpointWhoseNamesItIsGiven) {
  const auto io = disk_.io();
  disk_.put("/s/r/save-5/part/x", "x");
  const auto is_held = [&](const ForeignNames& names) {
    const auto lease = Lease::take(*io, "/s/r/save-5/part", names);
    EXPECT_TRUE(lease);
    const auto other = disk_.io();
    return !other->lock("/s/r/save-5", LockMode::exclusive).has_value();
  };
  EXPECT_FALSE(is_held({}));
  EXPECT_FALSE(is_held({.steps = {"other-#"}}));
  EXPECT_TRUE(is_held({.steps = {"other-#", "save-#"}}));
}

TEST_F(ClaimsTest, AClaimSurvivesAPowerLossOfTheServer) {
  const auto io = network_.io("n1");
  const auto lease = Lease::take(*io, kCheckpoint, {});
  ASSERT_TRUE(lease);
  disk_.power_off();
  EXPECT_EQ(claims().size(), 1u) << "it was durable before anything was read";
}

TEST_F(ClaimsTest, BeatsAreRaisedOnceAMinuteAndMakeALostClaimAgain) {
  const auto io = network_.io("n1");
  const auto lease = Lease::take(*io, kCheckpoint, {});
  ASSERT_TRUE(lease);
  const std::string path = claims().at(0);
  const std::string first = disk_.text(path);
  io->beat();
  EXPECT_EQ(disk_.text(path), first);
  network_.wait(minutes(1));
  io->beat();
  const std::string second = disk_.text(path);
  EXPECT_NE(second, first);
  const auto other = network_.io("n2");
  ASSERT_TRUE(other->unlink(path));
  network_.wait(minutes(1));
  io->beat();
  EXPECT_NE(disk_.text(path), second);
  EXPECT_EQ(claims().size(), 1u);
}

TEST_F(ClaimsTest, AReaderThatBeganBeforeThereWasAStoreClaimsAtItsNextBeat) {
  MemoryDisk disk;
  disk.put("/s/r/c/weights", "w");
  NetworkDisk network(disk, {});
  const auto io = network.io("n1");
  const auto lease = Lease::take(*io, "/s/r/c", {});
  ASSERT_TRUE(lease);
  EXPECT_TRUE((*lease)->claims().empty());
  disk.put("/s/.ckpt/catalog.sqlite", "");
  network.wait(minutes(1));
  network.forget();  // no system remembers for ten minutes that a name is not there
  io->beat();
  ASSERT_EQ((*lease)->claims().size(), 1u);
  EXPECT_NE(disk.text((*lease)->claims().front()->path()), "(none)");
}

TEST_F(ClaimsTest, AStoreWithoutClaimsIsBelievedOnlyAfterTenMinutes) {
  MemoryDisk disk;
  disk.put(kCheckpoint + "/weights", "weights");
  disk.put("/s/.ckpt/catalog.sqlite", "");
  NetworkDisk network(disk, {});
  const auto io = network.io("n1");
  EXPECT_EQ(lock_checkpoint(*io, kCheckpoint)->outcome, LockOutcome::unknown);
  network.wait(minutes(9));
  EXPECT_EQ(lock_checkpoint(*io, kCheckpoint)->outcome, LockOutcome::unknown);
  EXPECT_EQ(lock_checkpoint(*network.io("n2"), kCheckpoint)->outcome, LockOutcome::unknown)
      << "clocks of two hosts are never compared";
  network.wait(minutes(1));
  EXPECT_EQ(lock_checkpoint(*network.io("n1", 7), kCheckpoint)->outcome, LockOutcome::free)
      << "another process of that host";
  EXPECT_EQ(lock_checkpoint(*network.io("n2"), kCheckpoint)->outcome, LockOutcome::free)
      << "what one host has found holds for all";
}

TEST_F(ClaimsTest, AProcessOfThisHostIsDeadWhenItHasEnded) {
  const auto reader = network_.io("n1", 7);
  auto lease = Lease::take(*reader, kCheckpoint, {});
  ASSERT_TRUE(lease);
  const auto io = network_.io("n1", 8);
  EXPECT_EQ(watch(*io).found.at(0).state, State::lives);
  network_.wait(minutes(60));
  EXPECT_EQ(watch(*io).found.at(0).state, State::lives) << "it need not say so";
  network_.kill("n1", 7);
  lease->reset();
  ASSERT_EQ(claims().size(), 1u);
  EXPECT_EQ(list_claims(*io, "/s")->found.at(0).state, State::dead);
  EXPECT_EQ(watch_claims(*io, "/s", Dead::left)->found.at(0).state, State::dead);
  EXPECT_EQ(claims().size(), 1u) << "who only looks removes nothing";
  EXPECT_EQ(watch(*io).removed, 1u);
  EXPECT_TRUE(claims().empty());
}

TEST_F(ClaimsTest, AProcessElsewhereIsDeadWhenItHasBeenSilentForTenMinutes) {
  const auto reader = network_.io("n1", 7);
  const auto lease = Lease::take(*reader, kCheckpoint, {});
  ASSERT_TRUE(lease);
  EXPECT_EQ(watch(*network_.io("n2")).found.at(0).state, State::lives);
  network_.wait(minutes(9));
  EXPECT_EQ(watch(*network_.io("n2")).found.at(0).state, State::silent);
  reader->beat();
  EXPECT_EQ(watch(*network_.io("n2")).found.at(0).state, State::lives) << "its counter was raised";
  network_.wait(minutes(9));
  EXPECT_EQ(watch(*network_.io("n2")).found.at(0).state, State::silent);
  EXPECT_EQ(watch(*network_.io("n3")).found.at(0).state, State::lives) << "who has not watched knows nothing";
  network_.wait(minutes(1));
  EXPECT_EQ(list_claims(*network_.io("n2"), "/s")->found.at(0).state, State::dead);
  EXPECT_EQ(watch(*network_.io("n2", 9)).removed, 1u) << "by another process, from cron";
  reader->beat();
  EXPECT_EQ(claims().size(), 1u) << "it lived after all, and says so again";
}

TEST_F(ClaimsTest, AListingThatAHostRemembersHidesNoClaim) {
  const auto io = network_.io("n2");
  EXPECT_TRUE(watch(*io).found.empty());
  ASSERT_TRUE(io->list(kClaims));
  const auto reader = network_.io("n1");
  const auto lease = Lease::take(*reader, kCheckpoint, {});
  ASSERT_TRUE(lease);
  EXPECT_EQ(io->list(kClaims)->size(), 1u) << "the host remembers: ready";
  EXPECT_EQ(watch(*io).found.size(), 1u);
}

TEST_F(ClaimsTest, WhatStandsInTheDirectoryIsInput) {
  disk_.put(kClaims + "/seen-" + hash128("n2").hex(), "ckpt.seen/1\n0 -5 \n7 99999999999999999999 x\n\n\xff\xfe\n1 2");
  disk_.put(kClaims + "/notes.txt", "hello");
  const ClaimName name{.key = kKey, .maker = {.host = "n9", .boot = kKey, .pid = 1}};
  disk_.put(kClaims + "/" + name.text(), std::string(1 << 20, 'x'));
  const auto io = network_.io("n2");
  EXPECT_EQ(watch(*io).found.size(), 1u);
  EXPECT_NE(watch(*io).holder({kKey}), nullptr);
  network_.wait(minutes(10));
  EXPECT_EQ(watch(*io).removed, 1u) << "what never changes is no counter";
  EXPECT_EQ(disk_.text(kClaims + "/notes.txt"), "hello");
}

TEST_F(ClaimsTest, OutsideOfStoresTheServersLocksCountAndOthersDoNot) {
  MemoryDisk disk;
  disk.put("/out/m", "x");
  NetworkDisk here(disk, {.reach = LockReach::host});
  EXPECT_EQ(lock_checkpoint(*here.io("n1"), "/out/m")->outcome, LockOutcome::unknown);
  NetworkDisk server(disk, {.reach = LockReach::server});
  EXPECT_EQ(lock_checkpoint(*server.io("n1"), "/out/m")->outcome, LockOutcome::free);
}

TEST_F(ClaimsTest, APartialIsLeftOverWhenNothingChangedInItForTenMinutes) {
  disk_.put("/s/r/step-000000009.partial-" + kKey + "/weights", "w");
  const std::string path = "/s/r/step-000000009.partial-" + kKey;
  const auto io = network_.io("n1");
  EXPECT_EQ(watch_partial(*io, "/s", path)->count(), 0);
  network_.wait(minutes(9));
  EXPECT_EQ(*watch_partial(*network_.io("n1", 5), "/s", path), minutes(9));
  disk_.put(path + "/more", "w");
  network_.forget();
  EXPECT_EQ(watch_partial(*io, "/s", path)->count(), 0);
  network_.wait(minutes(10));
  watch(*io);  // forgets nothing of it
  EXPECT_EQ(*watch_partial(*io, "/s", path), minutes(10));
}

}  // namespace
}  // namespace ckpt
