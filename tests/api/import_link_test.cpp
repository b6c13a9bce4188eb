// `save --link` of which one operation fails, or that loses power: the source stays as it is, the run has no checkpoint
// or a whole one, and the same command again makes it.
#include "api/catalog/import_link.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>

#include "api/catalog/import.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"
#include "support/one_checkpoint.hpp"

namespace ckpt::test {
namespace {

const std::string kLinked = "/s/r/step-000000007.g1";

class ImportLink : public OneCheckpoint {
 protected:
  /// A checkpoint of another store.
  std::unique_ptr<MemoryDisk> prepared() {
    auto disk = std::make_unique<MemoryDisk>();
    disk->put("/s/none", "");
    const auto io = disk->io();
    source_ = save_one(*io, "/from/r", 3);
    before_ = files_of(*disk, source_);
    return disk;
  }

  Result<ImportReport> save(Io& io) {
    Session here = session(io);
    return import_checkpoint(here, {.conversion = {.source = source_, .verify = VerifyLevel::full},
                                    .store = "/s",
                                    .run = "r",
                                    .step = 7,
                                    .marks = {{.kind = catalog::Mark::Kind::tag, .name = "t"}},
                                    .link = true});
  }
  /// "" where what is there is right, as far as it goes.
  std::string wrong(const MemoryDisk& disk, bool told) {
    if (files_of(disk, source_) != before_) return "the source was changed";
    const auto io = disk.io();
    const auto names = list_checkpoints(*io, "/s/r");
    const bool there = names && !names->empty();
    if (!there) return told ? "success without a checkpoint" : "";
    if (names->size() != 1 || "/s/r/" + names->front() != kLinked) return "another checkpoint: " + names->back();
    if (std::string damage = damage_of(disk, kLinked); !damage.empty()) return damage;
    const auto marks = io->list(kLinked + "/marks");
    if (!marks || marks->size() != 1) return "without its tag";
    return "";
  }
  void expect_mended(const MemoryDisk& disk) {
    const auto io = disk.io();
    const auto again = save(*io);
    ASSERT_TRUE(again) << again.error().message;
    ASSERT_EQ(wrong(disk, true), "");
    for (const auto& [path, text] : before_) {
      const std::string below = path.substr(source_.size());
      if (!below.starts_with("/shards/")) continue;
      ASSERT_EQ(disk.inode(kLinked + below), disk.inode(path)) << below;
    }
    expect_no_partials(disk);
  }

  std::string source_{};
  Tree before_{};
};

TEST_F(ImportLink, AnyOperationThatFailsOnceLeavesNoCheckpointOrAWholeOne) {
  std::size_t failed = 0;
  std::size_t links = 0;
  for (const Errc code : {Errc::io, Errc::no_space}) {
    for (const bool carried_out : {false, true}) {
      for (std::uint64_t n = 0;; ++n) {
        ASSERT_LT(n, 1000U);
        const auto disk = prepared();
        const auto plan = std::make_shared<FaultPlan>();
        plan->fail_once(n, code, carried_out);
        const auto report = save(*make_fault_io(disk->io(), plan));
        if (plan->first_failed().empty()) break;
        SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
        ++failed;
        if (plan->first_failed().starts_with("link ")) ++links;
        ASSERT_EQ(wrong(*disk, report.has_value()), "");
        if (!report) {
          ASSERT_FALSE(report.error().message.empty());
          ASSERT_NE(report.error().code, Errc::internal) << report.error().message;
        }
        ASSERT_NO_FATAL_FAILURE(expect_mended(*disk));
      }
    }
  }
  EXPECT_GT(failed, 200U);
  EXPECT_GE(links, 8U) << "of two shards, four times";
}

TEST_F(ImportLink, PowerLossAtAnyOperationLeavesNoCheckpointOrAWholeOne) {
  for (const std::size_t spared : {std::size_t{0}, MemoryDisk::kAllNames}) {
    bool done = false;
    for (std::uint64_t n = 0; !done; ++n) {
      ASSERT_LT(n, 1000U);
      const auto disk = prepared();
      const auto plan = std::make_shared<FaultPlan>();
      plan->fail_from(n, Errc::io);
      const bool told = save(*make_fault_io(disk->io(), plan)).has_value();
      done = plan->first_failed().empty();
      SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
      disk->power_off({.name_operations = spared});
      ASSERT_EQ(wrong(*disk, told), "");
      ASSERT_NO_FATAL_FAILURE(expect_mended(*disk));
    }
  }
}

TEST_F(ImportLink, WhatItsWriterLeftInMemoryIsOnTheDiskBeforeItIsPromisedAgain) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const auto disk = prepared();
    const auto io = disk->io();
    for (const auto& [path, text] : before_) {
      if (path.find("/shards/") == std::string::npos) continue;
      disk->put(path, std::string(text.size(), '\0'));
      const auto file = io->open(path, {.mode = OpenOptions::Mode::write_existing});
      ASSERT_TRUE(file) << file.error().message;
      ASSERT_TRUE(io->write_at(*file, 0, std::as_bytes(std::span(text))));
      ASSERT_TRUE(io->close(*file));
    }
    const auto report = save(*io);
    ASSERT_TRUE(report) << report.error().message;
    disk->power_off({.name_operations = MemoryDisk::kAllNames, .block_seed = seed});
    EXPECT_EQ(wrong(*disk, true), "") << "blocks " << seed;
  }
}

}  // namespace
}  // namespace ckpt::test
