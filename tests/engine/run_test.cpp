// The plan and its run over any layout: each byte of the target is made once, in any number of ranks, within the
// smallest pool; and what one rank meets ends all of them.
#include "engine/run/run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "format/checked.hpp"
#include "support/fault_io.hpp"
#include "support/file_bytes.hpp"
#include "support/random_layout.hpp"
#include "support/temp_dir.hpp"
#include "support/thread_comm.hpp"

namespace ckpt::test {
namespace {

/// A random source on disk, target files of all kinds of placements, and the bytes they must get.
struct Job {
  TempDir directory{};
  State state{};
  Map source{};
  std::vector<TargetFile> files{};
  std::vector<std::string> expected{};

  explicit Job(std::uint32_t seed) : Job(seed, Dice(seed)) {}
  Job(std::uint32_t seed, Dice dice) {
    state = random_state(dice);
    add_tiny_tensors(dice);
    source = write_random_layout(dice, state, directory.path(), dice.roll(1, 3));
    files = random_target(dice, state.tensors, dice.roll(1, 3)).files;
    for (std::size_t f = 0; f < files.size(); ++f) {
      for (Placement& placement : files[f].placements) recast(dice, placement);
      relocate(files[f]);
      add_other_kinds(dice, files[f]);
      files[f].path = "target" + std::to_string(f) + "-" + std::to_string(seed);
      expected.push_back(expect(files[f]));
    }
  }

  Result<Plan> plan() const { return Plan::make(source, files); }
  /// Makes the target files as publish leaves them: empty here, for nothing is reserved.
  void clear_targets() const {
    for (const TargetFile& file : files) std::ofstream(directory.path() + "/" + file.path, std::ios::binary);
  }
  void expect_targets() const {
    for (std::size_t f = 0; f < files.size(); ++f) {
      EXPECT_TRUE(read_file(directory.path() + "/" + files[f].path) == expected[f]) << files[f].path;
    }
  }

