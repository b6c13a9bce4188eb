// Loads of ranks that hold the same: each byte is read once, by one of them, and reaches all.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "api/run/run.hpp"
#include "support/file_bytes.hpp"
#include "support/temp_dir.hpp"
#include "support/training_job.hpp"

namespace ckpt::test {
namespace {

using namespace std::chrono_literals;
using universal::Layout;

std::unique_ptr<Io> real_io(std::size_t) {
  auto io = open_io(IoKind::automatic, 8);
  return io ? std::move(*io) : nullptr;
}

/// The parts of one rank, and room for them.
struct Parts {
  explicit Parts(const ckpt::Run& run) : model(run.model()), rank(static_cast<std::uint64_t>(run.rank())) {
    for (const auto& row : model.rows) {
      memory.emplace_back(part_of(model, row, rank, 0).size(), std::byte{0xEE});
      reads.push_back({.name = row.tensor.name, .out = memory.back().data(), .bytes = memory.back().size()});
    }
  }
  /// Everything that was asked for is there.
  void expect_values(std::uint64_t step) const {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const bool asked =
          std::any_of(reads.begin(), reads.end(), [&](const NamedRead& read) { return read.out == memory[i].data(); });
      if (!asked) continue;
      EXPECT_TRUE(memory[i] == part_of(model, model.rows[i], rank, step))
          << "rank " << rank << ": " << model.rows[i].tensor.name;
    }
  }

  const Model& model;
  std::uint64_t rank;
  std::vector<std::vector<std::byte>> memory{};
  std::vector<NamedRead> reads{};
};

/// What the ranks' reports sum up to.
struct Sums {
  std::uint64_t needed = 0;
  std::uint64_t received = 0;
  std::uint64_t read = 0;
  std::uint64_t unverified = 0;
};

class RunReplicas : public testing::Test {
 protected:
  using Change = std::function<void(ckpt::Run& run, Parts& parts)>;

  void save(const JobLayout& layout, std::uint64_t steps, const std::function<void(ckpt::Run&)>& prepare = {}) const {
    with_runs(layout, run_, {}, real_io, [&](std::size_t, auto run) {
      ASSERT_TRUE(run) << run.error().message;
      if (prepare) prepare(**run);
      for (std::uint64_t step = 1; step <= steps; ++step) {
        const auto saved = save_step(**run, step);
        ASSERT_TRUE(saved) << saved.error().message;
      }
    });
  }
  /// Loads the newest checkpoint, `step`, on every rank, with the reads that `change` leaves; by rank.
  std::vector<ckpt::Run::Loaded> load(const JobLayout& layout, std::uint64_t step, ckpt::Run::Options options = {},
                                      const Change& change = {}) const {
    std::vector<ckpt::Run::Loaded> loaded(layout.ranks());
    with_runs(layout, run_, options, real_io, [&](std::size_t rank, auto run) {
      ASSERT_TRUE(run) << run.error().message;
      load_on(**run, step, change, loaded[rank]);
    });
    return loaded;
  }
  static void load_on(ckpt::Run& run, std::uint64_t step, const Change& change, ckpt::Run::Loaded& loaded) {
    Parts parts(run);
    if (change) change(run, parts);
    auto done = run.load(parts.reads, false);
    ASSERT_TRUE(done) << done.error().message << " " << done.error().tensor;
    EXPECT_EQ(done->step, step);
    parts.expect_values(step);
    loaded = std::move(*done);
  }
  static Sums sum(const std::vector<ckpt::Run::Loaded>& loaded) {
    Sums sums;
    for (const ckpt::Run::Loaded& rank : loaded) {
      sums.needed += rank.report.load.needed_bytes;
      sums.received += rank.report.load.received_bytes;
      sums.read += rank.report.load.read_bytes;
      sums.unverified += rank.report.load.unverified_bytes;
    }
    return sums;
  }
  /// Bytes of the parts of all ranks, and of those that differ.
  static std::pair<std::uint64_t, std::uint64_t> bytes_of(const JobLayout& layout) {
    const Model model = *model_of(layout);
    std::uint64_t all = 0;
    std::uint64_t distinct = 0;
    for (const auto& row : model.rows) {
      std::vector<std::vector<Chunk>> seen;
      for (std::uint64_t rank = 0; rank < layout.ranks(); ++rank) {
        const auto held = universal::held_chunks(model.layouts[row.layout], row.tensor, row.begin, rank).value();
        const std::uint64_t bytes = part_of(model, row, rank, 0).size();
        all += bytes;
        if (std::find(seen.begin(), seen.end(), held) != seen.end()) continue;
        seen.push_back(held);
        distinct += bytes;
      }
    }
    return {all, distinct};
  }

