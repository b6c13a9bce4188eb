#include "writers/saver.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/store/run_directory.hpp"
#include "support/memory_io.hpp"
#include "support/temp_dir.hpp"
#include "support/thread_comm.hpp"

namespace ckpt::test {
namespace {

using namespace std::chrono_literals;

Piece described(const std::string& name, const Shape& shape, const Box& box, const std::vector<float>& values) {
  return {.described = Tensor{.name = name, .dtype = Dtype::f32, .shape = shape},
          .chunk = {.box = box},
          .memory = {.data = reinterpret_cast<const std::byte*>(values.data()), .bytes = values.size() * 4}};
}

TEST(Saver, OneRankSavesAndFindsItByName) {
  const TempDir directory;
  auto io = open_io(IoKind::automatic);
  ASSERT_TRUE(io);
  const auto comm = Comm::solo();
  auto saver = Saver::open(**io, *comm, {.run_directory = directory.path() + "/run", .generator = "test"});
  ASSERT_TRUE(saver) << saver.error().message;
  std::vector<float> values(3'000'000, 1.5F);
  ASSERT_TRUE((*saver)->begin({.step = 7}));
  ASSERT_TRUE((*saver)->add(described("w", {3'000'000}, Box::whole({3'000'000}), values)));
  const auto save = (*saver)->commit();
  ASSERT_TRUE(save) << save.error().message;
  values.assign(values.size(), -1);
  const auto done = (*saver)->wait(*save, 120s);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ((*save)->outcome()->name, "step-000000007.g1");
}

TEST(Saver, AStepThatNoNameCanHoldIsRefused) {
  const TempDir directory;
  const auto io = open_io(IoKind::threads);
  const auto comm = Comm::solo();
  auto saver = Saver::open(**io, *comm, {.run_directory = directory.path() + "/run", .generator = "test"});
  ASSERT_TRUE(saver) << saver.error().message;
  const auto begun = (*saver)->begin({.step = CheckpointName::kGreatest + 1});
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code, Errc::usage);
  EXPECT_TRUE((*saver)->begin({.step = CheckpointName::kGreatest}));
}

TEST(Saver, RanksSaveTogether) {
  const TempDir directory;
  const ThreadRanks ranks(3);
  std::vector<std::string> names(3);
  ranks.run([&](Comm& comm) {
    auto io = open_io(IoKind::automatic);
    ASSERT_TRUE(io);
    auto saver = Saver::open(**io, comm, {.run_directory = directory.path() + "/run", .generator = "test"});
    ASSERT_TRUE(saver) << saver.error().message;
    const auto rank = static_cast<std::uint64_t>(comm.rank());
    for (std::uint64_t step = 1; step <= 3; ++step) {
      const std::vector<float> values(1000, static_cast<float>(rank));
      ASSERT_TRUE((*saver)->begin({.step = step}));
      ASSERT_TRUE((*saver)->add(described("w", {3000}, {.offset = {1000 * rank}, .size = {1000}}, values)));
      const auto save = (*saver)->commit();
      ASSERT_TRUE(save) << save.error().message;
      const auto told = (*saver)->round({.stop = rank == 2});
      ASSERT_TRUE(told) << told.error().message;
      const auto done = (*saver)->wait(*save, 120s);
      ASSERT_TRUE(done) << done.error().message;
      names[rank] = (*save)->outcome()->name;
    }
  });
  for (const std::string& name : names) EXPECT_EQ(name, "step-000000003.g3");
}

// Every further chunk of a tensor lies in a further file, so a save has more leaves than its bytes fill.
TEST(Saver, ManySmallFilesPassThroughTheSmallestStagingMemory) {
  const TempDir directory;
  auto io = open_io(IoKind::automatic);
  ASSERT_TRUE(io);
  const auto comm = Comm::solo();
  std::string told;
  auto saver = Saver::open(**io, *comm,
                           {.run_directory = directory.path() + "/run",
                            .generator = "test",
                            .log = [&](const std::string& text) { told += text; }});
  ASSERT_TRUE(saver) << saver.error().message;
  constexpr std::uint64_t kRows = 40;
  const std::vector<float> values(kRows * 2, 1.5F);
  ASSERT_TRUE((*saver)->begin({.step = 7}));
  for (std::uint64_t row = 0; row < kRows; ++row) {
    const std::vector<float>& part = values;
    ASSERT_TRUE(
        (*saver)->add({.described = Tensor{.name = "w", .dtype = Dtype::f32, .shape = {kRows, 2}},
                       .chunk = {.box = {.offset = {row, 0}, .size = {1, 2}}},
                       .memory = {.data = reinterpret_cast<const std::byte*>(part.data() + 2 * row), .bytes = 8}}));
  }
  const auto save = (*saver)->commit();
  ASSERT_TRUE(save) << save.error().message;
  const auto done = (*saver)->wait(*save, 120s);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_NE(told.find("commit waits"), std::string::npos) << told;
}

TEST(Saver, WhatRanksDescribedDifferentlyIsRefusedAgainInTheNextSave) {
  const TempDir directory;
  const ThreadRanks ranks(2);
  ranks.run([&](Comm& comm) {
    auto io = open_io(IoKind::automatic);
    ASSERT_TRUE(io);
    auto saver = Saver::open(**io, comm, {.run_directory = directory.path() + "/run", .generator = "test"});
    ASSERT_TRUE(saver) << saver.error().message;
    const std::vector<float> values(6, 1.0F);
    const auto save = [&](const Shape& shape) -> Result<> {
      CKPT_CHECK((*saver)->begin({.step = 1}));
      CKPT_CHECK((*saver)->add(described("w", shape, Box::whole(shape), values)));
      CKPT_TRY(const auto pending, (*saver)->commit());
      return (*saver)->wait(pending, 120s);
    };
    const auto alike = save({6});
    ASSERT_TRUE(alike) << alike.error().message;
    for (int again = 0; again < 2; ++again) {
      const auto done = save(comm.is_root() ? Shape{2, 3} : Shape{3, 2});
      ASSERT_FALSE(done);
      EXPECT_NE(done.error().message.find("describe it differently"), std::string::npos) << done.error().message;
    }
    const auto last = save({6});
    ASSERT_TRUE(last) << last.error().message;
  });
}

}  // namespace
}  // namespace ckpt::test
