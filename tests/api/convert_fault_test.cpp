// A whole convert of genuine checkpoints on real files, of which every operation fails once: the target is the old
// one or the new one, the error says which, and what is left beside it goes with the next conversion.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/conversion_targets.hpp"
#include "api/verbs.hpp"
#include "support/fault_io.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

/// Real files, but in memory where the system has such a place: what the syncs of thousands of conversions cost on a
/// disk buys nothing here, for no power is lost.
std::string where() {
  return fs::is_directory("/dev/shm") ? "/dev/shm" : testing::TempDir();
}

struct Case {
  std::string name;
  IoKind engine = IoKind::threads;
  ConversionTarget target;
  bool from_universal = false;  // the golden checkpoint is converted to our format first
  VerifyLevel verify = VerifyLevel::read;
  std::uint64_t stride = 1;  // between the operations that fail
};

void PrintTo(const Case& each, std::ostream* out) {
  *out << each.name;
}

/// One way for operations to fail, and what a conversion may then answer.
struct Profile {
  std::string name;
  std::set<std::string> counted{};  // empty: every operation fails once
  std::function<void(FaultPlan&, std::uint64_t n)> arm;
  std::set<Errc> errors{};  // beside not_durable and not_done
  bool cleans_up = true;    // one failure: removing what was begun still works
  bool names_the_file = true;
};

const std::set<std::string> kTakesSpace{"mkdir",     "allocate",        "write", "truncate",
                                        "fdatasync", "fsync directory", "rename"};
const std::set<std::string> kChanges{"mkdir", "allocate",        "write",  "truncate", "fdatasync",
                                     "close", "fsync directory", "rename", "unlink",   "rmdir"};

class ConvertFault : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto opened = open_io(GetParam().engine, 8);
    if (!opened && GetParam().engine == IoKind::uring) GTEST_SKIP() << opened.error().message;
    ASSERT_TRUE(opened) << opened.error().message;
    io_ = *std::move(opened);
    source_ = golden_root(GetParam().target.golden);
    fs::create_directory(out_);
    if (GetParam().from_universal) {
      const std::string made = directory_.path() + "/source";
      const auto done = convert_with(*io_, {.source = source_, .target = made, .to = "ckpt"});
      ASSERT_TRUE(done) << done.error().message;
      source_ = made;
    }
    // What stands at the target before an --overwrite, and what stands there after it.
    ASSERT_TRUE(clean(GetParam().target.changed(request(true))));
    old_ = test::read_tree(target_);
    fs::rename(target_, kept_);
    ASSERT_TRUE(clean(request(true)));
    new_ = test::read_tree(target_);
    ASSERT_NE(old_, new_);
    ASSERT_EQ(beside(), std::vector<std::string>{});
  }

  Result<ConvertReport> convert_with(Io& io, const ConvertRequest& request) {
    const auto comm = Comm::solo();
    Session session{.io = io, .comm = *comm, .memory_bytes = std::uint64_t{1} << 31, .stop = &stop_};
    stop_ = false;
    return convert(session, request);
  }
  ConvertRequest request(bool overwrite) const {
    return {.source = source_,
            .target = target_,
            .to = GetParam().target.to,
            .shard_bytes = GetParam().target.shard_bytes,
            .options = GetParam().target.options,
            .overwrite = overwrite,
            .verify = GetParam().verify};
  }
  bool clean(const ConvertRequest& wanted) {
    const auto done = convert_with(*io_, wanted);
    if (!done) ADD_FAILURE() << done.error().message;
    return done.has_value();
  }
  void reset_target(bool existing) {
    if (test::read_tree(target_) == (existing ? old_ : test::FileTree{})) return;
    fs::remove_all(target_);
    if (existing) fs::copy(kept_, target_, fs::copy_options::recursive);
  }
  std::vector<std::string> beside() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(out_)) {
      if (entry.path() != target_) out.push_back(entry.path().filename());
    }
    return out;
  }

  /// What stands at the target: nothing, an old one, or each in turn (the engines begin with different ones).
  enum class Over : std::uint8_t { nothing, old, alternating };
  void fail_each(const Profile& profile, Over over);
  void check(const Profile& profile, bool existing, const Result<ConvertReport>& done);

  const TempDir directory_{where()};
  const std::string out_ = directory_.path() + "/out";
  const std::string target_ = out_ + "/" + GetParam().target.path;
  const std::string kept_ = directory_.path() + "/kept";
  std::string source_;
  test::FileTree old_;
  test::FileTree new_;
  std::unique_ptr<Io> io_;
  std::atomic<bool> stop_{false};
  unsigned left_overs_ = 0;
};

