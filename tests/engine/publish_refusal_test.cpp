// What publishing refuses, and that refusing changes nothing.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/publish/publish.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"

namespace ckpt {
namespace {

class PublishRefusal : public testing::Test {
 protected:
  PublishRefusal() { disk_.put("/d/other", "other"); }

  Publication::Options options(bool directory, bool overwrite, bool checkpoint = true) const {
    return {.target = "/d/m",
            .id = "00ff",
            .directory = directory,
            .overwrite = overwrite,
            .own_files = [checkpoint](const std::string& path) -> Result<std::vector<std::string>> {
              if (!checkpoint) return fail(Errc::usage, path + ": no checkpoint");
              return std::vector<std::string>{"data", "manifest.json", "shards/0"};
            }};
  }
  /// Begins and commits an empty target; a directory with one small file.
  Result<> publish(const Publication::Options& options) {
    const auto io = disk_.io();
    TargetFile file;
    file.path = options.directory ? "data" : "";
    CKPT_TRY(const auto publication, Publication::begin(*io, options, {file}));
    return publication->commit(options.directory ? std::vector<SmallFile>{{"manifest.json", "{}"}}
                                                 : std::vector<SmallFile>{});
  }
  Errc refused(const Publication::Options& options) {
    const std::vector<std::string> before = disk_.tree();
    const auto done = publish(options);
    EXPECT_EQ(disk_.tree(), before);
    return done ? Errc::differs : done.error().code;
  }

  MemoryDisk disk_;
};

TEST_F(PublishRefusal, WhatExistsIsNotReplacedUnasked) {
  disk_.put("/d/m", "old");
  EXPECT_EQ(refused(options(false, false)), Errc::target_exists);
  EXPECT_EQ(refused(options(true, false)), Errc::target_exists);
  EXPECT_EQ(disk_.text("/d/m"), "old");
}

TEST_F(PublishRefusal, WhatAppearsWhileWritingIsNotReplacedEither) {
  for (const bool directory : {false, true}) {
    MemoryDisk disk;
    disk.put("/d/other", "other");
    const auto io = disk.io();
    TargetFile file;
    file.path = directory ? "data" : "";
    {
      auto publication = Publication::begin(*io, options(directory, false), {file});
      ASSERT_TRUE(publication);
      disk.put("/d/m", "came first");
      const auto done = (*publication)->commit({});
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error().code, Errc::target_exists);
    }
    EXPECT_EQ(disk.tree(), (std::vector<std::string>{"/d/", "/d/m", "/d/other"}));
    EXPECT_EQ(disk.text("/d/m"), "came first");
  }
}

TEST_F(PublishRefusal, ADirectoryThatIsNoCheckpointIsNotReplaced) {
  disk_.put("/d/m/thesis.tex", "years of work");
  EXPECT_EQ(refused(options(true, true, false)), Errc::usage);
  EXPECT_EQ(refused(options(false, true, false)), Errc::usage);
  auto no_rule = options(true, true);
  no_rule.own_files = nullptr;
  EXPECT_EQ(refused(no_rule), Errc::usage);
  EXPECT_EQ(disk_.text("/d/m/thesis.tex"), "years of work");
}

TEST_F(PublishRefusal, ACheckpointBesideWhichMoreStandsIsNotReplaced) {
  disk_.put("/d/m/manifest.json", "old");
  disk_.put("/d/m/shards/0", "old");
  for (const std::string stray : {"notes", ".git/HEAD", "shards/1", "shards/more/0", "marks/pin.json", "data/0"}) {
    disk_.put("/d/m/" + stray, "work");
    EXPECT_EQ(refused(options(true, true)), Errc::usage) << stray;
    EXPECT_EQ(refused(options(false, true)), Errc::usage) << stray;
    EXPECT_EQ(disk_.text("/d/m/" + stray), "work");
    ASSERT_TRUE(disk_.io()->unlink("/d/m/" + stray));
  }
  EXPECT_TRUE(publish(options(true, true))) << "folders that are empty are no loss";
}

TEST_F(PublishRefusal, WhatElseStandsThereIsListed) {
  disk_.put("/d/m/manifest.json", "old");
  for (int n = 0; n < 9; ++n) disk_.put("/d/m/note" + std::to_string(n), "work");
  disk_.put("/d/m/checkpoint-100/data", "work");
  const auto io = disk_.io();
  const auto publication = Publication::begin(*io, options(true, true), {});
  ASSERT_FALSE(publication);
  EXPECT_NE(publication.error().message.find("it also holds checkpoint-100/, note0, note1, "), std::string::npos)
      << publication.error().message;
  EXPECT_NE(publication.error().message.find("note6 and 2 more"), std::string::npos) << publication.error().message;
}

TEST_F(PublishRefusal, WhatIsPutIntoTheOldOneWhileWritingIsNotRemoved) {
  disk_.put("/d/m/manifest.json", "old");
  const auto io = disk_.io();
  {
    TargetFile file;
    file.path = "data";
    auto publication = Publication::begin(*io, options(true, true), {file});
    ASSERT_TRUE(publication);
    disk_.put("/d/m/marks/pin.json", "pinned");
    const auto done = (*publication)->commit({{"manifest.json", "new"}});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Errc::usage);
  }
  EXPECT_EQ(disk_.text("/d/m/manifest.json"), "old");
  EXPECT_EQ(disk_.text("/d/m/marks/pin.json"), "pinned");
}

