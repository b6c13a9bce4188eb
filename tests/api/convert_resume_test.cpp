// A convert on one rank that is killed at any operation and run again: it ends with the bytes of one that never was,
// and what was finished is not written again, whatever became of what it left.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/conversion_targets.hpp"
#include "api/verbs.hpp"
#include "engine/io/forwarding_io.hpp"
#include "engine/run/plan.hpp"
#include "support/fault_io.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

/// After the target in the name of a partial of a third conversion.
const std::string kThird = ".partial-" + std::string(32, 'f');

namespace fs = std::filesystem;

/// A safetensors file with one tensor of F32, of which every thousandth value does not fit in F16.
std::string big_safetensors(std::size_t elements) {
  std::string header = R"({"w":{"dtype":"F32","shape":[)" + std::to_string(elements) + R"(],"data_offsets":[0,)" +
                       std::to_string(elements * 4) + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string out(8 + header.size() + elements * 4, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(out.data(), &length, 8);
  std::memcpy(out.data() + 8, header.data(), header.size());
  for (std::size_t i = 0; i < elements; ++i) {
    const float value = i % 1000 == 7 ? 1e30f : static_cast<float>(i % 4096);
    std::memcpy(out.data() + 8 + header.size() + i * 4, &value, 4);
  }
  return out;
}

struct Case {
  std::string name;
  IoKind engine = IoKind::threads;
  ConversionTarget target;
  bool big = false;          // several leaves of one file, cast; else several files of one leaf
  std::uint64_t stride = 1;  // between the operations at which it is killed
};
void PrintTo(const Case& each, std::ostream* out) {
  *out << each.name;
}

class ConvertResume : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto opened = open_io(GetParam().engine, 8);
    if (!opened && GetParam().engine == IoKind::uring) GTEST_SKIP() << opened.error().message;
    ASSERT_TRUE(opened) << opened.error().message;
    io_ = *std::move(opened);
    fs::create_directory(out_);
    if (GetParam().big) {
      source_ = directory_.path() + "/source.safetensors";
      test::write_file(source_, big_safetensors(4'500'000));  // three leaves of F16
    } else {
      source_ = directory_.path() + "/source";
      fs::copy(golden_root(GetParam().target.golden), source_, fs::copy_options::recursive);
    }
    const auto done = convert_with(*io_);
    ASSERT_TRUE(done) << done.error().message;
    whole_ = *done;
    expected_ = test::read_tree(target_);
    fs::remove_all(target_);
  }

  ConvertRequest request() const {
    const ConversionTarget& target = GetParam().target;
    ConvertRequest out{.source = source_,
                       .target = target_,
                       .to = target.to,
                       .shard_bytes = target.shard_bytes,
                       .options = target.options};
    if (GetParam().big) out.dtype = Dtype::f16;
    return out;
  }
  Result<ConvertReport> convert_with(Io& io) { return convert_with(io, request()); }
  Result<ConvertReport> convert_with(Io& io, const ConvertRequest& wanted) {
    const auto comm = Comm::solo();
    Session session{.io = io,
                    .comm = *comm,
                    .memory_bytes = std::uint64_t{1} << 31,
                    .stop = &stop_,
                    .record_every = std::chrono::milliseconds(0)};
    return convert(session, wanted);
  }
  std::unique_ptr<Io> fault_io(const std::shared_ptr<FaultPlan>& plan) const {
    auto inner = io_->new_instance();
    EXPECT_TRUE(inner);
    return make_fault_io(*std::move(inner), plan);
  }
  /// Everything fails from operation `n` on, as for a process that is killed there.
  Result<ConvertReport> killed_at(std::uint64_t n) {
    const auto plan = std::make_shared<FaultPlan>();
    plan->fail_from(n, Errc::io);
    const auto io = fault_io(plan);
    return convert_with(*io);
  }
  /// The same at the n-th operation that changes what a file holds.
  Result<ConvertReport> killed_at_change(std::uint64_t n) {
    const auto dead = std::make_shared<FaultPlan>();
    const auto writes = std::make_shared<FaultPlan>();
    writes->count_only({"write", "truncate", "fdatasync"});
    writes->call_at(n, [dead] { dead->fail_from(0, Errc::io); });
    const auto io = make_fault_io(fault_io(dead), writes);
    return convert_with(*io);
  }
  /// Killed when at least so many leaves are finished; what that leaves is beside the target.
  void kill_after(std::size_t leaves) {
    for (std::uint64_t n = leaves;; ++n) {
      clear();
      ASSERT_FALSE(killed_at_change(n)) << "it ended before it was killed";
      if (finished().size() >= leaves) return;
    }
  }
  void clear() const {
    for (const auto& entry : fs::directory_iterator(out_)) fs::remove_all(entry.path());
  }
  std::string partial() const { return target_ + ".partial-" + whole_.id; }
  std::vector<std::string> beside() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(out_)) {
      if (entry.path() != target_) out.push_back(entry.path().filename());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  /// A leaf of the target: the file that it stands in below the partial ("" = itself), and where.
  struct Place {
    std::string path;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  /// What a left-over's record calls finished, read as docs/store-files.md says.
  std::vector<Place> finished() const {
    const std::string record = partial() + ".leaves";
    if (!fs::exists(record) || !fs::exists(partial())) return {};
    const std::string text = test::read_file(record);
    std::vector<Place> out;
    std::size_t slot = 64;
    for (const auto& [path, bytes] : whole_.files) {
      for (std::uint64_t at = 0; at < bytes; at += kLeafBytes, slot += 32) {
        if (slot + 32 > text.size()) return {};
        if (text.substr(slot, 16) != std::string(16, '\0'))
          out.push_back({path, at, std::min<std::uint64_t>(kLeafBytes, bytes - at)});
      }
    }
    return out;
  }
  static std::uint64_t bytes_of(const std::vector<Place>& places) {
    std::uint64_t sum = 0;
    for (const Place& place : places) sum += place.bytes;
    return sum;
  }
  std::string file_of(const Place& place) const {
    return place.path.empty() ? partial() : partial() + "/" + place.path;
  }

  /// Runs again, and checks the target and that none of `kept` was written.
  void expect_resumed(const std::vector<Place>& kept) {
    const auto plan = std::make_shared<FaultPlan>();
    plan->keep_operations();
    const auto io = fault_io(plan);
    const auto done = convert_with(*io);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(test::read_tree(target_), expected_);
    EXPECT_EQ(beside(), std::vector<std::string>{});
    EXPECT_EQ(done->resumed_bytes, bytes_of(kept));
    EXPECT_EQ(done->overflowed, whole_.overflowed);
    EXPECT_EQ(done->became_nan, whole_.became_nan);
    // How many were checked depends on which leaves share a read, and on which were read again.
    EXPECT_GE(done->crc_checked, whole_.crc_checked);
    EXPECT_EQ(done->crc_unread, whole_.crc_unread);
    std::set<std::pair<std::string, std::uint64_t>> written;
    for (const FaultPlan::Operation& operation : plan->operations()) {
      if (operation.name == "write") written.emplace(operation.object, operation.offset);
    }
    for (const Place& place : kept)
      EXPECT_FALSE(written.contains({file_of(place), place.offset})) << file_of(place) << " at " << place.offset;
  }

  const TempDir directory_{memory_temp_dir()};
  const std::string out_ = directory_.path() + "/out";
  const std::string target_ = out_ + "/" + GetParam().target.path;
  std::string source_;
  ConvertReport whole_;  // of a run that nothing disturbed
  test::FileTree expected_;
  std::unique_ptr<Io> io_;
  std::atomic<bool> stop_{false};
};

/// What does not depend on how requests are queued.
class ConvertResumeOnOneEngine : public ConvertResume {};

TEST_P(ConvertResume, KilledAtAnyOperationItGoesOnFromWhatIsFinished) {
  std::size_t most = 0;
  for (std::uint64_t n = 0;; n += GetParam().stride) {
    ASSERT_LT(n, 10000U);
    clear();
    const auto done = killed_at(n);
    SCOPED_TRACE("operation " + std::to_string(n));
    if (done) break;
    if (fs::exists(target_)) {
      const auto again = convert_with(*io_);
      ASSERT_TRUE(again) << again.error().message;
      EXPECT_TRUE(again->already_done);
      EXPECT_EQ(beside(), std::vector<std::string>{});
      continue;
    }
    const auto left = finished();
    most = std::max(most, left.size());
    expect_resumed(left);
    if (HasFailure()) return;
  }
  EXPECT_GT(most, 2U) << "nothing was ever finished";
  EXPECT_EQ(test::read_tree(target_), expected_);
}

TEST_P(ConvertResume, KilledAgainAndAgainItEndsAllTheSame) {
  constexpr std::uint64_t kFewest =
      7;  // operations that each run makes more than the one before: some targets have many
  std::uint64_t runs = 0;
  for (std::uint64_t n = 20; !fs::exists(target_); n += std::max(GetParam().stride, kFewest)) {
    ASSERT_LT(++runs, 500U);
    static_cast<void>(killed_at(n));
  }
  EXPECT_GT(runs, 3U);
  EXPECT_EQ(test::read_tree(target_), expected_);
}

TEST_P(ConvertResumeOnOneEngine, ALeafThatIsDamagedIsMadeAgain) {
  ASSERT_NO_FATAL_FAILURE(kill_after(3));
  auto left = finished();
  for (const std::size_t which : {left.size() - 1, std::size_t{0}}) {
    const std::string path = file_of(left[which]);
    std::string bytes = test::read_file(path);
    bytes[left[which].offset + left[which].bytes / 2] ^= 4;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(which));
  }
  expect_resumed(left);
}

