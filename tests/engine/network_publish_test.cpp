// The commit on a network file system at its worst (simulated: support/network_io.hpp).
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/io/remove_tree.hpp"
#include "engine/io/replace_file.hpp"
#include "engine/locks/lease.hpp"
#include "engine/publish/leftover.hpp"
#include "engine/publish/move_checkpoint.hpp"
#include "engine/publish/publish.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"
#include "support/network_io.hpp"

namespace ckpt {
namespace {

const std::string kId(32, 'a');
const std::string kPartial = "/d/m.partial-" + kId;

Publication::Options options(bool directory) {
  return {.target = "/d/m", .id = kId, .directory = directory};
}

Result<std::unique_ptr<Publication>> begin(Io& io, const Publication::Options& options) {
  TargetFile file;
  file.path = options.directory ? "data" : "";
  return Publication::begin(io, options, {file});
}

Result<> publish(Io& io, const Publication::Options& options) {
  CKPT_TRY(const auto publication, begin(io, options));
  return publication->commit(options.directory ? std::vector<SmallFile>{{"manifest.json", "{}"}}
                                               : std::vector<SmallFile>{});
}

TEST(NetworkPublish, ACommitWhoseAnswerIsLostIsDone) {
  for (const bool directory : {false, true}) {
    for (const bool locks : {false, true}) {
      MemoryDisk disk;
      disk.put("/d/other", "other");
      NetworkDisk network(disk, {.locks = locks, .lost_answers = 1});
      const auto done = publish(*network.io("n1"), options(directory));
      ASSERT_TRUE(done) << done.error().message;
      EXPECT_NE(disk.text(directory ? "/d/m/manifest.json" : "/d/m"), "(none)");
      for (const std::string& path : disk.tree()) EXPECT_EQ(path.find(kPartialMark), std::string::npos) << path;
    }
  }
}

TEST(NetworkPublish, SmallFilesAndMovesWhoseAnswersAreLostAreDone) {
  MemoryDisk disk;
  disk.put("/d/c/manifest.json", "{}");
  disk.put("/d/t/other", "");
  NetworkDisk network(disk, {.lost_answers = 1});
  const auto io = network.io("n1");
  EXPECT_TRUE(replace_file(*io, "/d/note", "one"));
  EXPECT_TRUE(replace_file(*io, "/d/note", "two"));
  EXPECT_EQ(disk.text("/d/note"), "two");
  EXPECT_TRUE(create_file(*io, "/d/new", "one"));
  EXPECT_EQ(create_file(*io, "/d/new", "two").error().code, Errc::target_exists);
  EXPECT_EQ(disk.text("/d/new"), "one");
  EXPECT_TRUE(move_checkpoint(*io, "/d/c", "/d/t/c"));
  EXPECT_EQ(disk.text("/d/t/c/manifest.json"), "{}");
  EXPECT_FALSE(move_checkpoint(*io, "/d/c", "/d/t/e")) << "there is nothing any more";
  disk.put("/d/c/manifest.json", "another");
  EXPECT_EQ(move_checkpoint(*io, "/d/c", "/d/t/c").error().code, Errc::target_exists);
  EXPECT_EQ(disk.text("/d/c/manifest.json"), "another");
}

TEST(NetworkPublish, WhatAnotherHostWritesIsNeitherSweptNorTakenOver) {
  for (const LockReach reach : {LockReach::host, LockReach::server}) {
    MemoryDisk disk;
    disk.put("/d/other", "other");
    NetworkDisk network(disk, {.reach = reach});
    const auto writer = network.io("n1");
    Publication::Options resumable = options(true);
    resumable.target = "/d/step-000000001";
    resumable.resumable = Hash128{};
    auto publication = begin(*writer, resumable);
    ASSERT_TRUE(publication) << publication.error().message;
    const auto io = network.io("n2");
    const auto swept = sweep_partials(*io, "/d");
    ASSERT_TRUE(swept);
    EXPECT_TRUE(swept->removed.empty());
    EXPECT_EQ(sweep_leftover(*io, partial_path(resumable.target, kId), {}).error().code, Errc::locked);
    if (reach == LockReach::host) {
      EXPECT_EQ(begin(*io, resumable).error().code, Errc::locked);
    }
    EXPECT_TRUE((*publication)->commit({{"manifest.json", "{}"}}));
  }
}

TEST(NetworkPublish, AReaderOfAnotherHostThatComesWhileWritingKeepsTheOldFile) {
  for (const LockReach reach : {LockReach::host, LockReach::server}) {
    MemoryDisk disk;
    disk.put("/d/.ckpt/claims/ready", "");
    disk.put("/d/m", "old");
    NetworkDisk network(disk, {.reach = reach, .lost_answers = 1});
    const auto io = network.io("n2");
    Publication::Options replacing = options(false);
    replacing.overwrite = true;
    const auto reader = network.io("n1");
    {
      auto publication = begin(*io, replacing);
      ASSERT_TRUE(publication) << publication.error().message;
      const auto lease = Lease::take(*reader, "/d/m", {});
      ASSERT_TRUE(lease) << lease.error().message;
      const auto done = (*publication)->commit({});
      ASSERT_FALSE(done) << "it looks again before it replaces";
      EXPECT_EQ(done.error().code, Errc::locked);
      EXPECT_NE(done.error().message.find("host n1 pid 100"), std::string::npos) << done.error().message;
    }
    EXPECT_EQ(disk.text("/d/m"), "old");
    EXPECT_EQ(disk.text(kPartial), "(none)");
    EXPECT_TRUE(publish(*io, replacing)) << "the reader is done";
    EXPECT_NE(disk.text("/d/m"), "old");
  }
}

/// The one moment that no look covers: a claim that comes between the last one and the rename, of a file, of which
/// there is no exchange. Its reader gets an error, and not other bytes.
TEST(NetworkPublish, AReaderThatComesJustBeforeAFileIsReplacedReadsTheOldOneOrLearnsIt) {
  MemoryDisk disk;
  disk.put("/d/.ckpt/claims/ready", "");
  disk.put("/d/m", "old");
  NetworkDisk network(disk, {});
  const auto plan = std::make_shared<FaultPlan>();
  const auto io = make_fault_io(network.io("n2"), plan);
  Publication::Options replacing = options(false);
  replacing.overwrite = true;
  auto publication = begin(*io, replacing);
  ASSERT_TRUE(publication) << publication.error().message;
  const auto reader = network.io("n1");
  FileHandle file;
  plan->count_only({"rename"});
  plan->call_at(plan->operation_count(), [&] {
    auto opened = reader->open("/d/m", {});
    ASSERT_TRUE(opened);
    file = *opened;
  });
  ASSERT_TRUE((*publication)->commit({}));
  ASSERT_GE(file.value, 0) << plan->first_failed();
  std::string text(3, ' ');
  const auto read = reader->read_at(file, 0, std::as_writable_bytes(std::span(text)));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::io);
  EXPECT_NE(read.error().message.find("/d/m: cannot read at offset 0: Stale file handle"), std::string::npos)
      << read.error().message;
}

TEST(NetworkPublish, ASmallFileThatAnotherHostReplacesIsReadAgain) {
  MemoryDisk disk;
  disk.put("/d/note", "one");
  NetworkDisk network(disk, {});
  const auto plan = std::make_shared<FaultPlan>();
  const auto io = make_fault_io(network.io("n1"), plan);
  plan->count_only({"fstat", "read"});
  for (std::uint64_t n = 0; n < 2; ++n) {
    const std::string next = "number " + std::to_string(n);
    plan->call_at(plan->operation_count() + n, [&] { EXPECT_TRUE(replace_file(*network.io("n2"), "/d/note", next)); });
    const auto text = read_small_file(*io, "/d/note", 100);
    ASSERT_FALSE(plan->first_failed().empty());
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(*text, next);
  }
  EXPECT_EQ(network.stale_count(), 2u);
  // One that is gone is gone.
  plan->call_at(plan->operation_count(), [&] { EXPECT_TRUE(network.io("n2")->unlink("/d/note")); });
  const auto gone = read_small_file(*io, "/d/note", 100);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Errc::not_found);
}

