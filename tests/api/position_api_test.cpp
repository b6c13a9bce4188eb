// The position in the data and random streams, by the public interface alone: saved by some ranks, continued by others.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/ckpt.hpp"
#include "support/rank_tables.hpp"
#include "support/temp_dir.hpp"

namespace ckpt::test {
namespace {

using Sample = std::pair<std::uint64_t, std::uint64_t>;  // shard, number

/// What ranks read, and how often.
class Seen {
 public:
  void add(const std::vector<ckpt_range>& ranges) {
    const std::scoped_lock lock(mutex_);
    for (const ckpt_range& range : ranges) {
      for (std::uint64_t i = range.begin; i < range.end; ++i) ++times_[{range.shard, i}];
    }
  }
  std::size_t samples() const { return times_.size(); }
  bool each_once() const {
    return std::all_of(times_.begin(), times_.end(), [](const auto& one) { return one.second == 1; });
  }

 private:
  std::mutex mutex_;
  std::map<Sample, int> times_;
};

Model model_of(std::uint64_t ranks) {
  auto model = Model::on({{"dp", ranks}});
  EXPECT_TRUE(model && model->tensor({.name = "w", .shape = {12}}, {Model::column("dp")}));
  return std::move(*model);
}

std::vector<std::byte> state_of(std::uint64_t stream, std::size_t bytes) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(stream + 1));
}

Stream dropout(std::uint64_t rank) {
  return {.name = "dropout", .coordinates = "dp=" + std::to_string(rank), .algorithm = "test.1"};
}
const Stream kShared{.name = "augment", .algorithm = "test.1"};

class PositionApi : public testing::Test {
 protected:
  /// Goes on from the newest checkpoint with `ranks`, or begins; reads `steps` batches, saves step `step`.
  void train(std::uint64_t ranks, std::uint64_t steps, std::uint64_t step, const Position::Epoch& epoch) {
    on_rank_tables(static_cast<int>(ranks), [&](int number, const ckpt_comm_table& table) {
      const auto rank = static_cast<std::uint64_t>(number);
      auto run = Run::open(run_, {.comm = table});
      ASSERT_TRUE(run) << run.error().json;
      ASSERT_TRUE(run->set_model(model_of(ranks)));
      std::vector<float> part(12 / ranks, 1.0F);
      auto position = [&]() -> Result<Position> {
        if (step == 1) {
          Position::Epoch mine = epoch;
          mine.world = ranks;
          return Position::begin(mine);
        }
        const std::vector<Read> reads{{.name = "w", .out = std::as_writable_bytes(std::span(part))}};
        const auto loaded = run->load(reads);
        EXPECT_TRUE(loaded) << loaded.error().json;
        return run->restore_position(ranks);
      }();
      ASSERT_TRUE(position) << position.error().json;
      EXPECT_EQ(position->state().world, ranks);
      for (std::uint64_t i = 0; i < steps; ++i) {
        const auto share = position->share(rank);
        ASSERT_TRUE(share) << share.error().json;
        seen_.add(*share);
        ASSERT_TRUE(position->advance());
      }
      auto save = run->begin(step);
      ASSERT_TRUE(save) << save.error().json;
      ASSERT_TRUE(save->add("w", part));
      EXPECT_TRUE(save->position(*position));
      EXPECT_TRUE(save->stream(dropout(rank), state_of(rank, 40)));
      EXPECT_TRUE(save->stream(kShared, state_of(100, 2500)));
      const auto pending = save->commit();
      ASSERT_TRUE(pending) << pending.error().json;
      left_ = position->state().steps_left;
      EXPECT_TRUE(run->close());
    });
  }
  const TempDir directory_{memory_temp_dir()};
  const std::string run_ = directory_.path() + "/run";
  Seen seen_;
  std::atomic<std::uint64_t> left_{0};
};

TEST_F(PositionApi, OnAnyRanksEachSampleOfAnEpochIsReadOnce) {
  const Position::Epoch epoch{.epoch = 2, .seed = 7, .samples = 1000, .global_batch = 12};
  train(4, 30, 1, epoch);
  train(3, 20, 2, epoch);
  train(6, left_, 3, epoch);
  EXPECT_EQ(left_, 0U);
  EXPECT_EQ(seen_.samples(), 1000U);
  EXPECT_TRUE(seen_.each_once());
}

