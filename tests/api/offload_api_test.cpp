// The offload store by its public headers alone.
#include "ckpt/offload.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/temp_dir.hpp"

namespace ckpt::test {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kBuffer = 64 << 10;

class OffloadApi : public testing::Test {
 protected:
  Offload::Options options(std::uint64_t buffers) const {
    return {.directory = path_, .memory_bytes = buffers * kBuffer, .buffer_bytes = kBuffer};
  }
  const TempDir directory_{memory_temp_dir()};
  const std::string path_ = directory_.path() + "/swap";
};

Bytes random_bytes(std::mt19937& random, std::size_t count) {
  Bytes out(count);
  for (std::byte& each : out) each = static_cast<std::byte>(random());
  return out;
}

TEST_F(OffloadApi, FourTimesTheMemoryComesBackAsItWasPutWithinIt) {
  std::mt19937 random(7);
  std::map<std::string, Bytes> model;
  auto offload = Offload::open(options(8));
  ASSERT_TRUE(offload) << offload.error().json;
  for (int step = 0; step < 400; ++step) {
    const std::string name = "layer/" + std::to_string(random() % 16);
    const auto known = model.find(name);
    if (random() % 2 == 0 || known == model.end()) {
      Bytes bytes = random_bytes(random, kBuffer + random() % (2 * kBuffer));
      const auto put = offload->put(name, bytes);
      ASSERT_TRUE(put) << put.error().json;
      model[name] = std::move(bytes);
    } else {
      if (random() % 2 == 0) {
        ASSERT_TRUE(offload->prefetch(name));
      }
      Bytes out(known->second.size());
      const auto got = offload->get(name, out);
      ASSERT_TRUE(got) << got.error().json;
      ASSERT_TRUE(out == known->second) << name;
    }
  }
  ASSERT_TRUE(offload->flush());
  const ckpt_offload_stats stats = offload->stats();
  EXPECT_LE(stats.peak_memory_bytes, 8 * kBuffer);
  EXPECT_GT(stats.misses, 0U);
  EXPECT_GT(stats.written_bytes, 8 * kBuffer);
  EXPECT_EQ(stats.write_failures, 0U);
}

TEST_F(OffloadApi, NamesThatAreNotThereAndSizesThatAreNotTheirsAreRefused) {
  auto offload = Offload::open(options(4));
  ASSERT_TRUE(offload) << offload.error().json;
  Bytes out(10);
  EXPECT_EQ(offload->get("a", out).error().code, 10);
  EXPECT_EQ(offload->prefetch("a").error().code, 10);
  EXPECT_EQ(offload->bytes("a").error().code, 10);
  ASSERT_TRUE(offload->put("a", Bytes(11)));
  EXPECT_EQ(offload->bytes("a").value_or(0), 11U);
  EXPECT_EQ(offload->get("a", out).error().code, 2);
  ASSERT_TRUE(offload->remove("a"));
  EXPECT_EQ(offload->remove("a").error().code, 10);
}

TEST_F(OffloadApi, TheDirectoryBelongsToOneAndIsEmptyAfterIt) {
  {
    auto offload = Offload::open(options(4));
    ASSERT_TRUE(offload) << offload.error().json;
    ASSERT_TRUE(offload->put("a", Bytes(3 * kBuffer)));
    ASSERT_TRUE(offload->flush());
    const auto second = Offload::open(options(4));
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, 11);
  }
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(path_))
    bytes += entry.is_regular_file() ? entry.file_size() : 0;
  EXPECT_LT(bytes, kBuffer) << "swap files are left";
  EXPECT_TRUE(Offload::open(options(4)));
}

TEST_F(OffloadApi, SizesThatCannotBeAreRefused) {
  EXPECT_EQ(Offload::open({.directory = path_, .memory_bytes = kBuffer, .buffer_bytes = kBuffer}).error().code, 2);
  EXPECT_EQ(Offload::open({.directory = path_, .buffer_bytes = 1000}).error().code, 2);
  Offload::Options wrong = options(4);
  wrong.io = "tape";
  EXPECT_EQ(Offload::open(wrong).error().code, 2);
  EXPECT_EQ(ckpt_offload_open(nullptr, nullptr), 2);
  EXPECT_EQ(ckpt_offload_close(nullptr), 0);
}

TEST_F(OffloadApi, AForkedChildIsRefusedAndTakesNothingAway) {
  auto offload = Offload::open(options(4));
  ASSERT_TRUE(offload) << offload.error().json;
  ASSERT_TRUE(offload->put("a", Bytes(100, std::byte{7})));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto put = offload->put("b", Bytes(1));
    ::_exit(!put && put.error().code == 2 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  Bytes out(100);
  ASSERT_TRUE(offload->get("a", out));
  EXPECT_EQ(out, Bytes(100, std::byte{7}));
}

TEST_F(OffloadApi, ADeepSpeedConfigurationSaysWhereAndHowMuch) {
  const std::string text =
      R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": ")" +
      directory_.path() + R"(", "buffer_count": 4}}, "aio": {"block_size": 131072}})";
  {
    auto offload =
        Offload::open_deepspeed(text, Offload::Part::optimizer, {.largest_tensor_bytes = 1 << 20, .rank = 3});
    ASSERT_TRUE(offload) << offload.error().json;
    ASSERT_TRUE(offload->put("exp_avg", Bytes(1 << 20)));
    EXPECT_TRUE(fs::is_directory(directory_.path() + "/ckpt-offload-rank3"));
  }
  EXPECT_EQ(Offload::open_deepspeed(text, Offload::Part::parameters, {}).error().code, 2) << "they stay on the device";
  EXPECT_EQ(Offload::open_deepspeed("{", Offload::Part::optimizer, {}).error().code, 15);
}

}  // namespace
}  // namespace ckpt::test
