// Saves and loads a state through the library, as a trainer does, and prints seconds as JSON.
//
//   bench_save save RUN MIB STAGING_MIB [STEP]
//                                          into fresh files, or retired ones of the store of RUN; and the
//                                          best two-thread copy of the same bytes
//   bench_save small RUN COUNT             COUNT saves of 1 MiB: the fixed cost of one
//   bench_save ranks RUN MIB               under mpirun: MIB divided among the ranks, synchronous; rank 0 prints
//   bench_save load RUN MIB                what `save` wrote, into warm buffers
//   bench_save replicas RUN MIB WAY        under mpirun: every rank loads what `save` wrote, all of it, and prints;
//   WAY:
//                                          0 automatic, 1 each reads, 2 they divide and exchange
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "ckpt/ckpt.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kTensorBytes = std::size_t{64} << 20;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The value; ends the program with the reason if there is none.
template <class Value>
Value take(ckpt::Result<Value> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().json.c_str());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<Value>) return std::move(*result);
}

using State = std::vector<std::vector<std::byte>>;

std::string name_of(std::size_t tensor) {
  return "layers." + std::to_string(tensor) + ".weight";
}

State make_state(std::size_t mib, unsigned seed) {
  State state;
  std::uint64_t value = seed;
  for (std::size_t left = mib << 20; left > 0;) {
    const std::size_t bytes = std::min(left, kTensorBytes);
    auto& tensor = state.emplace_back(bytes);
    for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
      value = value * 6364136223846793005u + 1442695040888963407u;
      std::memcpy(tensor.data() + i, &value, 8);
    }
    left -= bytes;
  }
  return state;
}

ckpt::Model model_of(const State& state) {
  ckpt::Model model = take(ckpt::Model::on({{"dp", 1}}));
  for (std::size_t i = 0; i < state.size(); ++i) {
    take(model.tensor({.name = name_of(i), .dtype = "U8", .shape = {state[i].size()}}, {}));
  }
  return model;
}

ckpt::Run open(const std::string& directory, std::size_t staging_mib) {
  return take(ckpt::Run::open(directory, {.staging_memory = std::uint64_t{staging_mib} << 20}));
}

/// The best of a few ways to copy the state with two threads.
double best_copy(const State& state) {
  State copy;
  for (const auto& tensor : state) copy.emplace_back(tensor.size(), std::byte{1});
  double best = 1e9;
  for (const std::size_t block : {std::size_t{1} << 20, std::size_t{4} << 20, kTensorBytes}) {
    for (int round = 0; round < 3; ++round) {
      const auto start = Clock::now();
      const auto half = [&](std::size_t first) {
        for (std::size_t i = first; i < state.size(); i += 2) {
          for (std::size_t at = 0; at < state[i].size(); at += block) {
            std::memcpy(copy[i].data() + at, state[i].data() + at, std::min(block, state[i].size() - at));
          }
        }
      };
      std::thread other(half, 1);
      half(0);
      other.join();
      best = std::min(best, since(start));
    }
  }
  return best;
}

/// The work of a training step, for a few milliseconds: arithmetic on memory beyond the caches, one thread.
void train_step(std::vector<float>& weights) {
  for (float& weight : weights) weight = weight * 0.999F + 1e-6F;
}

int save(const std::string& directory, std::size_t mib, std::size_t staging_mib, std::uint64_t step) {
  const State state = make_state(mib, 1);
  ckpt::Run run = open(directory, staging_mib);
  take(run.set_model(model_of(state)));
  std::vector<float> weights(std::size_t{16} << 20, 1.0F);
  const auto start = Clock::now();
  ckpt::Save save = take(run.begin(step));
  const double begun = since(start);
  for (std::size_t i = 0; i < state.size(); ++i) take(save.add(name_of(i), state[i]));
  const auto commit = Clock::now();
  ckpt::Pending pending = take(save.commit());
  const double stall = since(commit);
  // Steps that follow while the save is written, then as many alone.
  const auto training = Clock::now();
  std::size_t steps = 0;
  for (; staging_mib != 0 && !take(pending.poll()); ++steps) train_step(weights);
  const double beside = since(training);
  take(pending.wait(std::chrono::minutes(10)));
  const double durable = since(start);
  const ckpt_stats stats = pending.stats();
  take(run.close());
  const auto rest = Clock::now();
  for (std::size_t i = 0; i < steps; ++i) train_step(weights);
  const double slower = steps == 0 ? 1 : beside / since(rest);
  const double copy = staging_mib == 0 ? 0 : best_copy(state);
  std::printf(
      "{\"durable_s\":%.4f,\"begin_s\":%.4f,\"commit_s\":%.4f,\"copy_s\":%.4f,\"stage_s\":%.4f,\"write_s\":%.4f,"
      "\"publish_s\":%.4f,"
      "\"steps_slower\":%.3f}\n",
      durable, begun, stall, copy, stats.stage_s, stats.write_s, stats.commit_s, slower);
  return 0;
}

