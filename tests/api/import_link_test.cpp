// `save --link` of which one operation fails, or that loses power: the source stays as it is, the run has no checkpoint
// or a whole one, and the same command again makes it.
#include "api/import_link.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "api/import.hpp"
#include "engine/run_directory.hpp"
#include "support/fault_io.hpp"
#include "support/memory_io.hpp"
#include "support/tiny_checkpoint.hpp"

namespace ckpt::test {
namespace {

const std::string kLinked = "/s/r/step-000000007.g1";

class ImportLink : public testing::Test {
 protected:
  /// A checkpoint of another store.
  std::unique_ptr<MemoryDisk> prepared() {
    auto disk = std::make_unique<MemoryDisk>();
    disk->put("/s/none", "");
    const auto io = disk->io();
    EXPECT_TRUE(make_directory(*io, "/from/r"));
    const auto name = tiny_.save(*io, {.run_directory = "/from/r",
                                       .step = 3,
                                       .run = {.name = "r"},
                                       .created = universal::utc_text(1'700'000'000'000'000'000)});
    EXPECT_TRUE(name) << name.error().message;
    source_ = "/from/r/" + *name;
    before_ = files_of(*disk, source_);
    return disk;
  }
  static Tree files_of(const MemoryDisk& disk, const std::string& root) {
    Tree out;
    for (const std::string& path : disk.tree())
      if (path.starts_with(root + "/") && path.back() != '/') out.emplace(path, disk.text(path));
    return out;
  }

  Result<ImportReport> save(Io& io) {
    Session session{.io = io, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 30};
    return import_checkpoint(session, {.conversion = {.source = source_, .verify = VerifyLevel::full},
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
    Session session{.io = *io, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 30};
    const auto verified = verify(session, {.path = kLinked});
    if (!verified) return verified.error().message;
    if (!verified->ok) return "the checkpoint is not whole";
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
    for (const std::string& path : disk.tree()) ASSERT_EQ(path.find(".partial-"), std::string::npos) << path;
  }

  TinyCheckpoints tiny_{};
  std::unique_ptr<Comm> comm_ = Comm::solo();
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

}  // namespace
}  // namespace ckpt::test