TEST_P(ConvertResumeOnOneEngine, ARecordThatIsDamagedCostsItsLeavesOnly) {
  ASSERT_NO_FATAL_FAILURE(kill_after(3));
  auto left = finished();
  std::string record = test::read_file(partial() + ".leaves");
  std::size_t slot = 64;
  while (record.substr(slot, 16) == std::string(16, '\0')) slot += 32;
  record[slot] ^= 1;  // the first finished one
  test::write_file(partial() + ".leaves", record);
  left.erase(left.begin());
  expect_resumed(left);

  ASSERT_NO_FATAL_FAILURE(kill_after(3));
  record = test::read_file(partial() + ".leaves");
  record[20] ^= 1;  // its header: it is not this conversion's
  test::write_file(partial() + ".leaves", record);
  expect_resumed({});
}

/// A file system that does not say when an inode changed: a source that is rewritten there with its old time gives a
/// conversion of the same id.
class WithoutChangeTimes final : public ForwardingIo {
 public:
  using ForwardingIo::ForwardingIo;
  Result<std::unique_ptr<Io>> new_instance() const override {
    CKPT_TRY(auto own, inner().new_instance());
    return std::unique_ptr<Io>(std::make_unique<WithoutChangeTimes>(std::move(own)));
  }
  Result<FileInfo> stat(const std::string& path) override { return ForwardingIo::stat(path).map(without); }
  Result<FileInfo> info(FileHandle file) override { return ForwardingIo::info(file).map(without); }

