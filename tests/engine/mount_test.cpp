#include "engine/io/mount.hpp"

#include <gtest/gtest.h>

namespace ckpt {
namespace {

constexpr const char* kLines =
    "22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n"
    "36 22 0:32 / /mnt/a\\040b rw,noatime - nfs4 server:/ex\\134port rw,vers=4.2,soft,local_lock=none\n"
    "this is no line of it\n"
    "37 22 0:33 / /mnt/abc ro master:3 propagate_from:2 - tmpfs tmpfs rw,size=100k\n"
    "38 37 0:34 / /mnt/abc rw - overlay overlay rw,lowerdir=/l\n";

TEST(Mount, LinesAreReadWithTheirEscapesAndBothKindsOfOptions) {
  const auto mounts = parse_mounts(kLines);
  ASSERT_EQ(mounts.size(), 4u);
  EXPECT_EQ(mounts[1].point, "/mnt/a b");
  EXPECT_EQ(mounts[1].source, "server:/ex\\port");
  EXPECT_EQ(mounts[1].type, "nfs4");
  EXPECT_EQ(mounts[1].device, "0:32");
  EXPECT_TRUE(mounts[1].has("noatime"));
  EXPECT_TRUE(mounts[1].has("soft"));
  EXPECT_TRUE(mounts[1].has("local_lock"));
  EXPECT_EQ(mounts[1].value_of("local_lock"), "none");
  EXPECT_FALSE(mounts[1].has("local"));
  EXPECT_EQ(mounts[1].value_of("soft"), "");
}

TEST(Mount, APathLiesOnTheLongestPointAboveItAndOnTheLastOfEqualOnes) {
  const auto mounts = parse_mounts(kLines);
  EXPECT_EQ(mount_of(mounts, "/home/ana")->type, "ext4");
  EXPECT_EQ(mount_of(mounts, "/mnt/a b")->type, "nfs4");
  EXPECT_EQ(mount_of(mounts, "/mnt/a b/run")->type, "nfs4");
  EXPECT_EQ(mount_of(mounts, "/mnt/abc/run")->type, "overlay");
  EXPECT_EQ(mount_of(mounts, "/mnt/abcd")->type, "ext4");
  EXPECT_FALSE(mount_of({}, "/home"));
}

}  // namespace
}  // namespace ckpt