  const TempDir directory_{memory_temp_dir()};
  const std::string run_ = directory_.path() + "/run";
};

// --- how much is read ----------------------------------------------------------------------------------------------

const std::vector<JobLayout> kLayouts = {
    {.dp = 3},
    {.dp = 2, .tp = 2},
    {.dp = 4, .zero = 1},
    {.dp = 2, .tp = 2, .zero = 2},
    {.dp = 2, .tp = 2, .zero = 3},
    {.dp = 2, .pp = 2},
    {.dp = 2, .tp = 2, .pp = 2, .zero = 1},
    {.tp = 4},
};

class RunReplicasOf : public RunReplicas, public testing::WithParamInterface<std::size_t> {};

TEST_P(RunReplicasOf, EveryByteIsReadByOneOfTheRanksThatHoldIt) {
  const JobLayout& layout = kLayouts[GetParam()];
  const auto [all, distinct] = bytes_of(layout);
  ASSERT_LT(distinct, all);
  save({.dp = 2, .tp = 2, .zero = 1}, 1);

  const Sums own = sum(load(layout, 1, {.replicas = Replicas::read}));
  EXPECT_EQ(own.needed, all);
  EXPECT_EQ(own.received, 0u);

  for (const Replicas replicas : {Replicas::exchange, Replicas::automatic}) {
    const Sums shared = sum(load(layout, 1, {.replicas = replicas}));
    EXPECT_EQ(shared.needed, all);
    EXPECT_EQ(shared.needed - shared.received, distinct);
    EXPECT_GE(shared.read, distinct);
    EXPECT_LE(shared.read - distinct, own.read - all) << "no more is read beside the bytes themselves";
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, RunReplicasOf, testing::Range(std::size_t{0}, kLayouts.size()));

/// Of `mib` MiB, in two tensors that are divided along tp, and a small one that is not.
void make_large(ckpt::Run& run, const JobLayout& layout, std::uint64_t mib) {
  const std::vector<universal::Axis> axes{{"pp", 1}, {"dp", layout.dp}, {"tp", layout.tp}};
  Layout whole{.kind = Layout::Kind::mesh, .mesh = {axes}};
  Layout cut = whole;
  cut.cuts = {{.dim = 0, .axes = {2}, .rule = Layout::Cut::Rule::even}};
  const Shape half{mib * 128, 1024};  // 4 KiB a row
  run.set_model(Model::make({whole, cut}, {{.tensor = {.name = "a", .dtype = Dtype::f32, .shape = half}, .layout = 1},
                                           {.tensor = {.name = "b", .dtype = Dtype::f32, .shape = half}, .layout = 1},
                                           {.tensor = {.name = "n", .dtype = Dtype::f32, .shape = {999}}}})
                    .value());
}

TEST_F(RunReplicas, MembersReadEvenSharesAndLeavesStayVerified) {
  const JobLayout layout{.dp = 3, .tp = 2};
  constexpr std::uint64_t kMib = 30;
  save({.dp = 1, .tp = 2}, 1, [](ckpt::Run& run) { make_large(run, {.dp = 1, .tp = 2}, kMib); });
  const auto prepare = [&](ckpt::Run& run, Parts&) { make_large(run, layout, kMib); };
  const auto change = [&](ckpt::Run& run, Parts& parts) {
    prepare(run, parts);
    // The parts of that model.
    parts.memory.clear();
    parts.reads.clear();
    for (const auto& row : run.model().rows) {
      parts.memory.emplace_back(part_of(run.model(), row, parts.rank, 0).size());
      parts.reads.push_back(
          {.name = row.tensor.name, .out = parts.memory.back().data(), .bytes = parts.memory.back().size()});
    }
  };
  const auto loaded = load(layout, 1, {.replicas = Replicas::exchange}, change);
  // Three ranks share 15 MiB, to a leaf of 4 MiB.
  for (const ckpt::Run::Loaded& rank : loaded) {
    EXPECT_GE(rank.report.load.read_bytes, 1u << 20);
    EXPECT_LE(rank.report.load.read_bytes, 9u << 20);
    EXPECT_GT(rank.report.load.verified_leaves, 0u);
  }
  const Sums shared = sum(loaded);
  EXPECT_LT(shared.read, (kMib << 20) + (kMib << 20) / 50);
  const Sums own = sum(load(layout, 1, {.replicas = Replicas::read}, change));
  EXPECT_GT(own.read, 3 * (kMib << 20));
  EXPECT_LE(shared.unverified, own.unverified);
}

TEST_F(RunReplicas, ManyLoadsOfOneRunStayRight) {
  save({.dp = 2, .tp = 2}, 1);
  with_runs({.dp = 2, .tp = 2}, run_, {}, real_io, [&](std::size_t, auto run) {
    ASSERT_TRUE(run) << run.error().message;
    for (int i = 0; i < 5; ++i) EXPECT_EQ(load_all(**run).value(), 1u);
  });
}

// --- what ranks ask for --------------------------------------------------------------------------------------------

TEST_F(RunReplicas, TheOrderOfAListIsTheRanksOwn) {
  const JobLayout layout{.dp = 2, .tp = 2};
  save(layout, 1);
  const auto [all, distinct] = bytes_of(layout);
  const Sums sums = sum(load(layout, 1, {}, [](ckpt::Run& run, Parts& parts) {
    if (run.rank() % 2 == 1) std::reverse(parts.reads.begin(), parts.reads.end());
  }));
  EXPECT_EQ(sums.received, all - distinct);
}

TEST_F(RunReplicas, WhereOneMemberAsksForLessItsGroupsReadForThemselvesAndOtherGroupsDoNot) {
  const JobLayout layout{.dp = 2, .tp = 2};
  save(layout, 1);
  // The groups of tp 0 are ranks 0 and 2; those of tp 1 ranks 1 and 3.
  const auto loaded = load(layout, 1, {}, [](ckpt::Run& run, Parts& parts) {
    if (run.rank() == 2) std::erase_if(parts.reads, [](const NamedRead& read) { return read.name == "layers.1.up"; });
  });
  // What all four hold alike is still exchanged; it is most of it.
  const auto cut_bytes = [&](std::size_t rank) {
    const Model model = *model_of(layout);
    std::uint64_t bytes = 0;
    for (const auto& row : model.rows) {
      if (!model.layouts[row.layout].cuts.empty()) bytes += part_of(model, row, rank, 0).size();
    }
    return bytes;
  };
  const auto got = [&](std::size_t rank) { return loaded[rank].report.load.received_bytes; };
  const auto whole = [&](std::size_t rank) { return loaded[rank].report.load.needed_bytes; };
  EXPECT_EQ(whole(0), whole(1));
  const std::uint64_t common = whole(0) - cut_bytes(0);
  EXPECT_EQ(got(0) + got(1) + got(2) + got(3), 3 * common + cut_bytes(1));
}

TEST_F(RunReplicas, BoxesRepeatedNamesAndForeignModelsAreReadByWhoAsks) {
  const JobLayout layout{.dp = 3};
  save(layout, 1);
  const Model model = *model_of(layout);
  const auto scale =
      std::find_if(model.rows.begin(), model.rows.end(), [](const auto& row) { return row.tensor.name == "scale"; });
  std::vector<std::vector<std::byte>> boxes(3, std::vector<std::byte>(2 * 5000 * 4));
  std::vector<std::vector<std::byte>> twice(3, std::vector<std::byte>(4));
  const auto more = [&](ckpt::Run& run, Parts& parts) {
    const auto rank = static_cast<std::size_t>(run.rank());
    // Another box on every rank.
    parts.reads.push_back({.name = "table",
                           .box = Box{.offset = {rank, 0}, .size = {2, 5000}},
                           .out = boxes[rank].data(),
                           .bytes = boxes[rank].size()});
    if (rank != 1) parts.reads.push_back({.name = "scale", .out = twice[rank].data(), .bytes = 4});
  };
  const auto loaded = load(layout, 1, {}, more);
  EXPECT_EQ(sum(loaded).received, 0u) << "the lists of all three differ in one tensor of their only group";
  const auto table =
      std::find_if(model.rows.begin(), model.rows.end(), [](const auto& row) { return row.tensor.name == "table"; });
  const auto values = part_of(model, *table, 0, 1);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const auto* begin = values.data() + rank * 5000 * 4;
    EXPECT_TRUE(std::equal(boxes[rank].begin(), boxes[rank].end(), begin)) << rank;
    EXPECT_EQ(twice[rank] == part_of(model, *scale, 0, 1), rank != 1);
  }

  // One rank has declared something else: nothing that follows from the model is common knowledge.
  std::vector<std::byte> room(part_of(model, *table, 0, 1).size());
  const auto strange = load(layout, 1, {}, [&](ckpt::Run& run, Parts& parts) {
    if (run.rank() != 1) return;
    run.set_model({});
    parts.reads = {{.name = "table", .out = room.data(), .bytes = room.size()}};
    parts.memory.clear();
  });
  EXPECT_EQ(sum(strange).received, 0u);
  EXPECT_TRUE(room == values);
}

TEST_F(RunReplicas, ARankThatAsksForWhatIsNotThereFailsTheLoadOfAll) {
  const JobLayout layout{.dp = 3};
  save(layout, 1);
  with_runs(layout, run_, {}, real_io, [&](std::size_t rank, auto run) {
    ASSERT_TRUE(run) << run.error().message;
    Parts parts(**run);
    if (rank == 1) parts.reads.push_back({.name = "nothing"});
    const auto loaded = (*run)->load(parts.reads, false);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(exit_code(loaded.error()), 10) << loaded.error().message;
    EXPECT_EQ(load_all(**run).value(), 1u) << "the ranks are not lost";
  });
}

TEST_F(RunReplicas, OneRankThatReadsForItselfIsEnoughForAllToDoSo) {
  const JobLayout layout{.dp = 3};
  save(layout, 1);
  std::atomic<std::uint64_t> received{0};
  const ThreadRanks ranks(3);
  ranks.run_tables([&](const ckpt_comm_table& table) {
    auto comm = std::make_unique<Comm>(table);
    const bool reads = comm->rank() == 2;
    auto run =
        ckpt::Run::open(real_io(0), std::move(comm), run_, {.replicas = reads ? Replicas::read : Replicas::exchange});
    ASSERT_TRUE(run) << run.error().message;
    (*run)->set_model(*model_of(layout));
    ckpt::Run::Loaded loaded;
    load_on(**run, 1, {}, loaded);
    received += loaded.report.load.received_bytes;
  });
  EXPECT_EQ(received, 0u);
}

TEST_F(RunReplicas, TheTableOfAnOlderTrainerLoadsWithoutMessages) {
  const JobLayout layout{.dp = 3};
  save(layout, 1);
  std::atomic<std::uint64_t> received{0};
  const ThreadRanks ranks(3);
  ranks.run_tables([&](ckpt_comm_table table) {
    const auto unset = [](auto& member) { std::memset(&member, 0x55, sizeof member); };
    if (table.rank(table.self) == 1) {  // one such rank is enough
      table.size = offsetof(ckpt_comm_table, start_send);
      unset(table.start_send);
      unset(table.start_receive);
    }
    auto run = ckpt::Run::open(real_io(0), std::make_unique<Comm>(table), run_, {.replicas = Replicas::exchange});
    ASSERT_TRUE(run) << run.error().message;
    (*run)->set_model(*model_of(layout));
    ckpt::Run::Loaded loaded;
    load_on(**run, 1, {}, loaded);
    received += loaded.report.load.received_bytes;
  });
  EXPECT_EQ(received, 0u);
}

// --- failures ------------------------------------------------------------------------------------------------------

TEST_F(RunReplicas, DamageThatOnlyOneMemberReadsMakesAllFallBack) {
  const JobLayout layout{.dp = 3};
  save(layout, 2);
  // Every file in turn, in its last byte, which is of a tensor.
  const std::string newest = run_ + "/step-000000002.g2/shards/weights/";
  for (const char* name : {"00000-00000.safetensors", "00001-00000.safetensors", "00002-00000.safetensors"}) {
    SCOPED_TRACE(name);
    const std::string whole = read_file(newest + name);
    ASSERT_FALSE(whole.empty());
    std::string damaged = whole;
    damaged.back() = static_cast<char>(damaged.back() ^ 1);
    write_file(newest + name, damaged);
    const auto loaded = load(layout, 1, {.verify_all = true, .replicas = Replicas::exchange});
    for (const ckpt::Run::Loaded& rank : loaded) {
      ASSERT_EQ(rank.skipped.size(), 1u);
      EXPECT_NE(rank.skipped[0].find(name), std::string::npos) << rank.skipped[0];
    }
    write_file(newest + name, whole);
  }
  EXPECT_GT(sum(load(layout, 2, {.verify_all = true, .replicas = Replicas::exchange})).received, 0u);
}

// The table of a rank whose messages do something else.
void* (*real_send)(void*, const void*, std::uint64_t, int) = nullptr;
using Send = std::function<void*(void* self, const void* data, std::uint64_t bytes, int to)>;
thread_local Send instead_of_send;

void* faulty_send(void* self, const void* data, std::uint64_t bytes, int to) {
  return instead_of_send ? instead_of_send(self, data, bytes, to) : real_send(self, data, bytes, to);
}

class RunReplicasLoss : public RunReplicas {
 protected:
  /// Loads on three ranks, of which rank 1 does that with its messages; all lose each other.
  void lose(const std::function<Send(const ThreadRanks& ranks, const std::atomic<int>& ended)>& make) const {
    save({.dp = 3}, 1);
    const ThreadRanks ranks(3);
    std::atomic<int> ended{0};
    const Send instead = make(ranks, ended);
    std::mutex once;
    ranks.run_tables([&](ckpt_comm_table table) {
      {
        const std::lock_guard held(once);
        if (table.start_send != faulty_send) real_send = table.start_send;
        table.start_send = faulty_send;
      }
      const bool is_lost = table.rank(table.self) == 1;
      auto comm = std::make_unique<Comm>(table, ranks.clock());
      auto run = ckpt::Run::open(real_io(0), std::move(comm), run_, {.patience = 300s});
      ASSERT_TRUE(run) << run.error().message;
      (*run)->set_model(*model_of({.dp = 3}));
      if (is_lost) instead_of_send = instead;
      const auto step = load_all(**run);
      ++ended;
      ASSERT_FALSE(step);
      EXPECT_EQ(step.error().code, Errc::peer_failed) << step.error().message;
      EXPECT_TRUE((*run)->ranks_lost());
      const auto again = load_all(**run);
      ASSERT_FALSE(again);
      EXPECT_EQ(again.error().code, Errc::peer_failed) << again.error().message;
    });
    // The checkpoint is as it was.
    load({.dp = 3}, 1);
  }
};

TEST_F(RunReplicasLoss, ARankWhoseConnectionFailsInTheExchangeIsLostToAll) {
  lose([](const ThreadRanks& ranks, const std::atomic<int>&) -> Send {
    return [&](auto...) -> void* {
      ranks.hurry();
      return nullptr;
    };
  });
}

TEST_F(RunReplicasLoss, ARankThatHangsInTheExchangeIsGivenUp) {
  lose([](const ThreadRanks& ranks, const std::atomic<int>& ended) -> Send {
    return [&](auto...) -> void* {
      ranks.hurry();
      while (ended < 2) std::this_thread::sleep_for(1ms);  // as long as the others wait
      return nullptr;
    };
  });
}

TEST_F(RunReplicasLoss, AMessageThatNeverArrivesEndsTheLoadThoughAllRanksAnswer) {
  lose([](const ThreadRanks& ranks, const std::atomic<int>&) -> Send {
    return [&](void* self, const void* data, std::uint64_t bytes, int) {
      ranks.hurry();
      return real_send(self, data, bytes, 1);
    };
  });
}

}  // namespace
}  // namespace ckpt::test
