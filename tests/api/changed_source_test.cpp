// A source that is replaced, or changed in place, at any operation of any verb: what comes out is the old one or the
// new one, or the verb says that the source changed and nothing is published. Never a mixture.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/catalog/import.hpp"
#include "api/verbs.hpp"
#include "changed_source.hpp"
#include "convert/open_source.hpp"
#include "engine/io/forwarding_io.hpp"
#include "engine/run/checks.hpp"
#include "support/fault_io.hpp"
#include "support/file_bytes.hpp"
#include "support/memory_io.hpp"
#include "support/temp_dir.hpp"
#include "support/thread_comm.hpp"

namespace ckpt::test {
namespace {

Session session_of(Io& io, Comm& comm) {
  return {.io = io, .comm = comm, .memory_bytes = std::uint64_t{1} << 31};
}

/// The values of what a verb has made.
Result<Values> made(const MemoryDisk& disk, const std::string& path) {
  const auto io = disk.io();
  CKPT_TRY(const Source source, open_source(*io, path, "", {}));
  Values out;
  for (std::size_t i = 0; i < source.map.tensors.size(); ++i) {
    CKPT_CHECK(source.map.index->chunks(i, {0, kTensorBytes}, [&](const PlacedChunk& placed) -> Result<> {
      const std::string bytes =
          disk.text(path_of(source.map, placed.where.file, source.root)).substr(placed.where.offset, kTensorBytes);
      out[source.map.tensors[i].name] = bytes.front();
      EXPECT_EQ(bytes, std::string(kTensorBytes, bytes.front())) << "a mixture";
      return {};
    }));
  }
  return out;
}

struct Verb {
  std::string name;
  /// Nothing where the verb tells no values.
  std::function<Result<std::optional<Values>>(Io& io, MemoryDisk& disk)> run;
};
void PrintTo(const Verb& each, std::ostream* out) {
  *out << each.name;
}

Result<std::optional<Values>> convert_to(Io& io, MemoryDisk& disk, ConvertRequest request) {
  const auto comm = Comm::solo();
  Session session = session_of(io, *comm);
  CKPT_TRY(const ConvertReport report, convert(session, request));
  CKPT_TRY(Values values, made(disk, report.target));
  return values;
}

Result<std::optional<Values>> convert_on_ranks(MemoryDisk& disk, Io& broken) {
  constexpr int kRanks = 2;
  std::vector<Result<ConvertReport>> outcomes(kRanks);
  ThreadRanks(kRanks).run([&](Comm& comm) {
    const auto own = disk.io();
    Session session = session_of(comm.rank() == 1 ? broken : *own, comm);
    outcomes[static_cast<std::size_t>(comm.rank())] =
        convert(session, {.source = "/source", .target = "/d/m", .to = "safetensors"});
  });
  if (outcomes[0].has_value() != outcomes[1].has_value()) return fail(Errc::internal, "the ranks disagree");
  for (const auto& outcome : outcomes) {
    if (!outcome && outcome.error().code != Errc::peer_failed) return fail(outcome.error());
  }
  if (!outcomes[0]) return fail(outcomes[0].error());
  CKPT_TRY(Values values, made(disk, "/d/m"));
  return values;
}

Result<std::optional<Values>> load_arrays(Io& io, MemoryDisk& disk) {
  const auto comm = Comm::solo();
  Session session = session_of(io, *comm);
  CKPT_TRY(const LoadReport report, load(session, {.source = "/source", .target = "/d/m", .to = "npy"}));
  Values out;
  for (const LoadedTensor& tensor : report.tensors) {
    const std::string bytes = disk.text("/d/m/" + tensor.file);
    out[tensor.name] = bytes.back();
    EXPECT_EQ(bytes.substr(bytes.size() - kTensorBytes), std::string(kTensorBytes, bytes.back()));
  }
  return out;
}

Result<std::optional<Values>> save_into_store(Io& io, MemoryDisk& disk) {
  const auto comm = Comm::solo();
  Session session = session_of(io, *comm);
  CKPT_TRY(const ImportReport report,
           import_checkpoint(
               session, {.conversion = {.source = "/source", .target = {}}, .store = "/d", .run = "r", .step = 1}));
  CKPT_TRY(Values values, made(disk, report.conversion.target));
  return values;
}

Result<std::optional<Values>> verify_it(Io& io, MemoryDisk&) {
  const auto comm = Comm::solo();
  Session session = session_of(io, *comm);
  CKPT_TRY(const VerifyReport report, verify(session, {.path = "/source", .finite = true}));
  EXPECT_TRUE(report.ok) << "damage where there is none";
  return std::nullopt;
}

Result<std::optional<Values>> verify_against(Io& io, const std::string& path, const std::string& other) {
  const auto comm = Comm::solo();
  Session session = session_of(io, *comm);
  CKPT_TRY(const VerifyReport report, verify(session, {.path = path, .against = other}));
  EXPECT_TRUE(report.damage.empty());
  EXPECT_TRUE(report.compared == 2 || report.different.size() == 2) << "half of it was another source";
  return std::nullopt;
}

const std::vector<Verb> kVerbs{
    {"convert",
     [](Io& io, MemoryDisk& disk) {
       return convert_to(io, disk, {.source = "/source", .target = "/d/m.safetensors"});
     }},
    {"convert_to_ckpt",
     [](Io& io, MemoryDisk& disk) { return convert_to(io, disk, {.source = "/source", .target = "/d/m"}); }},
    {"convert_verified",
     [](Io& io, MemoryDisk& disk) {
       return convert_to(io, disk, {.source = "/source", .target = "/d/m", .verify = VerifyLevel::full});
     }},
    {"convert_on_ranks", [](Io& io, MemoryDisk& disk) { return convert_on_ranks(disk, io); }},
    {"save", save_into_store},
    {"load", load_arrays},
    {"verify", verify_it},
    {"verify_against", [](Io& io, MemoryDisk&) { return verify_against(io, "/source", "/copy"); }},
    {"verify_of_against", [](Io& io, MemoryDisk&) { return verify_against(io, "/copy", "/source"); }},
};

class ChangedSource : public testing::TestWithParam<std::tuple<Verb, Change>> {};

TEST_P(ChangedSource, IsOldOrNewOrRefused) {
  const auto& [verb, change] = GetParam();
  std::size_t refused = 0;
  std::uint64_t operations = 1;
  for (std::uint64_t n = 0; n < operations; ++n) {
    MemoryDisk disk;
    disk.put("/d/other", "other");
    kOld.put(disk, "/source");
    kOld.put(disk, "/copy");
    const auto plan = std::make_shared<FaultPlan>();
    const auto io = make_fault_io(disk.io(), plan);
    plan->call_at(n, [&, &how = change] { disk.at_once([&] { how.carry_out(disk); }); });
    SCOPED_TRACE("operation " + std::to_string(n));
    const auto seen = verb.run(*io, disk);
    operations = std::max(operations, plan->operation_count());  // a refused one ends early
    if (!seen) {
      ++refused;
      EXPECT_EQ(seen.error().code, Errc::changed) << seen.error().message;
      EXPECT_NE(seen.error().message.find("/source"), std::string::npos) << seen.error().message;
      EXPECT_NE(seen.error().hint.find("try again"), std::string::npos);
      for (const std::string& path : disk.tree())
        EXPECT_TRUE(!path.starts_with("/d/m") && !path.starts_with("/d/r/step")) << path;
    } else if (*seen) {
      EXPECT_TRUE(**seen == kOld.values() || **seen == change.after.values()) << "a mixture";
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 3U);
}

/// What was read of a source, and is lost before its bytes are: changed, whatever the disk says of it then.
struct Loss {
  std::string name;
  std::function<void(MemoryDisk& disk, const std::string& file)> carry_out;
};
void PrintTo(const Loss& each, std::ostream* out) {
  *out << each.name;
}

const std::vector<Loss> kLosses{
    {"removed", [](MemoryDisk& disk, const std::string& file) { ASSERT_TRUE(disk.io()->unlink(file)); }},
    {"emptied", [](MemoryDisk& disk, const std::string& file) { disk.put(file, ""); }},
    {"cut", [](MemoryDisk& disk, const std::string& file) { disk.put(file, disk.text(file).substr(0, 200)); }},
    {"a_directory",
     [](MemoryDisk& disk, const std::string& file) {
       ASSERT_TRUE(disk.io()->unlink(file));
       ASSERT_TRUE(disk.io()->make_dir(file));
     }},
};

class LostSource : public testing::TestWithParam<std::tuple<Verb, Loss>> {};

TEST_P(LostSource, IsChangedFromWhenTheTargetIsBegun) {
  const auto& [verb, loss] = GetParam();
  const auto source_of = [](MemoryDisk& disk) {
    disk.put("/d/other", "other");
    kOld.put(disk, "/source");
  };
  const auto plan = std::make_shared<FaultPlan>();
  plan->keep_operations();
  {
    MemoryDisk disk;
    source_of(disk);
    ASSERT_TRUE(verb.run(*make_fault_io(disk.io(), plan), disk));
  }
  const auto operations = plan->operations();
  std::uint64_t n = 0;
  while (n < operations.size() && operations[n].name != "mkdir" && operations[n].name != "allocate" &&
         !operations[n].object.starts_with("/d/m"))
    ++n;
  ASSERT_LT(n, operations.size());
  std::size_t refused = 0;
  for (; n < operations.size(); ++n) {
    MemoryDisk disk;
    source_of(disk);
    const auto faults = std::make_shared<FaultPlan>();
    const auto io = make_fault_io(disk.io(), faults);
    faults->call_at(n, [&, &how = loss] { how.carry_out(disk, "/source/model-00002-of-00002.safetensors"); });
    SCOPED_TRACE("operation " + std::to_string(n) + ", " + operations[n].name + " " + operations[n].object);
    const auto seen = verb.run(*io, disk);
    if (seen) continue;
    ++refused;
    EXPECT_EQ(seen.error().code, Errc::changed) << seen.error().message;
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 3U);
}

INSTANTIATE_TEST_SUITE_P(WritingVerbs, LostSource,
                         testing::Combine(testing::ValuesIn(std::vector<Verb>(kVerbs.begin(), kVerbs.begin() + 6)),
                                          testing::ValuesIn(kLosses)),
                         [](const auto& each) {
                           return std::get<0>(each.param).name + "_" + std::get<1>(each.param).name;
                         });

INSTANTIATE_TEST_SUITE_P(AllVerbs, ChangedSource,
                         testing::Combine(testing::ValuesIn(kVerbs), testing::ValuesIn(kChanges)),
                         [](const auto& each) {
                           return std::get<0>(each.param).name + "_" + std::get<1>(each.param).name;
                         });

TEST(SourceFiles, WhatWasSeenHasToStay) {
  MemoryDisk disk;
  disk.put("/d/f", "old");
  const auto plain = disk.io();
  const auto files = std::make_shared<SourceFiles>();
  const auto io = make_source_io(*plain, files);
  ASSERT_TRUE(io->stat("/d/f"));
  const auto again = io->new_instance();
  ASSERT_TRUE(again);
  const auto file = (*again)->open("/d/f", {});
  ASSERT_TRUE(file);
  ASSERT_TRUE((*again)->close(*file));
  EXPECT_TRUE(files->look_again(*plain));

  disk.put("/d/g", "old");
  ASSERT_TRUE(plain->rename("/d/g", "/d/f", RenameMode::replace));
  const auto replaced = (*again)->open("/d/f", {});
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.error().code, Errc::changed);
  EXPECT_EQ(replaced.error().message, "/d/f: the file was replaced while it was being read");
  EXPECT_EQ(files->look_again(*plain).error().code, Errc::changed);
  ASSERT_TRUE(plain->unlink("/d/f"));
  EXPECT_EQ(files->look_again(*plain).error().message, "/d/f: the file was removed while it was being read");
}

/// On a real file system, which counts links and has a time of change of the inode.
/// A file system whose change times move whenever they are looked at.
class RestlessIo final : public ForwardingIo {
 public:
  using ForwardingIo::ForwardingIo;
  Result<std::unique_ptr<Io>> new_instance() const override {
    CKPT_TRY(auto own, inner().new_instance());
    return std::unique_ptr<Io>(std::make_unique<RestlessIo>(std::move(own)));
  }
  Result<FileInfo> stat(const std::string& path) override { return ForwardingIo::stat(path).map(moved); }
  Result<FileInfo> info(FileHandle file) override { return ForwardingIo::info(file).map(moved); }

