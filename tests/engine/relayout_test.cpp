#include <gtest/gtest.h>

#include <fstream>

#include "engine/run/run.hpp"
#include "support/file_bytes.hpp"
#include "support/random_layout.hpp"
#include "support/temp_dir.hpp"

namespace ckpt::test {
namespace {

/// Makes the target files (empty, as publish reserves them) and carries the plan out.
Result<RunReport> carry_out(const Map& source, const std::vector<TargetFile>& files, const std::string& directory,
                            IoKind kind, unsigned workers) {
  for (const TargetFile& file : files) std::ofstream(directory + "/" + file.path, std::ios::binary);
  CKPT_TRY(const Plan plan, Plan::make(source, files));
  CKPT_TRY(const auto io, open_io(kind));
  const auto comm = Comm::solo();
  RunOptions options{.source_root = directory, .target_root = directory, .workers = workers};
  options.pool_bytes = workers * (std::uint64_t{40} << 20);
  return run(plan, *io, *comm, options);
}

void expect_whole_equals(const State& state, const TargetLayout& whole, const std::string& directory) {
  const std::string bytes = read_file(directory + "/whole");
  ASSERT_EQ(bytes.size(), whole.files[0].bytes);
  for (const Placement& placement : whole.files[0].placements) {
    ASSERT_EQ(bytes.substr(placement.offset, placement.bytes), state.bytes[placement.tensor])
        << state.tensors[placement.tensor].name;
  }
}

class Relayout : public testing::TestWithParam<IoKind> {};

TEST_P(Relayout, AnyLayoutToAnyLayoutAndBackKeepsEveryBit) {
  if (!open_io(GetParam())) GTEST_SKIP() << "this kernel or container forbids io_uring";
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const TempDir directory;
    const State state = random_state(dice);
    const Map a = write_random_layout(dice, state, directory.path(), dice.roll(1, 3));
    std::vector<std::uint32_t> all(a.tensors.size());
    for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    ASSERT_TRUE(check_coverage(a, all)) << check_coverage(a, all).error().message;

    const TargetLayout b = random_target(dice, a.tensors, dice.roll(1, 3));
    const auto first = carry_out(a, b.files, directory.path(), GetParam(), 2);
    ASSERT_TRUE(first) << first.error().message;

    const TargetLayout whole = whole_target(a.tensors);
    const auto second = carry_out(b.map, whole.files, directory.path(), GetParam(), 1);
    ASSERT_TRUE(second) << second.error().message;
    expect_whole_equals(state, whole, directory.path());
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Relayout, testing::Values(IoKind::uring, IoKind::threads),
                         [](const auto& kind) { return kind.param == IoKind::uring ? "uring" : "threads"; });

TEST(Coverage, NamesAMissingRegionAndADoubleOne) {
  const Shape shape{4, 6};
  const auto check = [&](std::vector<Chunk> chunks) {
    Map map;
    map.tensors.push_back({.name = "w", .shape = shape});
    ChunkTable table(1);
    for (const Chunk& chunk : chunks) table.add(0, shape, chunk, {});
    table.seal();
    map.index = std::make_shared<ChunkTable>(std::move(table));
    const std::uint32_t only = 0;
    return check_coverage(map, {&only, 1});
  };
  EXPECT_TRUE(check({{{{0, 0}, {4, 3}}, {}}, {{{0, 3}, {4, 3}}, {}}}));
  EXPECT_TRUE(check({{{{0, 0}, {4, 3}}, {}}, {{{0, 0}, {4, 3}}, {}}, {{{0, 3}, {4, 3}}, {}}}));  // a replica
  EXPECT_EQ(check({{{{0, 0}, {4, 3}}, {}}}).error().code, Errc::uncovered);
  EXPECT_EQ(check({{{{0, 0}, {4, 4}}, {}}, {{{0, 3}, {4, 3}}, {}}}).error().code, Errc::overlap);
  const Box whole = Box::whole(shape);
  EXPECT_TRUE(check({{whole, Extent{0, 10}}, {whole, Extent{10, 24}}}));
  const auto gap = check({{whole, Extent{0, 10}}, {whole, Extent{12, 24}}});
  ASSERT_FALSE(gap);
  EXPECT_EQ(gap.error().code, Errc::uncovered);
  EXPECT_NE(gap.error().message.find("elements 10..11"), std::string::npos) << gap.error().message;
  EXPECT_EQ(check({{whole, Extent{0, 13}}, {whole, Extent{12, 24}}}).error().code, Errc::overlap);
}

TEST(Run, ATruncatedSourceIsCorruptAndNamesTheFile) {
  const TempDir directory;
  Dice dice(1);
  State state;
  state.tensors.push_back({.name = "w", .dtype = Dtype::u8, .shape = {100000}});
  state.bytes.emplace_back(100000, 'x');
  const Map map = write_random_layout(dice, state, directory.path(), 1);
  ASSERT_EQ(::truncate((directory.path() + "/source0").c_str(), 50000), 0);
  const auto report = carry_out(map, whole_target(map.tensors).files, directory.path(), IoKind::threads, 1);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Errc::corrupt);
  EXPECT_NE(report.error().file.find("source0"), std::string::npos);
}

TEST(Run, APoolBelowTheSmallestIsRefused) {
  const TempDir directory;
  Dice dice(2);
  State state;
  state.tensors.push_back({.name = "w", .dtype = Dtype::u8, .shape = {10}});
  state.bytes.emplace_back(10, 'x');
  const Map map = write_random_layout(dice, state, directory.path(), 1);
  const TargetLayout whole = whole_target(map.tensors);
  const auto plan = Plan::make(map, whole.files);
  const auto io = open_io(IoKind::threads);
  const auto comm = Comm::solo();
  RunOptions options{.source_root = directory.path(), .target_root = "", .workers = 1};
  options.pool_bytes = smallest_pool_bytes(1) - 1;
  EXPECT_EQ(run(*plan, **io, *comm, options).error().code, Errc::memory);
  options.pool_bytes = smallest_pool_bytes(1);
  EXPECT_TRUE(run(*plan, **io, *comm, options));
}

}  // namespace
}  // namespace ckpt::test