TEST_F(PublishRefusal, WhatIsPutIntoTheOldOneAtAnyMomentIsStillThereAtTheEnd) {
  std::uint64_t operations = 1;
  for (std::uint64_t n = 0; n < operations; ++n) {
    MemoryDisk disk;
    disk.put("/d/m/manifest.json", "old");
    disk.put("/d/m/data", "old");
    const auto faults = std::make_shared<FaultPlan>();
    const auto io = make_fault_io(disk.io(), faults);
    faults->call_at(n, [&] { disk.put("/d/m/notes", "work"); });
    TargetFile file;
    file.path = "data";
    if (auto publication = Publication::begin(*io, options(true, true), {file}))
      static_cast<void>((*publication)->commit({{"manifest.json", "new"}}));
    operations = faults->operation_count();
    EXPECT_EQ(disk.text("/d/m/notes"), "work") << "operation " << n << ": not where it was put";
    const std::string manifest = disk.text("/d/m/manifest.json");
    EXPECT_TRUE(manifest == "old" || manifest == "new") << "operation " << n << ": " << manifest;
  }
}

TEST_F(PublishRefusal, WhatIsBeingReadIsNotReplaced) {
  disk_.put("/d/m/manifest.json", "old");
  const auto reader = disk_.io();
  auto lease = reader->lock("/d/m", LockMode::shared);
  ASSERT_TRUE(lease);
  {
    const auto io = disk_.io();
    const auto publication = Publication::begin(*io, options(true, true), {});
    ASSERT_FALSE(publication) << "said only after everything was written";
    EXPECT_EQ(publication.error().code, Errc::locked);
  }
  EXPECT_EQ(refused(options(true, true)), Errc::locked);
  lease->reset();
  EXPECT_TRUE(publish(options(true, true)));
}

TEST_F(PublishRefusal, AReaderThatComesWhileWritingKeepsTheOldOne) {
  disk_.put("/d/m/manifest.json", "old");
  const auto io = disk_.io();
  const auto reader = disk_.io();
  {
    TargetFile file;
    file.path = "data";
    auto publication = Publication::begin(*io, options(true, true), {file});
    ASSERT_TRUE(publication);
    const auto lease = reader->lock("/d/m", LockMode::shared);
    ASSERT_TRUE(lease) << "writers hold the old one only while they replace it";
    const auto done = (*publication)->commit({{"manifest.json", "new"}});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Errc::locked);
  }
  EXPECT_EQ(disk_.tree(), (std::vector<std::string>{"/d/", "/d/m/", "/d/m/manifest.json", "/d/other"}));
  EXPECT_EQ(disk_.text("/d/m/manifest.json"), "old");
}

