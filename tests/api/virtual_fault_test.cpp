// Virtual checkpoints of a checkpoint in a store, of which every operation of writing one, of materializing it in place
// and of a prune fails once: no source is lost, and what a virtual checkpoint refers to is protected while it is there.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/catalog/prune.hpp"
#include "api/verbs.hpp"
#include "catalog/scan/reference_marks.hpp"
#include "support/fault_io.hpp"
#include "support/file_bytes.hpp"
#include "support/golden.hpp"
#include "support/temp_dir.hpp"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

std::string where() {
  return fs::is_directory("/dev/shm") ? "/dev/shm" : testing::TempDir();
}

struct Profile {
  const char* name;
  std::function<void(FaultPlan&, std::uint64_t n)> arm;
  std::uint64_t stride = 1;  ///< between the operations that fail
};

const std::vector<Profile> kProfiles{
    {"EIO", [](FaultPlan& plan, std::uint64_t n) { plan.fail_once(n, Errc::io); }},
    {"lost answer", [](FaultPlan& plan, std::uint64_t n) { plan.fail_once(n, Errc::io, true); }},
    {"no space", [](FaultPlan& plan, std::uint64_t n) { plan.fail_once(n, Errc::no_space); }, 3},
    {"dead disk", [](FaultPlan& plan, std::uint64_t n) { plan.fail_from(n, Errc::io); }, 3},
};

class VirtualFault : public testing::Test {
 protected:
  void SetUp() override {
    io_ = open_io(IoKind::threads, 8).value();
    fs::create_directories(store_ + "/.ckpt");
    fs::create_directories(store_ + "/r");
    fs::create_directories(out_);
    for (std::uint64_t step = 1; step <= 3; ++step)
      ASSERT_TRUE(clean({.source = golden_root("safetensors/single"), .target = at(step), .to = "ckpt"}));
    source_ = test::read_tree(at(1));
    ASSERT_TRUE(clean(to_virtual()));
    virtual_ = test::read_tree(target_);
    copy_with_times(target_, kept_);
    fs::copy(at(1) + "/marks", kept_marks_, fs::copy_options::recursive);
    ASSERT_TRUE(clean(to_real()));
    ASSERT_TRUE(is_real(test::read_tree(target_)));
  }

  static std::string name(std::uint64_t step) { return CheckpointName{.step = step, .generation = step}.text(); }
  std::string at(std::uint64_t step) const { return store_ + "/r/" + name(step); }
  ConvertRequest to_virtual() const { return {.source = at(1), .target = target_, .to = "ckpt", .by_reference = true}; }
  ConvertRequest to_real() const {
    return {.source = target_, .target = target_, .to = "ckpt", .from = "ckpt", .materialize = true};
  }

  Result<ConvertReport> convert_with(Io& io, const ConvertRequest& request) const {
    const auto comm = Comm::solo();
    Session session{.io = io, .comm = *comm, .memory_bytes = std::uint64_t{1} << 31};
    return convert(session, request);
  }
  bool clean(const ConvertRequest& request) const {
    const auto done = convert_with(*io_, request);
    if (!done) ADD_FAILURE() << done.error().message;
    return done.has_value();
  }
  /// The virtual checkpoint and its mark, or neither.
  void reset(bool made) const {
    // The directory stays: a mark knows it by its inode.
    for (const auto& entry : fs::directory_iterator(out_)) fs::remove_all(entry.path());
    fs::remove_all(at(1) + "/marks");
    if (!made) return;
    copy_with_times(kept_, target_);
    fs::copy(kept_marks_, at(1) + "/marks", fs::copy_options::recursive);
  }
  static void copy_with_times(const std::string& from, const std::string& to) {
    fs::copy(from, to, fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(from))
      fs::last_write_time(to / fs::relative(entry.path(), from), entry.last_write_time());
  }
  /// An ordinary checkpoint with all hashes right and the tensors of the source. Its id depends on what was there
  /// before.
  bool is_real(const test::FileTree& tree) const {
    const auto manifest = tree.find("manifest.json");
    if (manifest == tree.end() || manifest->second.find("references") != std::string::npos) return false;
    const auto comm = Comm::solo();
    Session session{.io = *io_, .comm = *comm, .memory_bytes = std::uint64_t{1} << 31};
    const auto seen = verify(session, {.path = target_, .against = at(1)});
    return seen && seen->ok && seen->referenced_files == 0;
  }
  bool is_marked() const { return !catalog::find_referrer(*io_, at(1)).empty(); }
  test::FileTree source_now() const {
    test::FileTree tree = test::read_tree(at(1));
    std::erase_if(tree, [](const auto& file) { return file.first.starts_with("marks/"); });
    return tree;
  }

