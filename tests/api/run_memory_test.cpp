// What a save and a partial load cost beside the bytes themselves: memory, and bytes read.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "api/run/run.hpp"
#include "support/temp_dir.hpp"

namespace ckpt::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCountsMemory = false;
#else
constexpr bool kCountsMemory = true;
#endif
constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kPool = 64 * kMiB;
constexpr std::uint64_t kTensors = 12;
constexpr std::uint64_t kRows = 4096;
constexpr std::uint64_t kColumns = 4096;  // F32: 64 MiB a tensor
constexpr std::uint64_t kTensorBytes = kRows * kColumns * 4;

std::uint64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

float value_of(std::uint64_t tensor, std::uint64_t element) {
  return static_cast<float>((element * 31 + tensor) % 8191);
}

std::string name_of(std::uint64_t tensor) {
  return "w" + std::to_string(tensor);
}

/// A run of one rank whose tensors stand in no memory: they are computed as they are copied out.
class RunMemory : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<universal::TensorRow> rows;
    for (std::uint64_t i = 0; i < kTensors; ++i) {
      rows.push_back({.tensor = {.name = name_of(i), .dtype = Dtype::f32, .shape = {kRows, kColumns}}});
    }
    auto model = Model::make({{.kind = universal::Layout::Kind::mesh}}, std::move(rows));
    ASSERT_TRUE(model) << model.error().message;
    auto run = ckpt::Run::open(open_io(IoKind::automatic, 8), Comm::solo(), directory_.path() + "/run",
                               {.staging_bytes = kPool});
    ASSERT_TRUE(run) << run.error().message;
    store_ = std::move(*run);
    store_->set_model(std::move(*model));
  }
  void save() {
    ASSERT_TRUE(store_->begin(1));
    for (std::uint64_t i = 0; i < kTensors; ++i) {
      const auto fill = [i](std::byte* out, std::uint64_t offset, std::uint64_t bytes) -> Result<> {
        for (std::uint64_t at = 0; at < bytes; at += 4) {
          const float value = value_of(i, (offset + at) / 4);
          std::memcpy(out + at, &value, 4);
        }
        return {};
      };
      ASSERT_TRUE(store_->saver().add({.name = name_of(i), .memory = {.bytes = kTensorBytes, .fill = fill}}));
    }
    const auto pending = store_->commit({});
    ASSERT_TRUE(pending) << pending.error().message;
    const auto done = store_->wait_all(std::chrono::minutes(5));
    ASSERT_TRUE(done) << done.error().message;
  }

  const TempDir directory_{memory_temp_dir()};
  const std::uint64_t before_ = peak_memory();
  std::unique_ptr<ckpt::Run> store_;
};

TEST_F(RunMemory, ASaveTakesItsPoolAndLittleMoreWhateverTheSizeOfTheState) {
  if (!kCountsMemory) GTEST_SKIP() << "a sanitizer's own memory is counted, too";
  ASSERT_NO_FATAL_FAILURE(save());
  EXPECT_GE(peak_memory() - before_, kPool);
  EXPECT_LE(peak_memory() - before_, kPool + 64 * kMiB) << "for " << kTensors * kTensorBytes / kMiB << " MiB";
}

TEST_F(RunMemory, APartialLoadReadsOnlyWhatItNeeds) {
  ASSERT_NO_FATAL_FAILURE(save());
  // A twentieth of the rows of every tensor, and a twentieth of the columns of one: each row of it an extent of its
  // own.
  const Box rows{.offset = {100, 0}, .size = {kRows / 20, kColumns}};
  const Box columns{.offset = {0, 77}, .size = {kRows, kColumns / 20}};
  std::vector<std::vector<float>> memory;
  std::vector<NamedRead> reads;
  for (std::uint64_t i = 0; i < kTensors; ++i) {
    memory.emplace_back(volume(rows.size));
    auto* out = reinterpret_cast<std::byte*>(memory.back().data());
    reads.push_back({.name = name_of(i), .box = rows, .out = out, .bytes = volume(rows.size) * 4});
  }
  auto loaded = store_->load(reads, false);
  ASSERT_TRUE(loaded) << loaded.error().message;
  const ReadReport& report = loaded->report.load;
  EXPECT_EQ(report.needed_bytes, kTensors * volume(rows.size) * 4);
  EXPECT_LE(report.read_bytes, report.needed_bytes + report.needed_bytes / 50 + kTensors * 64 * 1024);
  for (std::uint64_t i = 0; i < kTensors; ++i) {
    for (const std::uint64_t at : {std::uint64_t{0}, volume(rows.size) / 2, volume(rows.size) - 1}) {
      ASSERT_EQ(memory[i][at], value_of(i, 100 * kColumns + at));
    }
  }
  std::vector<float> part(volume(columns.size));
  const std::vector<NamedRead> one = {
      {.name = name_of(3), .box = columns, .out = reinterpret_cast<std::byte*>(part.data()), .bytes = part.size() * 4}};
  loaded = store_->load(one, false);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_LE(loaded->report.load.read_bytes, kTensorBytes + 64 * 1024);
  EXPECT_EQ(part[columns.size[1]], value_of(3, kColumns + 77));
}

}  // namespace
}  // namespace ckpt::test
