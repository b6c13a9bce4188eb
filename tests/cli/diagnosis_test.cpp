#include <gtest/gtest.h>

#include <algorithm>

#include "cli/report/machine_health.hpp"
#include "cli/report/store_health.hpp"
#include "cli/report/volume_health.hpp"

namespace ckpt::cli {
namespace {

const Diagnosis* find(const std::vector<Diagnosis>& all, std::string_view about, Health health) {
  const auto found =
      std::ranges::find_if(all, [&](const Diagnosis& one) { return one.about == about && one.health == health; });
  return found == all.end() ? nullptr : &*found;
}

MachineFacts good_machine() {
  return {.kernel = "6.1.0",
          .uring_refused = std::nullopt,
          .locked_bytes = 8 << 20,
          .open_files = 20000,
          .most_open_files = 20000,
          .transparent_pages = "madvise",
          .clock_synchronised = true};
}

VolumeFacts good_volume() {
  return {.path = "/ckpts",
          .mount = Mount{.point = "/ckpts", .type = "ext4", .source = "/dev/sda1", .device = "8:1", .options = {"rw"}},
          .total_bytes = 1000,
          .free_bytes = 500,
          .tried = {.writable = true, .direct = true, .locks = true, .renames = true, .exchange = true}};
}

std::vector<Diagnosis> mounted(std::string type, std::vector<std::string> options) {
  VolumeFacts facts = good_volume();
  facts.mount->type = std::move(type);
  facts.mount->options = std::move(options);
  return diagnose(facts, std::nullopt, false);
}

bool has_mend(const std::vector<Diagnosis>& all, std::string_view begin) {
  return std::ranges::any_of(all, [&](const Diagnosis& one) { return one.mend.starts_with(begin); });
}

TEST(Doctor, AdvisesChangesOfTheRootFileSystemOnlyIfAsked) {
  for (const char* option : {"ro", "barrier=0", "discard", "data=journal", "sync", "strictatime"}) {
    VolumeFacts facts = good_volume();
    facts.mount->options = {option};
    facts.device = DeviceFacts{.scheduler = "bfq"};
    std::size_t advised = 0;
    for (const char* point : {"/ckpts", "/"}) {
      facts.mount->point = point;
      for (const Diagnosis& one : diagnose(facts, std::nullopt, false)) {
        if (one.about != "mount options" && one.about != "scheduler") continue;
        ++advised;
        const bool is_root = facts.mount->point == "/";
        EXPECT_EQ(one.mend.starts_with("'ckpt doctor --system' shows"), is_root) << one.mend;
        EXPECT_EQ(has_mend(diagnose(facts, std::nullopt, true), "for the administrator of this machine: "), is_root);
      }
    }
    EXPECT_EQ(advised, 4U) << option;
  }
}

TEST(Doctor, FindsNothingWhereNothingIsWrong) {
  for (const auto& all : {diagnose(good_machine()), diagnose(good_volume(), 100, false)}) {
    for (const Diagnosis& one : all) EXPECT_EQ(one.health, Health::ok) << one.text;
  }
}

TEST(Doctor, SaysWhatMendsAMissingRing) {
  MachineFacts facts = good_machine();
  facts.uring_refused = "io_uring: Operation not permitted";
  facts.uring_disabled = 2;
  EXPECT_EQ(find(diagnose(facts), "io_uring", Health::warn)->mend, "sysctl -w kernel.io_uring_disabled=0");
  facts.uring_disabled = 0;
  EXPECT_NE(find(diagnose(facts), "io_uring", Health::warn)->mend.find("seccomp"), std::string::npos);
}

TEST(Doctor, WarnsOfSmallPagesFewFilesAndAFreeClock) {
  MachineFacts facts = good_machine();
  facts.transparent_pages = "never";
  facts.open_files = 256;
  facts.clock_synchronised = false;
  const auto all = diagnose(facts);
  EXPECT_TRUE(find(all, "huge pages", Health::warn));
  EXPECT_EQ(find(all, "open files", Health::warn)->mend, "ulimit -n 20000");
  EXPECT_TRUE(find(all, "clock", Health::warn));
  facts.huge_pages_free = 8;
  EXPECT_FALSE(find(diagnose(facts), "huge pages", Health::warn));
}

TEST(Doctor, FailsWhereSyncedBytesOrLocksAreNotWhatTheySeem) {
  EXPECT_TRUE(find(mounted("ext4", {"rw", "nobarrier"}), "mount options", Health::fail));
  EXPECT_TRUE(find(mounted("ext4", {"rw", "barrier=0"}), "mount options", Health::fail));
  EXPECT_TRUE(find(mounted("ext4", {"ro"}), "mount options", Health::fail));
  EXPECT_TRUE(find(mounted("nfs", {"rw", "nolock"}), "mount options", Health::fail));
  EXPECT_TRUE(find(mounted("nfs4", {"rw", "local_lock=all"}), "mount options", Health::fail));
  EXPECT_FALSE(find(mounted("nfs4", {"rw", "local_lock=none"}), "mount options", Health::fail));
  EXPECT_TRUE(find(mounted("lustre", {"rw", "localflock"}), "mount options", Health::fail));
  EXPECT_TRUE(find(mounted("lustre", {"rw"}), "mount options", Health::fail));
  EXPECT_FALSE(find(mounted("lustre", {"rw", "flock"}), "mount options", Health::fail));
}

TEST(Doctor, WarnsOfWhatIsSlowOrGoneTomorrow) {
  EXPECT_TRUE(find(mounted("tmpfs", {"rw"}), "file system", Health::warn));
  EXPECT_TRUE(find(mounted("overlay", {"rw"}), "file system", Health::warn));
  EXPECT_TRUE(find(mounted("fuse.sshfs", {"rw"}), "file system", Health::note));
  EXPECT_TRUE(find(mounted("ext4", {"rw", "data=journal"}), "mount options", Health::warn));
  EXPECT_TRUE(find(mounted("ext4", {"rw", "sync"}), "mount options", Health::warn));
  EXPECT_TRUE(find(mounted("ext4", {"rw", "discard"}), "mount options", Health::note));
  EXPECT_TRUE(find(mounted("nfs", {"rw", "soft"}), "mount options", Health::warn));
}

TEST(Doctor, CountsWhatIsLeftByTheQuotaToo) {
  VolumeFacts facts = good_volume();
  EXPECT_TRUE(find(diagnose(facts, 501, false), "space", Health::fail));
  EXPECT_TRUE(find(diagnose(facts, 500, false), "space", Health::warn));  // one, and nothing after it
  EXPECT_TRUE(find(diagnose(facts, 250, false), "space", Health::ok));
  facts.quota_left = 100;
  EXPECT_TRUE(find(diagnose(facts, 250, false), "space", Health::fail));
  facts.total_inodes = 1000;
  facts.free_inodes = 10;
  EXPECT_TRUE(find(diagnose(facts, 10, false), "inodes", Health::warn));
}

TEST(Doctor, FailsWhereATryFailed) {
  VolumeFacts facts = good_volume();
  facts.tried.locks = false;
  facts.tried.exchange = false;
  facts.tried.direct = false;
  const auto all = diagnose(facts, std::nullopt, false);
  EXPECT_TRUE(find(all, "locks", Health::fail));
  EXPECT_TRUE(find(all, "renames", Health::note));
  EXPECT_TRUE(find(all, "direct I/O", Health::note));
  facts.tried = {.refused = "read-only"};
  EXPECT_TRUE(find(diagnose(facts, std::nullopt, false), "writing", Health::fail));
}

TEST(Doctor, ReadsDisksAndStripes) {
  VolumeFacts facts = good_volume();
  facts.device = DeviceFacts{.scheduler = "bfq", .raid_level = "raid5", .raid_chunk = 65536, .raid_disks = 4};
  EXPECT_TRUE(find(diagnose(facts, std::nullopt, false), "scheduler", Health::warn));
  EXPECT_TRUE(find(diagnose(facts, std::nullopt, false), "RAID", Health::ok));
  facts.device->raid_missing = 1;
  EXPECT_TRUE(find(diagnose(facts, std::nullopt, false), "RAID", Health::fail));
  facts.lustre = LustreStripes{.count = 1, .bytes = 1 << 20};
  EXPECT_TRUE(find(diagnose(facts, std::nullopt, false), "striping", Health::warn));
}

TEST(Doctor, ReadsLustresAttribute) {
  std::string attribute(32, '\0');
  const auto put = [&](std::size_t at, std::uint32_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) attribute[at + i] = static_cast<char>(value >> (8 * i) & 0xff);
  };
  put(0, 0x0bd10bd0, 4);
  put(24, 16 << 20, 4);
  put(28, 8, 2);
  const auto stripes = parse_lustre_stripes(attribute);
  ASSERT_TRUE(stripes);
  EXPECT_EQ(stripes->count, 8u);
  EXPECT_EQ(stripes->bytes, std::uint64_t{16} << 20);
  EXPECT_FALSE(parse_lustre_stripes(attribute.substr(0, 29)));
  attribute[0] = 0;
  EXPECT_FALSE(parse_lustre_stripes(attribute));
}

TEST(Doctor, OfASoundStoreOnlyTheCatalogIsTold) {
  const auto all = diagnose(StoreFacts{.path = "/runs", .has_catalog = true});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].health, Health::ok);
}