int small(const std::string& directory, std::size_t count) {
  const State state = make_state(1, 1);
  ckpt::Run run = open(directory, 0);
  take(run.set_model(model_of(state)));
  std::vector<double> seconds;
  for (std::size_t step = 1; step <= count; ++step) {
    const auto start = Clock::now();
    ckpt::Save save = take(run.begin(step));
    for (std::size_t i = 0; i < state.size(); ++i) take(save.add(name_of(i), state[i]));
    ckpt::Pending pending = take(save.commit());
    take(pending.wait(std::chrono::minutes(1)));
    seconds.push_back(since(start));
  }
  std::sort(seconds.begin(), seconds.end());
  std::printf("{\"median_s\":%.5f,\"least_s\":%.5f}\n", seconds[seconds.size() / 2], seconds.front());
  return 0;
}

int ranks(const std::string& directory, std::size_t mib) {
  ckpt_comm_table comm{};
  if (ckpt_comm_world(&comm) != 0) {
    std::fprintf(stderr, "%s\n", ckpt_last_error_json());
    return 1;
  }
  const auto count = static_cast<std::uint64_t>(comm.ranks(comm.self));
  const bool first = comm.rank(comm.self) == 0;
  const State state = make_state(mib / count, 1);
  ckpt::Run run = take(ckpt::Run::open(directory, {.comm = comm}));
  ckpt::Model model = take(ckpt::Model::on({{"dp", count}}));
  for (std::size_t i = 0; i < state.size(); ++i) {
    take(model.tensor({.name = name_of(i), .dtype = "U8", .shape = {count * state[i].size()}},
                      {ckpt::Step::even(0, "dp")}));
  }
  take(run.set_model(model));
  double best = 1e9;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    take(run.should_save(step));  // barrier
    const auto start = Clock::now();
    ckpt::Save save = take(run.begin(step));
    for (std::size_t i = 0; i < state.size(); ++i) take(save.add(name_of(i), state[i]));
    ckpt::Pending pending = take(save.commit());
    take(pending.wait(std::chrono::minutes(10)));
    best = std::min(best, since(start));
  }
  take(run.close());
  if (first) std::printf("{\"ranks\":%llu,\"best_s\":%.4f}\n", static_cast<unsigned long long>(count), best);
  return 0;
}

int load(const std::string& directory, std::size_t mib) {
  const State wanted = make_state(mib, 1);
  State state;
  for (const auto& tensor : wanted) state.emplace_back(tensor.size(), std::byte{0});
  ckpt::Run run = open(directory, 0);
  std::vector<ckpt::Read> reads;
  for (std::size_t i = 0; i < state.size(); ++i) reads.push_back({.name = name_of(i), .out = state[i]});
  const auto start = Clock::now();
  const ckpt_load_report report = take(run.load(reads));
  const double seconds = since(start);
  const bool equal = state == wanted;
  std::printf("{\"load_s\":%.4f,\"read_bytes\":%llu,\"needed_bytes\":%llu,\"verified_leaves\":%llu,\"equal\":%s}\n",
              seconds, static_cast<unsigned long long>(report.read_bytes),
              static_cast<unsigned long long>(report.needed_bytes),
              static_cast<unsigned long long>(report.verified_leaves), equal ? "true" : "false");
  return equal ? 0 : 1;
}

int replicas(const std::string& directory, std::size_t mib, int way) {
  ckpt_comm_table comm{};
  if (ckpt_comm_world(&comm) != 0) {
    std::fprintf(stderr, "%s\n", ckpt_last_error_json());
    return 1;
  }
  const auto count = static_cast<std::uint64_t>(comm.ranks(comm.self));
  State state;
  for (std::size_t left = mib << 20; left > 0; left -= state.back().size()) {
    state.emplace_back(std::min(left, kTensorBytes), std::byte{1});
  }
  ckpt::Run run = take(ckpt::Run::open(directory, {.comm = comm, .replicas = way}));
  ckpt::Model model = take(ckpt::Model::on({{"dp", count}}));
  std::vector<ckpt::Read> reads;
  for (std::size_t i = 0; i < state.size(); ++i) {
    take(model.tensor({.name = name_of(i), .dtype = "U8", .shape = {state[i].size()}}, {}));
    reads.push_back({.name = name_of(i), .out = state[i]});
  }
  take(run.set_model(model));
  take(run.should_save(1));  // barrier
  const auto start = Clock::now();
  const ckpt_load_report report = take(run.load(reads));
  const double seconds = since(start);
  take(run.close());
  std::printf("{\"load_s\":%.4f,\"needed_bytes\":%llu,\"read_bytes\":%llu,\"received_bytes\":%llu}\n", seconds,
              static_cast<unsigned long long>(report.needed_bytes), static_cast<unsigned long long>(report.read_bytes),
              static_cast<unsigned long long>(report.received_bytes));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if ((words.size() == 4 || words.size() == 5) && words[0] == "save") {
    const std::uint64_t step = words.size() == 5 ? std::stoull(words[4]) : 1;
    return save(words[1], std::stoul(words[2]), std::stoul(words[3]), step);
  }
  if (words.size() == 3 && words[0] == "ranks") return ranks(words[1], std::stoul(words[2]));
  if (words.size() == 3 && words[0] == "small") return small(words[1], std::stoul(words[2]));
  if (words.size() == 3 && words[0] == "load") return load(words[1], std::stoul(words[2]));
  if (words.size() == 4 && words[0] == "replicas") return replicas(words[1], std::stoul(words[2]), std::stoi(words[3]));
  std::fprintf(stderr,
               "usage: bench_save save RUN MIB STAGING_MIB [STEP] | small RUN COUNT | ranks RUN MIB | load RUN MIB | "
               "replicas RUN MIB WAY\n");
  return 2;
}