TEST_F(PublishRefusal, WithoutExchangeADirectoryIsNotReplaced) {
  MemoryDisk disk({.exchange = false});
  disk.put("/d/m/manifest.json", "old");
  const auto io = disk.io();
  {
    TargetFile file;
    file.path = "data";
    auto publication = Publication::begin(*io, options(true, true), {file});
    ASSERT_TRUE(publication);
    const auto done = (*publication)->commit({{"manifest.json", "new"}});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Errc::usage);
  }
  EXPECT_EQ(disk.text("/d/m/manifest.json"), "old");
  EXPECT_EQ(disk.tree(), (std::vector<std::string>{"/d/", "/d/m/", "/d/m/manifest.json"}));
}

TEST_F(PublishRefusal, FilesAndDirectoriesReplaceEachOther) {
  disk_.put("/d/m/manifest.json", "old");
  EXPECT_TRUE(publish(options(false, true)));
  EXPECT_EQ(disk_.text("/d/m"), "");
  EXPECT_TRUE(publish(options(true, true)));
  EXPECT_EQ(disk_.text("/d/m/manifest.json"), "{}");
  EXPECT_EQ(disk_.tree(), (std::vector<std::string>{"/d/", "/d/m/", "/d/m/data", "/d/m/manifest.json", "/d/other"}));
}

TEST_F(PublishRefusal, OverwriteWithNothingThereIsAPlainPublish) {
  EXPECT_TRUE(publish(options(true, true)));
  EXPECT_EQ(disk_.text("/d/m/manifest.json"), "{}");
}

TEST_F(PublishRefusal, PathsThatLeaveTheTargetAreNotMade) {
  const auto io = disk_.io();
  for (const char* path : {"../x", "/x", "a//b", "a/../b", "", "."}) {
    TargetFile file;
    file.path = path;
    const auto publication = Publication::begin(*io, options(true, false), {file});
    ASSERT_FALSE(publication) << path;
    EXPECT_EQ(publication.error().code, Errc::internal) << path;
  }
  {
    TargetFile file;
    file.path = "data";
    auto publication = Publication::begin(*io, options(true, false), {file});
    ASSERT_TRUE(publication);
    const auto done = (*publication)->commit({{"../manifest.json", "{}"}});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Errc::internal);
  }
  EXPECT_EQ(disk_.tree(), (std::vector<std::string>{"/d/", "/d/other"}));
}

TEST_F(PublishRefusal, AMissingParentIsSaidAndNothingIsMade) {
  auto elsewhere = options(true, false);
  elsewhere.target = "/none/m";
  EXPECT_EQ(refused(elsewhere), Errc::not_found);
}

TEST_F(PublishRefusal, ATrailingSlashIsNotPartOfTheName) {
  auto slashed = options(true, false);
  slashed.target = "/d/m/";
  EXPECT_TRUE(publish(slashed));
  EXPECT_EQ(disk_.tree(), (std::vector<std::string>{"/d/", "/d/m/", "/d/m/data", "/d/m/manifest.json", "/d/other"}));
}

TEST_F(PublishRefusal, AnIdThatIsNoIdNamesNoFile) {
  for (const char* id : {"", "../x", "a/b", "XYZ"}) {
    auto named = options(true, false);
    named.id = id;
    EXPECT_EQ(refused(named), Errc::internal) << id;
  }
}

TEST_F(PublishRefusal, SpaceThatIsLostMeanwhileLeavesNothing) {
  // free_bytes is only a look: the reservation itself may still fail, here at each of the files.
  for (std::uint64_t n = 0; n < 60; ++n) {
    MemoryDisk disk;
    disk.put("/d/other", "other");
    const auto faults = std::make_shared<FaultPlan>();
    const auto io = make_fault_io(disk.io(), faults);
    faults->fail_once(n, Errc::no_space);
    std::vector<TargetFile> files(3);
    for (std::size_t i = 0; i < files.size(); ++i) {
      files[i].path = "shards/" + std::to_string(i);
      files[i].bytes = 5000;
    }
    const auto publication = Publication::begin(*io, options(true, false), files);
    if (faults->first_failed().rfind("allocate", 0) != 0) continue;
    ASSERT_FALSE(publication);
    EXPECT_EQ(publication.error().code, Errc::no_space);
    EXPECT_EQ(disk.tree(), (std::vector<std::string>{"/d/", "/d/other"})) << faults->first_failed();
  }
}

}  // namespace
}  // namespace ckpt