 private:
  static FileInfo without(FileInfo info) {
    info.ctime_ns = 0;
    return info;
  }
};

/// In parts that the killed run had copied, before or after, and in those that it had not.
TEST_P(ConvertResumeOnOneEngine, ABitThatFlippedInASourceEntryNeverReachesTheTarget) {
  if (GetParam().big || GetParam().target.golden.starts_with("folders/")) GTEST_SKIP() << "no checksums";
  io_ = std::make_unique<WithoutChangeTimes>(std::move(io_));
  ASSERT_TRUE(convert_with(*io_));  // under the id that a conversion has there
  expected_ = test::read_tree(target_);
  const std::string file = join_path(source_, GetParam().target.checked_file);
  const std::string right = test::read_file(file);
  const auto time = fs::last_write_time(file);
  const auto put = [&](std::size_t flipped) {
    std::string bytes = right;
    if (flipped < bytes.size()) bytes[flipped] ^= 16;
    test::write_file(file, bytes);
    fs::last_write_time(file, time);  // the conversion's id stays
  };
  unsigned refused = 0;
  for (std::size_t at = right.size() / 12; at < right.size() * 11 / 12; at += right.size() / 12) {
    for (std::uint64_t n = 0; n < 32; n += GetParam().stride) {
      SCOPED_TRACE("byte " + std::to_string(at) + ", killed at change " + std::to_string(n / 2));
      clear();
      put(n % 2 == 0 ? at : right.size());
      if (killed_at_change(n / 2)) break;
      put(at);
      const auto done = convert_with(*io_);
      put(right.size());
      refused += done ? 0U : 1U;
      EXPECT_TRUE(done ? test::read_tree(target_) == expected_
                       : done.error().code == Errc::checksum && beside().empty())
          << (done ? "the bit passed" : done.error().message);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(refused * GetParam().stride, 100U);
}

TEST_P(ConvertResumeOnOneEngine, FilesThatAreMissingOrCutAreMadeAndForeignOnesStopIt) {
  if (GetParam().big) GTEST_SKIP() << "one file";
  ASSERT_NO_FATAL_FAILURE(kill_after(4));
  auto left = finished();
  fs::remove(file_of(left[0]));
  fs::resize_file(file_of(left[1]), 5000);
  const std::string outside = directory_.path() + "/outside";
  test::write_file(outside, test::read_file(file_of(left[2])));
  const std::string before = test::read_file(outside);
  fs::remove(file_of(left[2]));
  fs::create_symlink(outside, file_of(left[2]));  // is not written through
  test::write_file(partial() + "/manifest.json", "{}");
  if (GetParam().target.to == "safetensors") test::write_file(partial() + "/model.safetensors.index.json", "{}");
  fs::create_directories(partial() + "/more/folders");
  test::write_file(partial() + "/more/folders/file", "x");
  const auto refused = convert_with(*io_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::usage);
  EXPECT_TRUE(refused.error().message.ends_with("it also holds more/, which ckpt did not put there"))
      << refused.error().message;
  fs::remove_all(partial() + "/more");
  left.erase(left.begin(), left.begin() + 3);
  expect_resumed(left);
  EXPECT_EQ(test::read_file(outside), before);
}

TEST_P(ConvertResumeOnOneEngine, ASourceThatChangedBeginsAnewAndEachLeftOverIsNamed) {
  ASSERT_NO_FATAL_FAILURE(kill_after(3));
  const std::string old = partial();
  fs::create_directory(target_ + kThird);  // of a third one
  const auto touch = [](const fs::path& file) {
    fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  };
  if (!fs::is_directory(source_)) touch(source_);
  for (const auto& entry :
       fs::is_directory(source_) ? fs::recursive_directory_iterator(source_) : fs::recursive_directory_iterator()) {
    if (entry.is_regular_file()) touch(entry.path());
  }
  const auto done = convert_with(*io_);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_NE(done->id, whole_.id);
  EXPECT_EQ(done->resumed_bytes, 0U);
  EXPECT_TRUE(fs::exists(old) && fs::exists(old + ".leaves")) << "not ours to remove";
  std::set<std::string> named;
  for (const Finding& note : done->notes) named.insert(note.file);
  EXPECT_TRUE(named.contains(old) && named.contains(target_ + kThird));
  EXPECT_FALSE(named.contains(old + ".leaves"));
}

TEST_P(ConvertResumeOnOneEngine, AmongSeveralLeftOversItTakesItsOwn) {
  ASSERT_NO_FATAL_FAILURE(kill_after(3));
  const auto left = finished();
  fs::copy(partial(), target_ + kThird, fs::copy_options::recursive);
  fs::copy(partial() + ".leaves", target_ + kThird + ".leaves");
  const auto done = convert_with(*io_);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->resumed_bytes, bytes_of(left));
  EXPECT_EQ(test::read_tree(target_), expected_);
  const std::string other = GetParam().target.path + kThird;
  EXPECT_EQ(beside(), (std::vector<std::string>{other, other + ".leaves"}));
}

TEST_P(ConvertResumeOnOneEngine, RestartBeginsAnew) {
  ASSERT_NO_FATAL_FAILURE(kill_after(3));
  ConvertRequest wanted = request();
  wanted.restart = true;
  const auto done = convert_with(*io_, wanted);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->resumed_bytes, 0U);
  EXPECT_EQ(test::read_tree(target_), expected_);
  EXPECT_EQ(beside(), std::vector<std::string>{});
}