/// What does not depend on how requests are queued.
class ConvertFaultOnOneEngine : public ConvertFault {};

void ConvertFault::check(const Profile& profile, bool existing, const Result<ConvertReport>& done) {
  const bool kept_old = !done && done.error().code == Errc::not_done;
  const bool visible = done || kept_old || done.error().code == Errc::not_durable;
  const test::FileTree now = test::read_tree(target_);
  ASSERT_TRUE(now == new_ || now == (existing ? old_ : test::FileTree{})) << "half";
  EXPECT_EQ(now == new_, visible) << (done ? "success" : done.error().message);
  if (!done) {
    const Error& error = done.error();
    EXPECT_NE(exit_code(error), 0);
    EXPECT_TRUE(visible || profile.errors.count(error.code) != 0)
        << static_cast<int>(error.code) << " " << error.message;
    if (profile.names_the_file) {
      EXPECT_FALSE(error.file.empty()) << error.message;
      EXPECT_NE(error.message.find(base_name(error.file)), std::string::npos) << error.message;
    }
  }
  const auto left = beside();
  if (left.empty()) return;
  // The old one is kept where its replacement is perhaps not durable, or where it cannot be removed.
  EXPECT_TRUE(!profile.cleans_up || (!done && visible && existing)) << left.front();
  if (!profile.cleans_up && ++left_overs_ % 3 != 0) {  // a third of them proves it
    for (const std::string& name : left) fs::remove_all(out_ + "/" + name);
    return;
  }
  ASSERT_TRUE(clean(request(true)));
  EXPECT_EQ(test::read_tree(target_), new_);
  EXPECT_EQ(beside(), std::vector<std::string>{});
}

/// Fails one operation after another, until a conversion meets no failure any more.
void ConvertFault::fail_each(const Profile& profile, Over over) {
  std::uint64_t failed = 0;
  for (std::uint64_t n = 0;; n += GetParam().stride) {
    ASSERT_LT(n, 10000U);
    const bool odd = (n % 2 == 1) == (GetParam().engine == IoKind::uring);
    const bool existing = over == Over::old || (over == Over::alternating && odd);
    reset_target(existing);
    const auto plan = std::make_shared<FaultPlan>();
    plan->count_only(profile.counted);
    profile.arm(*plan, n);
    auto inner = io_->new_instance();
    ASSERT_TRUE(inner);
    const auto io = make_fault_io(*std::move(inner), plan);
    const auto done = convert_with(*io, request(existing));
    SCOPED_TRACE(profile.name + (existing ? ", over an old one" : "") + ", operation " + std::to_string(n) + ", " +
                 plan->first_failed());
    check(profile, existing, done);
    if (HasFatalFailure()) return;
    if (!done) ++failed;
    if (plan->first_failed().empty()) {
      EXPECT_TRUE(done) << done.error().message;
      if (over != Over::alternating || existing) break;  // an overwrite takes more operations
    }
  }
  EXPECT_GT(failed * GetParam().stride, 5U) << profile.name;
}

TEST_P(ConvertFault, AnyFailingOperationLeavesOldOrNewAndSaysWhich) {
  const Profile profile{.name = "EIO",
                        .arm = [](FaultPlan& plan, std::uint64_t n) { plan.fail_once(n, Errc::io); },
                        .errors = {Errc::io}};
  fail_each(profile, Over::alternating);
}

TEST_P(ConvertFaultOnOneEngine, ADiskThatDiesAtAnyOperationLeavesOldOrNew) {
  const Profile profile{.name = "dead disk",
                        .arm = [](FaultPlan& plan, std::uint64_t n) { plan.fail_from(n, Errc::io); },
                        .errors = {Errc::io},
                        .cleans_up = false};
  fail_each(profile, Over::alternating);
}

TEST_P(ConvertFaultOnOneEngine, NoSpaceAtAnyOperationIsNoSpace) {
  const Profile profile{.name = "ENOSPC",
                        .counted = kTakesSpace,
                        .arm = [](FaultPlan& plan, std::uint64_t n) { plan.fail_once(n, Errc::no_space); },
                        .errors = {Errc::no_space}};
  fail_each(profile, Over::nothing);
  fail_each(profile, Over::old);
}

