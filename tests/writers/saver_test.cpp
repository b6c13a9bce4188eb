#include "writers/saver.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

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
  const auto done = (*saver)->wait(*save, 30s);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ((*save)->outcome()->name, "step-000000007.g1");
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
      const auto done = (*saver)->wait(*save, 30s);
      ASSERT_TRUE(done) << done.error().message;
      names[rank] = (*save)->outcome()->name;
    }
  });
  for (const std::string& name : names) EXPECT_EQ(name, "step-000000003.g3");
}

}  // namespace
}  // namespace ckpt::test
