// Whole conversions, loads and verifications on a network file system at its worst, by two hosts (simulated:
// support/network_io.hpp).
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/catalog/scrub.hpp"
#include "api/verbs.hpp"
#include "catalog/scan/entry.hpp"
#include "engine/io/remove_tree.hpp"
#include "engine/locks/claims.hpp"
#include "engine/publish/publish.hpp"
#include "support/fault_io.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/network_io.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMemory = std::uint64_t{1} << 31;
constexpr std::uint64_t kStride = 5;

class NetworkVerbs : public testing::Test {
 protected:
  NetworkVerbs() : comm_(Comm::solo()) {
    fs::create_directories(claims_path(store_));
    test::write_file(claims_path(store_) + "/ready", "");
    fs::copy(golden_root("safetensors/gpt2_single_file"), source_, fs::copy_options::recursive);
  }
  std::unique_ptr<Io> host(const std::string& name) { return network_.io(name, ++last_pid_); }
  Session session(Io& io) { return {.io = io, .comm = *comm_, .memory_bytes = kMemory}; }
  Result<ConvertReport> convert_on(Io& io, const std::string& target, const std::string& to) {
    Session one = session(io);
    return convert(one, {.source = source_, .target = target, .to = to, .shard_bytes = 48 << 10});
  }
  Result<VerifyReport> verify_on(Io& io, const std::string& path) {
    Session one = session(io);
    return verify(one, {.path = path});
  }
  std::vector<std::string> partials() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(store_))
      if (entry.path().filename().string().find(kPartialMark) != std::string::npos) out.push_back(entry.path());
    return out;
  }

  const TempDir directory_{memory_temp_dir()};
  const std::string store_ = directory_.path() + "/store";
  const std::string source_ = directory_.path() + "/source";
  std::unique_ptr<Comm> comm_;
  NetworkDisk network_{[] { return *open_io(IoKind::threads, 4); }, {.lost_answers = 1}};
  std::uint64_t last_pid_ = 100;
};

TEST_F(NetworkVerbs, WhatOneHostConvertsTheOtherFindsVerifiesAndLoads) {
  for (const std::string to : {"ckpt", "safetensors"}) {
    const std::string target = store_ + "/as-" + to;
    const auto first = host("n1");
    const auto second = host("n2");
    EXPECT_FALSE(verify_on(*second, target)) << "it is not there yet, which this host now remembers";
    const auto done = convert_on(*first, target, to);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_FALSE(done->already_done);
    const auto own = convert_on(*first, target, to);
    ASSERT_TRUE(own) << own.error().message;
    EXPECT_TRUE(own->already_done);
    // A host that remembers that there was nothing makes it again, and finds at the end what it is.
    const auto late = convert_on(*second, target, to);
    EXPECT_TRUE(late ? late->already_done : late.error().code == Errc::target_exists) << late.error().message;
    network_.forget();
    const auto again = convert_on(*second, target, to);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_TRUE(again->already_done);
    const auto verified = verify_on(*second, target);
    ASSERT_TRUE(verified) << verified.error().message;
    EXPECT_TRUE(verified->ok);
    Session one = session(*second);
    const std::string loaded = store_ + "/loaded-" + to + ".safetensors";
    const auto taken = load(one, {.source = target, .target = loaded});
    ASSERT_TRUE(taken) << taken.error().message;
    EXPECT_FALSE(taken->tensors.empty());
    Session other = session(*first);
    const auto equal = verify(other, {.path = loaded, .against = source_});
    ASSERT_TRUE(equal) << equal.error().message;
    EXPECT_TRUE(equal->different.empty());
    EXPECT_EQ(equal->compared, taken->tensors.size());
  }
  EXPECT_TRUE(partials().empty()) << partials().front();
}

TEST_F(NetworkVerbs, TwoHostsThatConvertToOnePlaceAtOnceMakeItOnce) {
  ASSERT_TRUE(convert_on(*host("n1"), store_ + "/m", "ckpt"));
  const auto expected = test::read_tree(store_ + "/m");
  std::uint64_t met = 0;
  for (std::uint64_t n = 0;; n += kStride) {
    fs::remove_all(store_ + "/m");
    network_.forget();
    const auto plan = std::make_shared<FaultPlan>();
    Result<ConvertReport> other = fail(Errc::internal, "never converted");
    plan->call_at(n, [&] { other = convert_on(*host("n2"), store_ + "/m", "ckpt"); });
    const auto io = make_fault_io(host("n1"), plan);
    auto mine = convert_on(*io, store_ + "/m", "ckpt");
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
    if (plan->first_failed().empty()) break;
    EXPECT_TRUE(mine || other) << mine.error().message << "; " << other.error().message;
    for (const auto* one : {&mine, &other}) {
      if (*one) continue;
      ++met;
      const Errc code = one->error().code;
      EXPECT_TRUE(code == Errc::locked || code == Errc::target_exists) << one->error().message;
    }
    EXPECT_EQ(test::read_tree(store_ + "/m"), expected);
    EXPECT_TRUE(partials().empty()) << partials().front();
    if (HasFailure()) return;
  }
  EXPECT_GT(met, 0u);
}