TEST_P(ConvertResumeOnOneEngine, WhatWasNotCheckedBeforeIsNotTakenUpByOneThatChecks) {
  ASSERT_NO_FATAL_FAILURE(kill_after(3));
  ConvertRequest wanted = request();
  wanted.verify = VerifyLevel::none;
  ASSERT_EQ(convert_with(*io_, wanted)->resumed_bytes, 0U);
  EXPECT_EQ(test::read_tree(target_), expected_);
}

TEST_P(ConvertResumeOnOneEngine, ADryRunSaysThatItWouldGoOnAndTouchesNothing) {
  ASSERT_NO_FATAL_FAILURE(kill_after(3));
  const test::FileTree before = test::read_tree(out_);
  ConvertRequest wanted = request();
  wanted.dry_run = true;
  const auto done = convert_with(*io_, wanted);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(std::any_of(done->notes.begin(), done->notes.end(), [&](const Finding& note) {
    return note.file == partial() && note.text.find("continues from it") != std::string::npos;
  }));
  EXPECT_EQ(test::read_tree(out_), before);
}

TEST_P(ConvertResumeOnOneEngine, OfTwoThatGoOnAtOnceOneIsToldThatTheOtherDoes) {
  ASSERT_NO_FATAL_FAILURE(kill_after(3));
  const auto left = finished();
  const auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"fdatasync"});
  Result<ConvertReport> second = ConvertReport{};
  plan->call_at(0, [&] {
    auto own = io_->new_instance();
    ASSERT_TRUE(own);
    second = convert_with(**own);
  });
  const auto io = fault_io(plan);
  const auto first = convert_with(*io);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->resumed_bytes, bytes_of(left));
  ASSERT_FALSE(second) << "two wrote one partial";
  EXPECT_EQ(second.error().code, Errc::locked) << second.error().message;
  EXPECT_EQ(test::read_tree(target_), expected_);
  EXPECT_EQ(beside(), std::vector<std::string>{});
}