 private:
  static FileInfo moved(FileInfo info) {
    static std::atomic<std::int64_t> now{1};
    info.ctime_ns = ++now;
    return info;
  }
};

class RestlessSource : public testing::TestWithParam<Verb> {};

TEST_P(RestlessSource, EndsWithOneErrorThatSaysWhatMoved) {
  MemoryDisk disk;
  disk.put("/d/other", "other");
  kOld.put(disk, "/source");
  kOld.put(disk, "/copy");
  RestlessIo io(disk.io());
  const auto seen = GetParam().run(io, disk);
  ASSERT_FALSE(seen);
  EXPECT_EQ(seen.error().code, Errc::changed) << seen.error().message;
  EXPECT_NE(seen.error().message.find("its change time has moved"), std::string::npos) << seen.error().message;
  EXPECT_NE(seen.error().hint.find("copy the file to another one"), std::string::npos) << seen.error().hint;
  for (const std::string& path : disk.tree()) EXPECT_FALSE(path.starts_with("/d/m")) << path;
}

INSTANTIATE_TEST_SUITE_P(AllVerbs, RestlessSource, testing::ValuesIn(kVerbs),
                         [](const auto& each) { return each.param.name; });

class TouchedSource : public testing::Test {
 protected:
  void SetUp() override {
    auto io = open_io(IoKind::threads);
    ASSERT_TRUE(io);
    io_ = *std::move(io);
    write_file(path_, "old");
    const auto seen = io_->stat(path_);
    ASSERT_TRUE(seen);
    ASSERT_TRUE(files_.see(path_, *seen));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // file systems' clocks are coarse
  }

  TempDir temp_;
  std::string path_ = temp_.path() + "/f";
  std::unique_ptr<Io> io_{};
  SourceFiles files_;
};

TEST_F(TouchedSource, WithItsTimeSetBackIsChanged) {
  const auto time = std::filesystem::last_write_time(path_);
  write_file(path_, "new");
  std::filesystem::last_write_time(path_, time);
  const auto looked = files_.look_again(*io_);
  ASSERT_FALSE(looked);
  EXPECT_EQ(looked.error().code, Errc::changed);
}

TEST_F(TouchedSource, WithAnotherNameOrOtherPermissionsIsTheSame) {
  std::filesystem::create_hard_link(path_, path_ + "2");
  EXPECT_TRUE(files_.look_again(*io_));
  std::filesystem::remove(path_ + "2");
  std::filesystem::permissions(path_, std::filesystem::perms::owner_read);
  EXPECT_TRUE(files_.look_again(*io_));
}

}  // namespace
}  // namespace ckpt::test