TEST_F(NetworkVerbs, ASourceThatAnotherHostRemovesMeanwhileIsToldAndNothingIsPublished) {
  const std::string kept = directory_.path() + "/kept";
  fs::copy(source_, kept, fs::copy_options::recursive);
  std::uint64_t stale = 0;
  for (std::uint64_t n = 0;; ++n) {
    fs::remove_all(store_ + "/m");
    fs::remove_all(source_);
    fs::copy(kept, source_, fs::copy_options::recursive);
    for (const std::string& path : partials()) fs::remove_all(path);
    network_.forget();
    const auto plan = std::make_shared<FaultPlan>();
    plan->count_only({"open", "fstat", "read"});
    plan->call_at(n, [&] { EXPECT_TRUE(remove_tree(*host("n2"), source_)); });
    const std::uint64_t before = network_.stale_count();
    const auto io = make_fault_io(host("n1"), plan);
    const auto done = convert_on(*io, store_ + "/m", "ckpt");
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
    if (plan->first_failed().empty()) break;
    EXPECT_EQ(done.has_value(), fs::exists(store_ + "/m"));
    if (done) {
      network_.forget();
      const auto verified = verify_on(*host("n2"), store_ + "/m");
      EXPECT_TRUE(verified && verified->ok);
      continue;
    }
    EXPECT_NE(done.error().message.find(source_), std::string::npos) << done.error().message;
    // A small file is opened again, and then it is not there. What had been looked at is changed, with which it is
    // tried again; else the words are the file system's.
    if (network_.stale_count() > before && done.error().code != Errc::not_found) {
      ++stale;
      if (done.error().code == Errc::changed) continue;
      EXPECT_EQ(done.error().code, Errc::io) << done.error().message;
      EXPECT_NE(done.error().message.find("Stale file handle"), std::string::npos) << done.error().message;
      EXPECT_NE(done.error().hint.find("another host"), std::string::npos) << done.error().hint;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(stale, 0u);
}

TEST_F(NetworkVerbs, VerifyNeverCallsDamagedWhatAnotherHostRemovesMeanwhile) {
  const std::string run = store_ + "/run";
  const std::string target = run + "/step-000000001.g1";
  ASSERT_TRUE(convert_on(*host("n1"), store_ + "/m", "ckpt"));
  std::uint64_t stale = 0;
  for (const bool all : {false, true}) {
    for (std::uint64_t n = all ? 1 : 0;; n += all ? 3 : 1) {
      fs::remove_all(run);
      fs::create_directories(run);
      fs::copy(store_ + "/m", target, fs::copy_options::recursive);
      network_.forget();
      const auto plan = std::make_shared<FaultPlan>();
      plan->count_only({"open", "fstat", "read"});
      plan->call_at(n, [&] { EXPECT_TRUE(remove_tree(*host("n2"), target)); });
      const std::uint64_t before = network_.stale_count();
      const auto io = make_fault_io(host("n1"), plan);
      Session one = session(*io);
      if (all) {
        const auto report = scrub(one,
                                  {.store = store_,
                                   .runs = {"run"},
                                   .by = "test",
                                   .clock = [] { return catalog::Time(std::chrono::hours(490'000)); }},
                                  {});
        SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
        if (plan->first_failed().empty()) break;
        if (!report) {
          EXPECT_EQ(report.error().code, Errc::not_found) << report.error().message;
        } else {
          EXPECT_EQ(report->count(ScrubVerdict::damaged), 0u);
        }
      } else {
        const auto report = verify(one, {.path = target});
        SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
        if (plan->first_failed().empty()) break;
        if (report) {
          EXPECT_TRUE(report->ok) << report->damage.front().text;
        } else {
          const Errc code = report.error().code;
          EXPECT_TRUE(code == Errc::io || code == Errc::not_found || code == Errc::incomplete ||
                      code == Errc::uncommitted || code == Errc::changed)
              << report.error().message;
        }
      }
      stale += network_.stale_count() - before;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(stale, 0u);
}

/// Direct I/O is asked for and refused: what is written and read is the same, and the report says so.
TEST_F(NetworkVerbs, RefusedDirectIoFallsBackAndIsTold) {
  const auto io = host("n1");
  const auto file = io->open(store_ + "/file", {.mode = OpenOptions::Mode::write_new, .direct = true});
  ASSERT_TRUE(file);
  EXPECT_FALSE(io->is_direct(*file));
  ASSERT_TRUE(io->close(*file));
  const auto done = convert_on(*io, store_ + "/m", "ckpt");
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->io_name, "threads");
  EXPECT_FALSE(done->direct);
  const auto verified = verify_on(*io, store_ + "/m");
  ASSERT_TRUE(verified) << verified.error().message;
  EXPECT_TRUE(verified->ok);
}

}  // namespace
}  // namespace ckpt