TEST_F(PositionApi, OnAnyRanksEachSampleOfAllShardsIsReadOnce) {
  const Position::Epoch epoch{.global_batch = 12, .shards = {{"a", 301}, {"b", 5}, {"c", 222}}};
  train(4, 11, 1, epoch);
  train(1, 5, 2, epoch);
  train(3, 9, 3, epoch);
  train(2, left_ + 1, 4, epoch);  // of the old ranks' steps
  EXPECT_EQ(left_, 0U);
  EXPECT_EQ(seen_.samples(), 528U);
  EXPECT_TRUE(seen_.each_once());
}

TEST_F(PositionApi, StreamsGoOnByTheirIdentityAndNewOnesBeginAlike) {
  train(2, 1, 1, {.samples = 1000, .global_batch = 12});
  const auto restore = [&](std::uint64_t ranks) {
    std::mutex mutex;
    std::map<std::string, std::pair<bool, std::vector<std::byte>>> all;
    on_rank_tables(static_cast<int>(ranks), [&](int number, const ckpt_comm_table& table) {
      auto run = Run::open(run_, {.comm = table});
      ASSERT_TRUE(run) << run.error().json;
      ASSERT_TRUE(run->set_model(model_of(ranks)));
      const Stream own = dropout(static_cast<std::uint64_t>(number));
      std::vector<std::byte> state(2500);
      EXPECT_EQ(run->restore_stream(own, state, 5).error().code, 2) << "nothing was loaded";
      std::vector<float> part(12 / ranks);
      ASSERT_TRUE(run->load(std::vector<Read>{{.name = "w", .out = std::as_writable_bytes(std::span(part))}}));
      const auto restored = run->restore_stream(own, state, 5);
      ASSERT_TRUE(restored) << restored.error().json;
      const std::scoped_lock lock(mutex);
      all[own.coordinates] = {*restored, {state.begin(), state.begin() + (*restored ? 40 : 16)}};
      const auto shared = run->restore_stream(kShared, state, 5);
      EXPECT_TRUE(shared && *shared && state == state_of(100, 2500));
      Stream other = kShared;
      other.algorithm = "test.2";
      EXPECT_FALSE(run->restore_stream(other, state, 5).value_or(true)) << "a state of another algorithm";
      EXPECT_EQ(run->restore_stream(kShared, std::span(state).first(100), 5).error().code, 2);
      EXPECT_EQ(run->restore_stream({.name = "x", .coordinates = "dp", .algorithm = "a"}, state, 5).error().code, 2);
    });
    return all;
  };
  const auto four = restore(4);
  ASSERT_EQ(four.size(), 4U);
  EXPECT_EQ(four.at("dp=0"), std::pair(true, state_of(0, 40)));
  EXPECT_EQ(four.at("dp=1"), std::pair(true, state_of(1, 40)));
  EXPECT_FALSE(four.at("dp=2").first || four.at("dp=3").first);
  EXPECT_NE(four.at("dp=2").second, four.at("dp=3").second);
  EXPECT_EQ(four, restore(4)) << "the same at every resume";
}

TEST_F(PositionApi, WhatHasNoPositionOrNoSuchRankSaysSo) {
  auto run = Run::open(run_);
  ASSERT_TRUE(run) << run.error().json;
  EXPECT_EQ(run->restore_position(1).error().code, 2) << "nothing was loaded";
  ASSERT_TRUE(run->set_model(model_of(1)));
  std::vector<float> part(12, 2.0F);
  for (const bool with : {false, true}) {
    auto save = run->begin(with ? 2 : 1);
    ASSERT_TRUE(save);
    ASSERT_TRUE(save->add("w", part));
    auto position = Position::begin({.samples = 10, .global_batch = 2});
    ASSERT_TRUE(position);
    if (with) {
      ASSERT_TRUE(save->position(*position));
    }
    ASSERT_TRUE(save->commit());
    ASSERT_TRUE(run->load(std::vector<Read>{{.name = "w", .out = std::as_writable_bytes(std::span(part))}}));
    EXPECT_EQ(run->restore_position(1).has_value(), with);
    EXPECT_EQ(run->restore_position(3).error().code, with ? 2 : 10);
  }
  auto position = Position::begin({.samples = 10, .global_batch = 2});
  ASSERT_TRUE(position);
  EXPECT_EQ(position->share(1).error().code, 2);
  EXPECT_TRUE(position->share(0, 5).value().empty()) << "past the end";
  EXPECT_EQ(Position::begin({.samples = 10, .global_batch = 1, .world = 2}).error().code, 2);
}

}  // namespace
}  // namespace ckpt::test