 private:
  void add_tiny_tensors(Dice& dice) {
    if (!dice.one_in(3)) return;
    for (std::uint64_t i = dice.roll(1, 300); i > 0; --i) {
      state.tensors.push_back({.name = "tiny" + std::to_string(i), .dtype = Dtype::bf16, .shape = {dice.roll(1, 3)}});
      state.bytes.emplace_back(2 * state.tensors.back().shape[0], '\x11');
    }
  }
  void recast(Dice& dice, Placement& placement) const {
    constexpr std::array kTo{Dtype::f32, Dtype::f16, Dtype::bf16};
    if (!is_castable(placement.dtype) || !dice.one_in(3)) return;
    const std::uint64_t elements = placement.bytes / unit_bytes(placement.dtype);
    placement.dtype = kTo[dice.roll(0, 2)];
    placement.bytes = elements * unit_bytes(placement.dtype);
  }
  /// Casts changed the sizes.
  static void relocate(TargetFile& file) {
    file.bytes = 0;
    for (Placement& placement : file.placements) {
      placement.offset = round_up(file.bytes, 8) + placement.offset % 3 * 8;
      file.bytes = placement.offset + placement.bytes;
    }
  }
  void add_other_kinds(Dice& dice, TargetFile& file) const {
    std::string literal(dice.roll(1, 20'000), 'L');
    file.placements.push_back({.offset = file.bytes,
                               .bytes = literal.size(),
                               .from = Placement::From::literal,
                               .literal = std::move(literal)});
    file.bytes += file.placements.back().bytes + dice.roll(0, 9);
    const auto raw = static_cast<std::uint32_t>(dice.roll(0, source.files.size() - 1));
    if (source.files[raw].bytes == 0) return;
    const std::uint64_t begin = dice.roll(0, source.files[raw].bytes - 1);
    const std::uint64_t bytes = dice.roll(1, source.files[raw].bytes - begin);
    file.placements.push_back(
        {.offset = file.bytes, .bytes = bytes, .from = Placement::From::raw, .raw_file = raw, .raw_offset = begin});
    file.bytes += bytes + dice.roll(0, 9);
  }
  std::string expect(const TargetFile& file) const {
    std::string out(file.bytes, '\0');
    for (const Placement& placement : file.placements) {
      std::string bytes = placement.literal;
      if (placement.from == Placement::From::tensor) {
        bytes = chunk_bytes(state, placement.tensor, placement.chunk, placement.dtype);
      } else if (placement.from == Placement::From::raw) {
        const std::string whole = read_file(directory.path() + "/" + source.files[placement.raw_file].path);
        bytes = whole.substr(placement.raw_offset, placement.bytes);
      }
      EXPECT_EQ(bytes.size(), placement.bytes);
      out.replace(placement.offset, placement.bytes, bytes);
    }
    return out;
  }
};

/// How often each byte of a leaf is made.
std::vector<unsigned char> times_made(const LeafJob& job) {
  std::vector<unsigned char> times(job.bytes, 0);
  const auto make = [&](std::uint64_t begin, std::uint64_t bytes) {
    for (std::uint64_t i = begin; i < begin + bytes; ++i) ++times.at(i);
  };
  for (const LeafJob::Literal& literal : job.literals) make(literal.target_offset, literal.bytes.size());
  for (const Copy& copy : job.copies) {
    std::vector<std::uint64_t> index(copy.dims.size(), 0);
    for (bool more = true; more;) {
      std::uint64_t at = copy.target_offset;
      for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * copy.dims[d].target_stride;
      make(at, unit_bytes(copy.to));
      more = false;
      for (std::size_t d = index.size(); d-- > 0 && !more;) {
        more = ++index[d] < copy.dims[d].count;
        if (!more) index[d] = 0;
      }
    }
  }
  return times;
}

TEST(PlanProperty, EveryByteOfAPlacementIsMadeOnceAndNoOther) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Job job(seed);
    const auto plan = job.plan();
    ASSERT_TRUE(plan) << plan.error().message;
    std::uint64_t leaf = 0;
    for (const TargetFile& file : job.files) {
      std::vector<unsigned char> wanted(file.bytes, 0);
      for (const Placement& placement : file.placements) {
        std::fill_n(wanted.begin() + static_cast<std::ptrdiff_t>(placement.offset), placement.bytes, 1);
      }
      std::vector<unsigned char> made;
      for (std::uint64_t i = 0; i < file.leaf_count(); ++i) {
        const auto part = plan->leaf(leaf++);
        ASSERT_TRUE(part) << part.error().message;
        const auto times = times_made(*part);
        made.insert(made.end(), times.begin(), times.end());
      }
      ASSERT_TRUE(made == wanted) << file.path;
    }
    ASSERT_EQ(leaf, plan->totals().leaves);
  }
}

struct Outcome {
  Result<RunReport> report{};
  std::chrono::duration<double> took{};
};

/// Runs the job on ranks that are threads, each with the smallest pool. A run that hangs is stopped after three
/// minutes.
std::vector<Outcome> run_on(const ThreadRanks& ranks, std::size_t count, const Job& job, IoKind kind, unsigned workers,
                            const std::function<std::unique_ptr<Io>(int, std::unique_ptr<Io>)>& wrap,
                            const std::vector<bool>& left_out = {}) {
  std::vector<Outcome> outcomes(count);
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable ended;
  bool over = false;
  std::jthread watchdog([&] {
    std::unique_lock held(mutex);
    if (!ended.wait_for(held, std::chrono::minutes(3), [&] { return over; })) stop = true;
  });
  ranks.run([&](Comm& comm) {
    Outcome& outcome = outcomes[static_cast<std::size_t>(comm.rank())];
    const auto start = std::chrono::steady_clock::now();
    outcome.report = [&]() -> Result<RunReport> {
      CKPT_TRY(Plan plan, job.plan());
      if (!left_out.empty()) plan.skip_leaves(left_out);
      CKPT_TRY(auto io, open_io(kind, 4));
      io = wrap(comm.rank(), std::move(io));
      const RunOptions options{.source_root = job.directory.path(),
                               .target_root = job.directory.path(),
                               .workers = workers,
                               .pool_bytes = smallest_pool_bytes(workers),
                               .stop = &stop};
      return run(plan, *io, comm, options);
    }();
    outcome.took = std::chrono::steady_clock::now() - start;
  });
  {
    const std::lock_guard held(mutex);
    over = true;
  }
  ended.notify_all();
  EXPECT_FALSE(stop) << "the run did not end";
  return outcomes;
}

std::unique_ptr<Io> as_it_is(int, std::unique_ptr<Io> io) {
  return io;
}

class Run : public testing::TestWithParam<IoKind> {
  void SetUp() override {
    if (!open_io(GetParam())) GTEST_SKIP() << "this kernel or container forbids io_uring";
  }
};

TEST_P(Run, AnyLayoutInTheSmallestPoolGivesTheSameBytesOnOneToFourRanks) {
  for (std::uint32_t seed = 100; seed < 140; ++seed) {
    const Job job(seed);
    for (const std::size_t count : {std::size_t{1}, std::size_t{2 + seed % 3}}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", ranks " + std::to_string(count));
      job.clear_targets();
      const ThreadRanks ranks(static_cast<int>(count));
      const auto outcomes = run_on(ranks, count, job, GetParam(), 1 + seed % 2, as_it_is);
      for (const Outcome& outcome : outcomes) ASSERT_TRUE(outcome.report) << outcome.report.error().message;
      job.expect_targets();
      std::vector<Hash128> leaves;
      for (const std::string& file : job.expected) {
        for (std::uint64_t at = 0; at < file.size(); at += kLeafBytes) {
          leaves.push_back(hash128(std::as_bytes(std::span(file).subspan(at, std::min(kLeafBytes, file.size() - at)))));
        }
      }
      EXPECT_TRUE(outcomes[0].report->leaves == leaves);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Run, WhoBringsThePoolIsNotToldOfItsPagesForThatLooksThroughAllMemoryOfTheProcess) {
  const Job job(100);
  const auto pool = BufferPool::open({.buffer_bytes = kRunBufferBytes, .buffer_count = 4});
  ASSERT_TRUE(pool);
  const auto once = [&](BufferPool* given) -> Result<RunReport> {
    job.clear_targets();
    CKPT_TRY(const Plan plan, job.plan());
    CKPT_TRY(const auto io, open_io(GetParam(), 4));
    const auto solo = Comm::solo();
    return run(plan, *io, *solo,
               {.source_root = job.directory.path(), .target_root = job.directory.path(), .pool = given});
  };
  EXPECT_EQ(once(pool->get()).value().page_kind, "");
  EXPECT_NE(once(nullptr).value().page_kind, "");
}

TEST_P(Run, LeavesThatAreLeftOutAreNotTouchedAndTheOthersAreMadeOnAnyRanks) {
  for (std::uint32_t seed = 200; seed < 220; ++seed) {
    const Job job(seed);
    const std::size_t count = 1 + seed % 3;
    SCOPED_TRACE("seed " + std::to_string(seed) + ", ranks " + std::to_string(count));
    job.clear_targets();
    Dice dice(seed);
    std::vector<bool> left_out;
    std::vector<Hash128> leaves;
    std::vector<std::string> expected = job.expected;
    for (std::string& file : expected) {
      for (std::size_t at = 0; at < file.size(); at += kLeafBytes) {
        const std::size_t bytes = std::min<std::size_t>(kLeafBytes, file.size() - at);
        left_out.push_back(dice.one_in(2));
        leaves.push_back(hash128(std::as_bytes(std::span(file).subspan(at, bytes))));
        if (!left_out.back()) continue;
        leaves.back() = {};
        file.replace(at, bytes, bytes, '\0');
      }
    }
    for (std::size_t f = 0; f < job.files.size(); ++f)  // as long as they will be, for nothing cuts what is left out
      std::filesystem::resize_file(job.directory.path() + "/" + job.files[f].path, job.files[f].bytes);
    const ThreadRanks ranks(static_cast<int>(count));
    const auto outcomes = run_on(ranks, count, job, GetParam(), 1 + seed % 2, as_it_is, left_out);
    for (const Outcome& outcome : outcomes) ASSERT_TRUE(outcome.report) << outcome.report.error().message;
    EXPECT_TRUE(outcomes[0].report->leaves == leaves);
    for (std::size_t f = 0; f < expected.size(); ++f)
      EXPECT_TRUE(read_file(job.directory.path() + "/" + job.files[f].path) == expected[f]) << job.files[f].path;
    if (HasFailure()) return;
  }
}

/// A job with work for every rank.
std::unique_ptr<Job> job_of_leaves(std::uint64_t least) {
  for (std::uint32_t seed = 1071;; ++seed) {  // the first of 1000 and on that has six leaves
    auto job = std::make_unique<Job>(seed);
    const auto plan = job->plan();
    if (plan && plan->totals().leaves >= least) return job;
  }
}

TEST_P(Run, AnOperationThatFailsOnOneRankEndsAll) {
  const auto job = job_of_leaves(6);
  const std::size_t count = 3;
  for (int broken = 0; broken < 3; ++broken) {
    for (const std::string operation : {"open", "read", "write", "truncate", "fdatasync", "close"}) {
      SCOPED_TRACE(operation + " on rank " + std::to_string(broken));
      job->clear_targets();
      const auto plan = std::make_shared<FaultPlan>();
      plan->count_only({operation});
      plan->fail_once(0, Errc::no_space);
      const ThreadRanks ranks(static_cast<int>(count));
      const auto outcomes = run_on(ranks, count, *job, GetParam(), 2, [&](int rank, std::unique_ptr<Io> io) {
        return rank == broken ? make_fault_io(std::move(io), plan) : std::move(io);
      });
      if (plan->first_failed().empty()) continue;  // only who writes a last leaf truncates
      for (std::size_t rank = 0; rank < count; ++rank) {
        const Outcome& outcome = outcomes[rank];
        ASSERT_FALSE(outcome.report) << rank;
        EXPECT_EQ(outcome.report.error().code,
                  rank == static_cast<std::size_t>(broken) ? Errc::no_space : Errc::peer_failed)
            << outcome.report.error().message;
        EXPECT_LT(outcome.took.count(), 30);
      }
    }
  }
}

/// The kernel goes on with what a broken ring held, whenever it likes: it may write to memory that nobody has got
/// meanwhile, and what it still reads is what was submitted.
TEST_P(Run, NoBufferThatABrokenQueueMayStillUseIsGivenOut) {
  const auto job = job_of_leaves(6);
  std::size_t reads = 0;
  std::size_t writes = 0;
  for (const std::string operation : {"read", "write"}) {
    bool reached_the_end = false;
    for (std::uint64_t n = 0; !reached_the_end; n += 1 + n / 2) {
      SCOPED_TRACE(operation + " " + std::to_string(n));
      job->clear_targets();
      const auto pool = BufferPool::open({.buffer_bytes = kRunBufferBytes, .buffer_count = 12});
      ASSERT_TRUE(pool);
      const auto faults = std::make_shared<FaultPlan>();
      faults->hold_requests();
      faults->count_only({operation});
      faults->call_at(n, [&] { faults->break_queues(); });
      {
        const auto plan = job->plan();
        ASSERT_TRUE(plan);
        auto inner = open_io(GetParam(), 4);
        ASSERT_TRUE(inner);
        const auto io = make_fault_io(std::move(*inner), faults);
        const auto solo = Comm::solo();
        const auto ran = run(*plan, *io, *solo,
                             {.source_root = job->directory.path(),
                              .target_root = job->directory.path(),
                              .workers = 2,
                              .pool = pool->get()});
        reached_the_end = faults->first_failed().empty();
        EXPECT_EQ(ran.has_value(), reached_the_end);
      }
      std::vector<BufferPool::Buffer> others;
      while (auto buffer = (*pool)->try_acquire()) others.push_back(std::move(*buffer));
      EXPECT_EQ(others.size(), (*pool)->buffer_count());
      for (BufferPool::Buffer& buffer : others) std::memset(buffer.data(), 0x55, buffer.size());
      const FaultPlan::Late late = faults->finish_late();
      reads += late.reads;
      writes += late.writes;
      EXPECT_EQ(late.changed, 0U) << "a buffer that was being written was given to somebody else";
      for (const BufferPool::Buffer& buffer : others) {
        const std::byte* end = buffer.data() + buffer.size();
        ASSERT_EQ(std::find(static_cast<const std::byte*>(buffer.data()), end, FaultPlan::kLateByte), end)
            << "a buffer that was being read into was given to somebody else";
      }
    }
  }
  EXPECT_GT(reads, 0U);
  EXPECT_GT(writes, 0U);
}

TEST_P(Run, ARankThatIsLostEndsAll) {
  const auto job = job_of_leaves(6);
  job->clear_targets();
  const ThreadRanks ranks(3);
  const auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"read"});
  plan->call_at(1, [&] { ranks.disconnect(); });
  const auto outcomes = run_on(ranks, 3, *job, GetParam(), 1, [&](int rank, std::unique_ptr<Io> io) {
    return rank == 1 ? make_fault_io(std::move(io), plan) : std::move(io);
  });
  for (const Outcome& outcome : outcomes) {
    ASSERT_FALSE(outcome.report);
    EXPECT_EQ(outcome.report.error().code, Errc::peer_failed) << outcome.report.error().message;
  }
}

TEST_P(Run, ARankThatIsDoneWaitsForTheOthersWithoutWork) {
  const auto job = job_of_leaves(6);
  job->clear_targets();
  const ThreadRanks ranks(3);
  const auto plan = std::make_shared<FaultPlan>();
  plan->count_only({"fdatasync"});
  plan->call_at(0, [] { std::this_thread::sleep_for(std::chrono::seconds(2)); });
  const std::clock_t before = std::clock();
  const auto outcomes = run_on(ranks, 3, *job, GetParam(), 1, [&](int rank, std::unique_ptr<Io> io) {
    return rank == 1 ? make_fault_io(std::move(io), plan) : std::move(io);
  });
  const double cpu_seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  for (const Outcome& outcome : outcomes) ASSERT_TRUE(outcome.report) << outcome.report.error().message;
  // Two ranks wait for two seconds, or for as long as a busy disk takes: spinning would cost at least that time.
  EXPECT_LT(cpu_seconds, std::max(outcomes[0].took.count(), 2.0) / 2);
}

INSTANTIATE_TEST_SUITE_P(Engines, Run, testing::Values(IoKind::uring, IoKind::threads),
                         [](const auto& kind) { return kind.param == IoKind::uring ? "uring" : "threads"; });

}  // namespace
}  // namespace ckpt::test
