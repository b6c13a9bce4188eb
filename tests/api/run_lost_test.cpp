// A rank is lost at each of its requests: in opening, saving, asking, waiting, loading and closing, with one save in
// flight and with several, on one node and on two. Every rank ends, nobody is told of a checkpoint that is not there,
// and nothing is left that the next job would stumble over.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/tiered_job.hpp"

namespace ckpt::test {
namespace {

using Loss = ThreadRanks::Loss;

struct Lost {
  int ranks = 2;
  int nodes = 0;  // 0: no local directory
  bool several = false;
  ThreadRanks::Loss how = ThreadRanks::Loss::refused;
  int step = 1;
};

class RunLost : public testing::TestWithParam<Lost> {
 protected:
  /// One tensor cut by rows, one that all ranks hold: there are many jobs.
  static Model model() {
    using universal::Layout;
    Layout held{.kind = Layout::Kind::mesh, .mesh = {{{"dp", static_cast<std::uint64_t>(GetParam().ranks)}}}};
    Layout cut = held;
    cut.cuts = {{.dim = 0, .axes = {0}, .rule = Layout::Cut::Rule::even}};
    return Model::make({cut, held}, {{.tensor = {.name = "w", .dtype = Dtype::f32, .shape = {6, 5}}, .layout = 0},
                                     {.tensor = {.name = "v", .dtype = Dtype::f32, .shape = {7}}, .layout = 1}})
        .value();
  }
  ckpt::Run::Options options(int rank) const {
    ckpt::Run::Options out{.staging_bytes = 1, .patience = 300s};
    out.log = [](const std::string&) {};
    if (GetParam().nodes > 0) out.local_directory = node(rank % GetParam().nodes);
    return out;
  }
  /// Requests between two that are lost; the slow test takes every third.
  std::uint64_t stride() const {
    const char* given = std::getenv("CKPT_LOST_STRIDE");
    return given != nullptr ? std::strtoul(given, nullptr, 10) : static_cast<std::uint64_t>(GetParam().step);
  }
  std::string node(int number) const { return directory_.path() + "/node" + std::to_string(number) + "/run"; }

  /// What a trainer does; the last step that it was told to be durable.
  std::uint64_t train(const ThreadRanks& ranks, const ckpt_comm_table& table) const {
    auto comm = std::make_unique<Comm>(table, ranks.clock());
    const int rank = comm->rank();
    auto run = ckpt::Run::open(real_io(0), std::move(comm), run_, options(rank));
    if (!run) return 0;
    (*run)->set_model(model());
    std::uint64_t told = 0;
    std::vector<std::shared_ptr<PendingSave>> saves;
    const auto wait = [&] {
      for (const auto& save : saves) {
        if ((*run)->saver().wait(save, kLong)) told = step_of(*save);
      }
    };
    for (std::uint64_t step = 1; step <= 3; ++step) {
      static_cast<void>((*run)->should_save(step));
      saves.push_back(commit_step(**run, step));
      if (saves.back() == nullptr) saves.pop_back();
      if (!GetParam().several) wait();
    }
    wait();
    static_cast<void>(load_parts(**run));
    const auto closed = (*run)->close();
    if ((*run)->ranks_lost()) {
      EXPECT_FALSE(closed);
      if (!closed) {
        EXPECT_EQ(closed.error().code, Errc::peer_failed) << closed.error().message;
      }
    } else {
      EXPECT_TRUE(closed) << closed.error().message;
    }
    for (const auto& save : saves) {
      EXPECT_TRUE(save->durable().known() && save->drained().known());
    }
    // As a trainer's handles may, the saves outlive their run.
    run->reset();
    return told;
  }
  static std::uint64_t step_of(const PendingSave& save) { return CheckpointName::parse(save.outcome()->name)->step; }
  /// The run and its nodes as the next job leaves them, which loads at least `told`.
  void expect_next_job_loads(std::uint64_t told) const {
    const ThreadRanks ranks(GetParam().ranks);
    ranks.run_tables([&](const ckpt_comm_table& table) {
      auto comm = std::make_unique<Comm>(table);
      const ckpt::Run::Options own = options(comm->rank());
      auto run = ckpt::Run::open(real_io(0), std::move(comm), run_, own);
      ASSERT_TRUE(run) << run.error().message;
      (*run)->set_model(model());
      const auto loaded = load_all(**run);
      EXPECT_TRUE(loaded || (told == 0 && loaded.error().code == Errc::not_found)) << loaded.error().message;
      EXPECT_GE(loaded.value_or(0), told);
      const auto saved = save_step(**run, 9);
      EXPECT_TRUE(saved) << saved.error().message;
      EXPECT_TRUE((*run)->close());
    });
    for (const auto& entry : fs::recursive_directory_iterator(directory_.path())) {
      EXPECT_EQ(entry.path().filename().string().find(".partial-"), std::string::npos) << entry.path();
    }
  }

  const TempDir directory_{memory_temp_dir()};
  const std::string run_ = directory_.path() + "/shared/run";
};

TEST_P(RunLost, AtAnyRequestEveryRankEndsAndNothingAcknowledgedIsLost) {
  const Lost& how = GetParam();
  for (int victim = 0; victim < how.ranks; ++victim) {
    bool over = false;
    for (std::uint64_t n = static_cast<std::uint64_t>(victim); !over; n += stride()) {
      SCOPED_TRACE("rank " + std::to_string(victim) + " at its request " + std::to_string(n));
      for (const auto& entry : fs::directory_iterator(directory_.path())) fs::remove_all(entry.path());
      const ThreadRanks ranks(how.ranks);
      ranks.lose(victim, n, how.how);
      std::atomic<std::uint64_t> told{0};
      ranks.run_tables([&](const ckpt_comm_table& table) {
        const std::uint64_t mine = train(ranks, table);
        std::uint64_t most = told.load();
        while (mine > most && !told.compare_exchange_weak(most, mine)) {
        }
      });
      over = ranks.requests(victim) <= n;
      expect_next_job_loads(told.load());
      if (HasFailure()) return;
    }
  }
}

std::string name_of(const testing::TestParamInfo<Lost>& each) {
  const std::string how = each.param.how == Loss::refused  ? "refused"
                          : each.param.how == Loss::silent ? "silent"
                                                           : "in_flight";
  return std::to_string(each.param.ranks) + "_ranks_" + std::to_string(each.param.nodes) + "_nodes_" +
         (each.param.several ? "several_saves_" : "one_save_") + how;
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, RunLost,
    testing::Values(Lost{.how = Loss::refused, .step = 19}, Lost{.several = true, .how = Loss::refused, .step = 17},
                    Lost{.nodes = 1, .several = true, .how = Loss::refused, .step = 29},
                    Lost{.ranks = 3, .nodes = 2, .how = Loss::refused, .step = 43},
                    Lost{.ranks = 3, .nodes = 2, .several = true, .how = Loss::in_flight, .step = 37},
                    Lost{.several = true, .how = Loss::silent, .step = 53},
                    Lost{.nodes = 2, .several = true, .how = Loss::silent, .step = 71}),
    name_of);

}  // namespace
}  // namespace ckpt::test