  /// `act` with one operation after another that fails, until none does.
  void fail_each(const Profile& profile, const std::function<void()>& prepare, const std::function<void(Io&)>& act) {
    for (std::uint64_t n = 0;; n += profile.stride) {
      ASSERT_LT(n, 10000U);
      prepare();
      const auto plan = std::make_shared<FaultPlan>();
      profile.arm(*plan, n);
      const auto io = make_fault_io(io_->new_instance().value(), plan);
      SCOPED_TRACE(std::string(profile.name) + ", operation " + std::to_string(n));
      act(*io);
      if (HasFatalFailure()) return;
      if (plan->first_failed().empty()) {
        EXPECT_GT(n, 20U);
        return;
      }
    }
  }

  const TempDir directory_{where()};
  const std::string store_ = directory_.path() + "/st";
  const std::string out_ = directory_.path() + "/out";
  const std::string target_ = out_ + "/v";
  const std::string kept_ = directory_.path() + "/kept";
  const std::string kept_marks_ = directory_.path() + "/marks";
  test::FileTree source_;
  test::FileTree virtual_;
  std::unique_ptr<Io> io_;
};

TEST_F(VirtualFault, WhateverFailsAVirtualCheckpointIsNeverThereWithoutItsMark) {
  for (const Profile& profile : kProfiles) {
    fail_each(
        profile, [this] { reset(false); },
        [this](Io& io) {
          const auto done = convert_with(io, to_virtual());
          const test::FileTree now = test::read_tree(target_);
          ASSERT_TRUE(now.empty() || now == virtual_) << "half";
          EXPECT_TRUE(!done || !now.empty());
          EXPECT_EQ(!now.empty(), now == virtual_ && is_marked());
          EXPECT_EQ(source_now(), source_);
          ASSERT_TRUE(clean(to_virtual()));
          EXPECT_TRUE(is_marked());
        });
  }
}

TEST_F(VirtualFault, WhateverFailsMaterializingInPlaceLeavesTheVirtualOrTheRealOne) {
  for (const Profile& profile : kProfiles) {
    fail_each(
        profile, [this] { reset(true); },
        [this](Io& io) {
          const auto done = convert_with(io, to_real());
          const test::FileTree now = test::read_tree(target_);
          const bool done_now = is_real(now);
          ASSERT_TRUE(now == virtual_ || done_now) << "half";
          EXPECT_TRUE(!done || done_now);
          EXPECT_TRUE(done_now || is_marked());
          EXPECT_EQ(source_now(), source_);
          const auto again = convert_with(*io_, to_real());
          EXPECT_TRUE(again || done_now) << again.error().message;
          EXPECT_TRUE(is_real(test::read_tree(target_)));
          EXPECT_FALSE(again && is_marked());
        });
  }
}

TEST_F(VirtualFault, WhateverFailsPruneKeepsWhatAVirtualCheckpointRefersTo) {
  const auto prune = [this](Io& io) {
    const auto comm = Comm::solo();
    Session session{.io = io, .comm = *comm, .memory_bytes = std::uint64_t{1} << 31};
    const catalog::Time now = catalog::Time(std::chrono::sys_days{std::chrono::year{2036} / 2 / 1});
    const auto plan = plan_prune(session, {.store = store_,
                                           .policy = {.flags = {{"keep-last", "1"}, {"purge-early-below", "0"}}},
                                           .approved = true,
                                           .carries_out = true,
                                           .now = now});
    return plan && carry_out(session, *plan, {.now = now, .by = "test"}).has_value();
  };
  for (const Profile& profile : kProfiles) {
    fail_each(
        profile, [this] { reset(true); },
        [&](Io& io) {
          prune(io);
          ASSERT_EQ(source_now(), source_);
          EXPECT_TRUE(is_marked());
        });
  }
  // Not because nothing is ever deleted.
  EXPECT_FALSE(fs::exists(at(2)));
  fs::remove_all(target_);
  fs::remove_all(store_ + "/.ckpt");  // with an index of what could not be read
  fs::create_directory(store_ + "/.ckpt");
  EXPECT_TRUE(prune(*io_));
  EXPECT_FALSE(fs::exists(at(1)));
}

}  // namespace
}  // namespace ckpt