TEST_P(ConvertResumeOnOneEngine, StoppedItLeavesWhatIsFinishedSaysSoAndGoesOn) {
  std::size_t left_something = 0;
  for (std::uint64_t n = 0;; n += GetParam().stride) {
    ASSERT_LT(n, 10000U);
    clear();
    stop_ = false;
    const auto plan = std::make_shared<FaultPlan>();
    plan->count_only({"write"});
    plan->call_at(n, [this] { stop_ = true; });
    const auto io = fault_io(plan);
    const auto done = convert_with(*io);
    stop_ = false;
    SCOPED_TRACE("write " + std::to_string(n));
    if (done) {
      if (plan->first_failed().empty()) break;
      continue;
    }
    ASSERT_EQ(done.error().code, Errc::interrupted) << done.error().message;
    const auto left = finished();
    EXPECT_EQ(!beside().empty(), !left.empty());
    EXPECT_EQ(done.error().hint.find("--restart") != std::string::npos, !left.empty()) << done.error().hint;
    if (!left.empty()) ++left_something;
    expect_resumed(left);
    if (HasFailure()) return;
  }
  EXPECT_GT(left_something, 0U);
}

/// --overwrite of a directory leaves the old one under the partial's name where it is killed after the exchange: it is
/// never written into.
TEST_P(ConvertResumeOnOneEngine, WhatAnOverwriteReplacedIsNotTakenForAPartial) {
  if (GetParam().big) GTEST_SKIP() << "a file is replaced by a rename";
  for (std::uint64_t n = 0;; n += GetParam().stride) {
    clear();
    ASSERT_TRUE(convert_with(*io_, GetParam().target.changed(request())));
    std::map<std::string, std::string> outside;  // further names of the old one's files
    for (const auto& [path, bytes] : test::read_tree(target_)) {
      const std::string name = directory_.path() + "/outside" + std::to_string(outside.size());
      fs::remove(name);
      fs::create_hard_link(target_ + "/" + path, name);
      outside.emplace(name, bytes);
    }
    const auto plan = std::make_shared<FaultPlan>();
    plan->count_only({"rename", "fsync directory", "unlink", "rmdir"});
    plan->fail_from(n, Errc::io);
    ConvertRequest wanted = request();
    wanted.overwrite = true;
    const auto io = fault_io(plan);
    const auto done = convert_with(*io, wanted);
    if (done) break;
    SCOPED_TRACE("name operation " + std::to_string(n));
    fs::remove_all(target_);
    auto again = convert_with(*io_, wanted);
    if (!again && !GetParam().target.old_tag.empty()) {
      // This conversion writes no file of that name, so what was replaced stays, and stops it until it is moved away.
      ASSERT_EQ(again.error().code, Errc::usage) << again.error().message;
      EXPECT_NE(again.error().message.find("also holds " + GetParam().target.old_tag), std::string::npos);
      fs::remove_all(directory_.path() + "/moved");
      fs::rename(partial(), directory_.path() + "/moved");
      again = convert_with(*io_, wanted);
    }
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(test::read_tree(target_), expected_);
    EXPECT_EQ(beside(), std::vector<std::string>{});
    for (const auto& [name, bytes] : outside) EXPECT_EQ(test::read_file(name), bytes) << name;
    if (HasFailure()) return;
  }
}

std::vector<Case> cases(IoKind engine) {
  const std::string zero3 = "deepspeed/zero3_fp32_dp3_tied_tiny";
  std::vector<Case> out{{"OneFile", engine, {.name = "OneFile", .path = "m.safetensors"}, true, 2},
                        {"Shards", engine, {.name = "Shards", .path = "m", .to = "safetensors", .golden = zero3}},
                        {"Universal", engine, {.name = "Universal", .path = "m", .to = "ckpt", .golden = zero3}}};
  for (const ConversionTarget& target : foreign_targets())
    out.push_back({target.name, engine, target, target.name == "TorchFile", fault_stride(target, 5)});
  return out;
}
const auto kName = [](const auto& each) { return each.param.name; };
INSTANTIATE_TEST_SUITE_P(Threads, ConvertResume, testing::ValuesIn(cases(IoKind::threads)), kName);
INSTANTIATE_TEST_SUITE_P(Uring, ConvertResume, testing::ValuesIn(cases(IoKind::uring)), kName);
INSTANTIATE_TEST_SUITE_P(Targets, ConvertResumeOnOneEngine, testing::ValuesIn(cases(IoKind::threads)), kName);

}  // namespace
}  // namespace ckpt