TEST(NetworkPublish, AListingThatIsRememberedStopsNoRemoval) {
  MemoryDisk disk;
  disk.put("/d/tree/a", "");
  disk.put("/d/tree/b", "");
  NetworkDisk network(disk, {});
  const auto io = network.io("n1");
  ASSERT_TRUE(io->list("/d/tree"));
  ASSERT_TRUE(network.io("n2")->unlink("/d/tree/a"));
  EXPECT_TRUE(remove_tree(*io, "/d/tree"));
  EXPECT_EQ(disk.tree(), (std::vector<std::string>{"/d/"}));
}

TEST(NetworkPublish, WhatAnotherHostReadsIsNotTakenAway) {
  MemoryDisk disk;
  disk.put("/s/.ckpt/claims/ready", "");
  disk.put("/s/r/c/data", "x");
  NetworkDisk network(disk, {.lost_answers = 1});
  const auto reader = network.io("n1");
  auto lease = Lease::take(*reader, "/s/r/c", {});
  ASSERT_TRUE(lease);
  const auto io = network.io("n2");
  EXPECT_FALSE(remove_published(*io, "/s/r/c", kId, {}).value().gone);
  EXPECT_EQ(disk.text("/s/r/c/data"), "x");
  lease->reset();
  EXPECT_TRUE(remove_published(*io, "/s/r/c", kId, {}).value().gone);
  EXPECT_EQ(disk.text("/s/r/c/data"), "(none)");
}

}  // namespace
}  // namespace ckpt