TEST(Doctor, EachDefectOfAStoreComesWithWhatMendsIt) {
  const StoreFacts facts{.path = "/runs",
                         .unwritable = Error{.code = Errc::io, .message = "no"},
                         .catalog = Error{.code = Errc::corrupt, .message = "row 3"},
                         .leftover = {.count = 2, .bytes = 10, .first = "/runs/a.partial-1"},
                         .stopped = {.count = 1},
                         .past_grace = {.count = 1},
                         .unrecorded = {.count = 1},
                         .marks_unreadable = {.count = 1},
                         .corrupt = {.count = 1, .first = "/runs/r/step-1"},
                         .unreadable = {.count = 1}};
  const auto all = diagnose(facts);
  for (const Diagnosis& one : all) EXPECT_FALSE(one.mend.empty()) << one.text;
  EXPECT_EQ(all.size(), 9U);
  EXPECT_EQ(find(all, "left over", Health::warn)->mend, "ckpt repair /runs --apply");
  EXPECT_EQ(find(all, "catalog", Health::warn)->mend, "ckpt list --rebuild --store /runs");
  EXPECT_NE(find(all, "checkpoints", Health::fail)->text.find("/runs/r/step-1"), std::string::npos);
}

TEST(Doctor, TellsACatalogOfALaterReleaseALockedAndAForbiddenOneApart) {
  const auto mend = [](Errc code) {
    const auto all = diagnose(StoreFacts{.path = "/runs", .has_catalog = true, .catalog = Error{.code = code}});
    return find(all, "catalog", Health::warn)->mend;
  };
  EXPECT_NE(mend(Errc::newer).find("use that release"), std::string::npos);
  EXPECT_NE(mend(Errc::locked).find("wait"), std::string::npos);
  EXPECT_NE(mend(Errc::io).find("make it writable"), std::string::npos);
}

}  // namespace
}  // namespace ckpt::cli
