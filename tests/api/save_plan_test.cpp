#include "api/run/save_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

namespace ckpt {
namespace {

SavePlanRequest request_70b() {
  return {.parameters = 70e9, .bandwidth = 40e9, .stall_s = 1.9, .mtbf_s = 234 * 3600.0};
}

TEST(SavePlan, TheVolumePeaksWhereASimulatedStoreDoes) {
  // Saves at equal times; a prune just before the next one keeps the newest `kept`, and empties what is past its grace.
  for (const std::uint64_t kept : {1u, 3u, 25u}) {
    for (const double trash : {0.0, 100.0, 1000.0, 4321.0}) {
      for (const double between : {60.0, 333.0, 5000.0}) {
        std::uint64_t peak = 0;
        std::uint64_t live = 0;
        std::deque<double> retired;
        for (int save = 0; save < 2000; ++save) {
          const double now = save * between;
          for (; live > kept; --live) retired.push_back(now);
          while (!retired.empty() && now - retired.front() >= trash) retired.pop_front();
          peak = std::max<std::uint64_t>(peak, live + retired.size() + 1);  // one more is being written
          ++live;
        }
        EXPECT_EQ(kept + 1 + most_in_trash(trash, between), peak) << kept << " " << trash << " " << between;
      }
    }
  }
}

TEST(SavePlan, TheBandHoldsTheChoiceAndTheSensitivityIsAPlanOfItsOwn) {
  SavePlanRequest request = request_70b();
  request.local_bandwidth = 400e9;
  const SavePlan plan = *plan_saves(request);
  ASSERT_EQ(plan.choices.size(), 3u);
  for (const SaveChoice& choice : plan.choices) {
    EXPECT_LT(choice.lost_low, choice.lost) << choice.name;
    EXPECT_LT(choice.lost, choice.lost_high) << choice.name;
  }
  ASSERT_EQ(plan.sensitivity.size(), 4u);
  SavePlanRequest slower = request;
  slower.bandwidth /= 2;
  slower.local_bandwidth /= 2;
  SavePlanRequest safer = request;
  safer.mtbf_s *= 2;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_DOUBLE_EQ(plan.sensitivity[0].choices[i].lost, plan_saves(slower)->choices[i].lost);
    EXPECT_DOUBLE_EQ(plan.sensitivity[3].choices[i].lost, plan_saves(safer)->choices[i].lost);
    EXPECT_DOUBLE_EQ(plan.sensitivity[3].choices[i].lost_high, plan_saves(safer)->choices[i].lost_high);
  }
  request.mtbf_s = 0;
  EXPECT_TRUE(plan_saves(request)->sensitivity.empty());
}

TEST(SavePlan, TheChosenWayLosesLeastAndSaysWhatDecides) {
  SavePlan plan = *plan_saves(request_70b());
  EXPECT_EQ(plan.choices[plan.chosen].name, "async");
  EXPECT_NE(plan.explanation.find("async saves, 0.2"), std::string::npos) << plan.explanation;
  SavePlanRequest request = request_70b();
  request.stall_s.reset();
  plan = *plan_saves(request);
  EXPECT_EQ(plan.chosen, 0u);
  EXPECT_TRUE(plan.explanation.starts_with("blocking saves;")) << plan.explanation;
  request = request_70b();
  request.bandwidth = 0.5e9;  // a save takes 33 minutes to be durable
  plan = *plan_saves(request);
  EXPECT_EQ(plan.choices[1].reason, "drain");
  EXPECT_NE(plan.explanation.find("limited by the time until a save is durable"), std::string::npos)
      << plan.explanation;
}

TEST(SavePlan, TiersSaveMoreOftenThanTheStorageAloneTakes) {
  SavePlanRequest request = request_70b();
  request.bandwidth = 0.1e9;
  request.local_bandwidth = 100e9;
  request.node_loss = 0.1;
  const SavePlan plan = *plan_saves(request);
  const SaveChoice& tiers = plan.choices[2];
  EXPECT_GT(tiers.remote_every, 1u);
  EXPECT_LT(tiers.chosen_s, plan.choices[1].chosen_s);
  EXPECT_LT(tiers.lost, plan.choices[1].lost);
  EXPECT_EQ(plan.choices[plan.chosen].name, "tiers");
  EXPECT_DOUBLE_EQ(tiers.host_bytes, plan.disk.largest_rank);
  EXPECT_EQ(plan.choices[0].host_bytes, 0);
  request.node_loss = 2;
  EXPECT_FALSE(plan_saves(request));
}

TEST(SavePlan, BytesOfARankAreThoseOfAWalkOverAllRanks) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool replicas : {false, true}) {
      const catalog::Sharding sharding{
          .tensor = 2, .pipeline = 3, .data = 4, .zero_stage = stage, .replica_parallel = replicas};
      const double parameters = 24e6;
      const double slice = parameters / 6;  // of one tensor and pipeline rank
      double largest = 0;
      double total = 0;
      for (int data = 0; data < 4; ++data) {
        // Who holds what alone writes it; what all replicas hold is written by the first, or by all in equal parts.
        double shared = 14 * slice;
        double own = 0;
        if (stage == 1 || stage == 2) {
          shared = 2 * slice;
          own = 12 * slice / 4;
        }
        if (stage == 3) {
          shared = 0;
          own = 14 * slice / 4;
        }
        const double rank = own + (replicas ? shared / 4 : data == 0 ? shared : 0);
        largest = std::max(largest, rank);
        total += 6 * rank;
      }
      const catalog::DiskBytes disk = disk_bytes(parameters, *catalog::state_preset("mixed"), sharding);
      EXPECT_NEAR(disk.largest_rank, largest, 1e-3) << stage << replicas;
      EXPECT_NEAR(disk.total, total, 1e-3) << stage << replicas;
    }
  }
}

}  // namespace
}  // namespace ckpt
