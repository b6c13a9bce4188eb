// Repairs of which one operation fails, and what changes between the look and the deed.
#include "api/catalog/repair.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "catalog/scan/marks.hpp"
#include "catalog/store_builder.hpp"
#include "support/fault_io.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;
using catalog::Time;

const Time kNow{std::chrono::sys_days{std::chrono::year{2026} / 2 / 1}};

class Repair : public testing::Test {
 protected:
  Repair() : comm_(Comm::solo()) { reset(); }

  /// One checkpoint without its manifest, one without its copy, one that is whole, and what a killed save left.
  void reset() {
    fs::remove_all(store_.path() + "/r");
    for (std::uint64_t step = 1; step <= 3; ++step) {
      const std::string path = store_.put("r", step, step, {.weights_bytes = 0, .optim_bytes = 0});
      text_[step] = test::read_file(path + "/manifest.json");
    }
    fs::remove(manifest(1));
    fs::remove(copy(2));
    fs::create_directories(partial_ + "/shards/weights");
    test::write_file(partial_ + "/shards/weights/00000-00000.safetensors", "x");
  }
  std::string path(std::uint64_t step) const {
    return store_.path() + "/r/" + CheckpointName{.step = step, .generation = step}.text();
  }
  std::string manifest(std::uint64_t step) const { return path(step) + "/manifest.json"; }
  std::string copy(std::uint64_t step) const { return path(step) + "/index/manifest.json"; }

  Result<RepairReport> repaired(Io& io, bool apply = true) {
    Session session{.io = io, .comm = *comm_, .memory_bytes = std::uint64_t{1} << 31};
    return repair(session, {.path = store_.path(), .apply = apply, .by = "test", .clock = [] { return kNow; }});
  }
  std::unique_ptr<Io> io() {
    auto io = open_io(IoKind::threads);
    EXPECT_TRUE(io);
    return io ? *std::move(io) : nullptr;
  }
  bool is_mended() const {
    for (std::uint64_t step = 1; step <= 3; ++step) {
      if (!fs::exists(manifest(step)) || test::read_file(manifest(step)) != text_.at(step)) return false;
      if (!fs::exists(copy(step)) || test::read_file(copy(step)) != text_.at(step)) return false;
    }
    return !fs::exists(partial_);
  }

  test::StoreBuilder store_{};
  std::unique_ptr<Comm> comm_;
  std::map<std::uint64_t, std::string> text_{};
  const std::string partial_ = store_.path() + "/r/step-000000009.partial-0123456789abcdef0123456789abcdef";
};

TEST_F(Repair, MendsBothManifestsAndSweepsInOneRun) {
  const auto looked = repaired(store_.io(), false);
  ASSERT_TRUE(looked) << looked.error().message;
  EXPECT_EQ(looked->items.size(), 3U);
  EXPECT_TRUE(looked->is_broken());
  EXPECT_FALSE(fs::exists(manifest(1)));
  const auto report = repaired(store_.io());
  ASSERT_TRUE(report) << report.error().message;
  for (const RepairItem& item : report->items) EXPECT_TRUE(item.done) << item.kept_because;
  EXPECT_FALSE(report->is_broken());
  EXPECT_TRUE(is_mended());
}

TEST_F(Repair, AnyOperationThatFailsOnceLosesNothingAndTheNextRunMendsTheRest) {
  std::size_t failed = 0;
  for (std::uint64_t n = 0;; ++n) {
    reset();
    const auto plan = std::make_shared<FaultPlan>();
    plan->fail_once(n, Errc::io);
    const auto fault = make_fault_io(io(), plan);
    const auto report = repaired(*fault);
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + plan->first_failed());
    EXPECT_EQ(test::read_file(copy(1)), text_.at(1)) << "the only manifest that was right";
    EXPECT_EQ(test::read_file(manifest(2)), text_.at(2)) << "the only manifest that was right";
    EXPECT_EQ(test::read_file(manifest(3)), text_.at(3));
    if (fs::exists(manifest(1))) {
      EXPECT_EQ(test::read_file(manifest(1)), text_.at(1));
      const catalog::Marks marks = catalog::read_marks(store_.io(), path(1) + "/marks");
      EXPECT_FALSE(marks.marks.empty()) << "restored, and nothing says so";
    }
    const bool told_mended = report && report->is_complete() && !report->is_broken();
    EXPECT_TRUE(!told_mended || is_mended());
    const auto again = repaired(store_.io());
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_TRUE(is_mended());
    for (const auto& entry : fs::recursive_directory_iterator(store_.path()))
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    if (plan->first_failed().empty()) break;
    ++failed;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(failed, 40U);
}

TEST_F(Repair, WhatIsReadMeanwhileIsNotReplaced) {
  const auto held = store_.io().lock(path(1), LockMode::shared);
  ASSERT_TRUE(held);
  const auto report = repaired(store_.io());
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(fs::exists(manifest(1)));
  EXPECT_TRUE(report->is_broken());
  EXPECT_FALSE(report->is_complete());
}

}  // namespace
}  // namespace ckpt