TEST_P(ConvertFault, AReadOrWriteThatStopsHalfwayIsNeverTakenForWhole) {
  const Profile profile{.name = "half",
                        .counted = {"read", "write"},
                        .arm = [](FaultPlan& plan, std::uint64_t n) { plan.tear_once(n, Errc::no_space); },
                        .errors = {Errc::no_space, Errc::corrupt, Errc::usage}};
  fail_each(profile, Over::alternating);
}

TEST_P(ConvertFaultOnOneEngine, AChangeThatHappenedAlthoughItFailedLeavesOldOrNew) {
  const Profile profile{.name = "lost answer",
                        .counted = kChanges,
                        .arm = [](FaultPlan& plan, std::uint64_t n) { plan.fail_once(n, Errc::io, true); },
                        .errors = {Errc::io},
                        .cleans_up = false};
  fail_each(profile, Over::alternating);
}

TEST_P(ConvertFault, StoppedAtAnyOperationItIsInterruptedAndLeavesOnlyWhatTheNextOneTakesUp) {
  const Profile profile{.name = "stop",
                        .counted = {"open", "read", "write", "rename"},  // enough to be everywhere once
                        .arm = [this](FaultPlan& plan, std::uint64_t n) { plan.call_at(n, [this] { stop_ = true; }); },
                        .errors = {Errc::interrupted},
                        .cleans_up = false,
                        .names_the_file = false};
  fail_each(profile, Over::alternating);
}

/// Every kind of target of one source, by one engine.
std::vector<Case> cases(IoKind engine, const std::string& golden, bool from_universal = false) {
  const auto to = [&](std::string name, std::string path, std::string format, VerifyLevel verify) {
    ConversionTarget target{
        .name = name, .path = std::move(path), .to = std::move(format), .golden = golden, .shard_bytes = 48 << 10};
    return Case{std::move(name), engine, std::move(target), from_universal, verify};
  };
  return {to("ToOneFile", "m.safetensors", "", VerifyLevel::full),
          to("ToShards", "m", "safetensors", VerifyLevel::read), to("ToUniversal", "m", "ckpt", VerifyLevel::read)};
}
auto all_targets(IoKind engine, bool from_universal) {
  return testing::ValuesIn(cases(engine, "deepspeed/zero3_fp32_dp3_tied_tiny", from_universal));
}
auto one_file_of_dcp(IoKind engine) {
  return testing::Values(cases(engine, "torch/dcp_plain").front());
}
/// Some operations of each; all of them with the slow tests.
auto foreign(IoKind engine) {
  std::vector<Case> out;
  for (const ConversionTarget& target : foreign_targets()) {
    out.push_back({.name = target.name,
                   .engine = engine,
                   .target = target,
                   .verify = VerifyLevel::full,
                   .stride = fault_stride(target, 9)});
  }
  return testing::ValuesIn(out);
}
const auto kName = [](const auto& each) { return each.param.name; };

INSTANTIATE_TEST_SUITE_P(ThreadsZero3, ConvertFault, all_targets(IoKind::threads, false), kName);
INSTANTIATE_TEST_SUITE_P(ThreadsUniversal, ConvertFault, all_targets(IoKind::threads, true), kName);
INSTANTIATE_TEST_SUITE_P(ThreadsDcp, ConvertFault, one_file_of_dcp(IoKind::threads), kName);
INSTANTIATE_TEST_SUITE_P(ThreadsForeign, ConvertFault, foreign(IoKind::threads), kName);
INSTANTIATE_TEST_SUITE_P(UringZero3, ConvertFault, all_targets(IoKind::uring, false), kName);
INSTANTIATE_TEST_SUITE_P(UringUniversal, ConvertFault, all_targets(IoKind::uring, true), kName);
INSTANTIATE_TEST_SUITE_P(UringDcp, ConvertFault, one_file_of_dcp(IoKind::uring), kName);
INSTANTIATE_TEST_SUITE_P(UringForeign, ConvertFault, foreign(IoKind::uring), kName);
INSTANTIATE_TEST_SUITE_P(Zero3, ConvertFaultOnOneEngine, all_targets(IoKind::threads, false), kName);
INSTANTIATE_TEST_SUITE_P(Universal, ConvertFaultOnOneEngine, all_targets(IoKind::threads, true), kName);
INSTANTIATE_TEST_SUITE_P(Foreign, ConvertFaultOnOneEngine, foreign(IoKind::threads), kName);

}  // namespace
}  // namespace ckpt
