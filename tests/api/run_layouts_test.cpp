// Jobs that save in one layout and resume in another: every rank gets every byte of its part.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "support/temp_dir.hpp"
#include "support/training_job.hpp"

namespace ckpt::test {
namespace {

const std::vector<JobLayout> kLayouts = {
    {},
    {.dp = 2},
    {.tp = 2},
    {.pp = 2},
    {.dp = 3, .zero = 1},
    {.dp = 4, .zero = 2},
    {.dp = 3, .zero = 3},
    {.dp = 2, .tp = 2, .zero = 1},
    {.tp = 2, .pp = 2},
    {.dp = 2, .pp = 2, .zero = 3},
    {.dp = 2, .tp = 2, .pp = 2, .zero = 2},
    {.dp = 1, .tp = 4, .pp = 2, .zero = 1},
};

std::unique_ptr<Io> real_io(std::size_t) {
  auto io = open_io(IoKind::automatic, 8);
  return io ? std::move(*io) : nullptr;
}

class RunLayouts : public testing::TestWithParam<std::size_t> {};

TEST_P(RunLayouts, WhatOneLayoutSavedAnyOtherLoads) {
  const TempDir directory(memory_temp_dir());
  const std::string path = directory.path() + "/run";
  const JobLayout& saved = kLayouts[GetParam()];
  with_runs(saved, path, {.staging_bytes = 64u << 20}, real_io, [](std::size_t, auto run) {
    ASSERT_TRUE(run) << run.error().message;
    for (const std::uint64_t step : {1u, 2u}) {
      const auto done = save_step(**run, step);
      ASSERT_TRUE(done) << done.error().message;
    }
  });
  for (const JobLayout& loaded : kLayouts) {
    SCOPED_TRACE(testing::Message() << "dp " << loaded.dp << " tp " << loaded.tp << " pp " << loaded.pp << " zero "
                                    << loaded.zero);
    with_runs(loaded, path, {}, real_io, [](std::size_t, auto run) {
      ASSERT_TRUE(run) << run.error().message;
      const auto step = load_all(**run);
      ASSERT_TRUE(step) << step.error().message << " " << step.error().tensor;
      EXPECT_EQ(*step, 2u);
    });
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Saved, RunLayouts, testing::Range(std::size_t{0}, kLayouts.size()));

}  // namespace
}  // namespace ckpt::test
