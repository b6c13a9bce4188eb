// Adam over optimizer state four times larger than the memory allowed: while one group is updated, the next one is read
// and the one before is written.
//
//   offload_adam DIRECTORY [--memory MIB] [--steps N] [--io uring|threads] [--check]
//
// The fp32 masters and both moments of each parameter are in the store; gradients are generated, in place of a backward
// pass. The state is divided into groups, like DeepSpeed's sub-groups, so that four of them fit in memory: the one
// being updated, the next, and the last two, which are being written.
//   for each group:  prefetch the next  ->  get this one  ->  update it  ->  put it (written behind)
// --check runs the same steps entirely in memory and compares every bit.
#include <algorithm>
#include <chrono>
#include <ckpt/offload.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Floats = std::vector<float>;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Group {
  Floats master, exp_avg, exp_avg_sq;
  explicit Group(std::size_t count) : master(count), exp_avg(count), exp_avg_sq(count) {}
};

/// A value in [-1, 1) for a parameter and a step, independent of the order of calls.
float value_of(std::uint64_t parameter, std::uint64_t step) {
  std::uint64_t x = parameter * 0x9e3779b97f4a7c15U + step * 0xd1b54a32d192ed03U + 0x632be59bd9b4e019U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return static_cast<float>(static_cast<std::int32_t>(x >> 40) - (1 << 23)) / static_cast<float>(1 << 23);
}

/// One step of Adam (torch.optim.Adam without weight decay) on a group.
void update(Group& group, std::uint64_t first_parameter, unsigned step) {
  constexpr float kRate = 1e-3F;
  constexpr float kBeta1 = 0.9F;
  constexpr float kBeta2 = 0.999F;
  constexpr float kEpsilon = 1e-8F;
  const float correction1 = 1 - std::pow(kBeta1, static_cast<float>(step));
  const float correction2 = std::sqrt(1 - std::pow(kBeta2, static_cast<float>(step)));
  for (std::size_t i = 0; i < group.master.size(); ++i) {
    const float gradient = value_of(first_parameter + i, step);
    group.exp_avg[i] += (gradient - group.exp_avg[i]) * (1 - kBeta1);
    group.exp_avg_sq[i] = group.exp_avg_sq[i] * kBeta2 + gradient * gradient * (1 - kBeta2);
    const float denominator = std::sqrt(group.exp_avg_sq[i]) / correction2 + kEpsilon;
    group.master[i] -= kRate / correction1 * (group.exp_avg[i] / denominator);
  }
}

Group initial_group(std::size_t index, std::size_t count) {
  Group group(count);
  for (std::size_t i = 0; i < count; ++i) group.master[i] = value_of(index * count + i, 0);
  return group;
}

/// Ends the program with the exit code of a failure.
void must(const ckpt::Result<>& result) {
  if (result) return;
  std::fprintf(stderr, "offload_adam: %s\n", result.error().json.c_str());
  std::exit(result.error().code);
}

std::string name_of(std::size_t group, const char* slot) {
  return "group" + std::to_string(group) + "." + slot;
}

template <class Call>
void for_each_slot(std::size_t index, Group& group, Call call) {
  call(name_of(index, "master"), group.master);
  call(name_of(index, "exp_avg"), group.exp_avg);
  call(name_of(index, "exp_avg_sq"), group.exp_avg_sq);
}

void put(ckpt::Offload& offload, std::size_t index, Group& group) {
  for_each_slot(index, group, [&](const std::string& name, Floats& slot) {
    must(offload.put(name, std::as_bytes(std::span(slot))));
  });
}

void get(ckpt::Offload& offload, std::size_t index, Group& group) {
  for_each_slot(index, group, [&](const std::string& name, Floats& slot) {
    must(offload.get(name, std::as_writable_bytes(std::span(slot))));
  });
}

void prefetch(ckpt::Offload& offload, std::size_t index, Group& group) {
  for_each_slot(index, group, [&](const std::string& name, Floats&) { must(offload.prefetch(name)); });
}

constexpr std::size_t kGroups = 16;

struct Seconds {
  double total = 0;
  double updates = 0;
};

/// All groups once per step; without updates it measures the transfers alone.
Seconds run_steps(ckpt::Offload& offload, Group& group, unsigned steps, bool updates) {
  Seconds out;
  const Clock::time_point begin = Clock::now();
  for (unsigned step = 1; step <= steps; ++step) {
    for (std::size_t i = 0; i < kGroups; ++i) {
      prefetch(offload, (i + 1) % kGroups, group);
      get(offload, i, group);
      const Clock::time_point at = Clock::now();
      if (updates) update(group, i * group.master.size(), step);
      out.updates += since(at);
      put(offload, i, group);
    }
  }
  must(offload.flush());
  out.total = since(begin);
  return out;
}

struct Options {
  std::string directory;
  std::size_t memory_bytes = 256U << 20;
  unsigned steps = 3;
  std::string io = "auto";
  bool check = false;
};

bool read_arguments(int argc, char** argv, Options& out) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool more = i + 1 < argc;
    if (word == "--check") {
      out.check = true;
    } else if (word == "--memory" && more) {
      out.memory_bytes = std::strtoull(argv[++i], nullptr, 10) << 20;
    } else if (word == "--steps" && more) {
      out.steps = static_cast<unsigned>(std::strtoul(argv[++i], nullptr, 10));
    } else if (word == "--io" && more) {
      out.io = argv[++i];
    } else if (out.directory.empty() && !word.starts_with("--")) {
      out.directory = word;
    } else {
      return false;
    }
  }
  return !out.directory.empty() && out.memory_bytes >= (8U << 20) && out.steps > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!read_arguments(argc, argv, options)) {
    std::fprintf(stderr, "usage: offload_adam DIRECTORY [--memory MIB] [--steps N] [--io uring|threads] [--check]\n");
    return 2;
  }
  constexpr std::size_t kSlots = 3;
  const std::size_t buffer_bytes = options.memory_bytes >= (256U << 20) ? 4U << 20 : 256U << 10;
  // A slot fills whole buffers, and sixteen groups are at least four times the memory.
  const std::size_t quarter = options.memory_bytes / (4 * kSlots);
  const std::size_t slot_bytes = (quarter + buffer_bytes - 1) / buffer_bytes * buffer_bytes;
  const std::size_t count = slot_bytes / sizeof(float);
  const std::size_t state_bytes = kGroups * kSlots * slot_bytes;
  auto opened = ckpt::Offload::open({.directory = options.directory,
                                     .memory_bytes = options.memory_bytes,
                                     .buffer_bytes = buffer_bytes,
                                     .io = options.io});
  if (!opened) must(tl::unexpected(opened.error()));
  ckpt::Offload& offload = *opened;

  for (std::size_t i = 0; i < kGroups; ++i) {
    Group group = initial_group(i, count);
    put(offload, i, group);
  }
  must(offload.flush());

  Group group(count);
  const Seconds transfers = run_steps(offload, group, options.steps, false);
  const auto before = offload.stats();
  const Seconds both = run_steps(offload, group, options.steps, true);

  const auto after = offload.stats();
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const double moved = mib(after.read_bytes - before.read_bytes) + mib(after.written_bytes - before.written_bytes);
  std::printf("state %.0f MiB in %zu groups, memory %.0f MiB, %u steps\n", mib(state_bytes), kGroups,
              mib(after.peak_memory_bytes), options.steps);
  const auto hits = static_cast<unsigned long long>(after.hits - before.hits);
  std::printf("moved %.0f MiB in %.3f s: %.0f MiB/s; %llu of %llu gets found all read ahead\n", moved, both.total,
              moved / both.total, hits, hits + static_cast<unsigned long long>(after.misses - before.misses));
  // Without overlap the times would add up.
  const double hidden = transfers.total + both.updates - both.total;
  const double shorter = std::min(transfers.total, both.updates);
  std::printf("transfers alone %.3f s, updates %.3f s, together %.3f s: %.0f %% of the shorter is hidden\n",
              transfers.total, both.updates, both.total, 100 * std::clamp(hidden / shorter, 0.0, 1.0));
  if (after.peak_memory_bytes > options.memory_bytes || state_bytes < 4 * options.memory_bytes) {
    std::fprintf(stderr, "offload_adam: the state is not four times the memory\n");
    return 1;
  }
  if (!options.check) return 0;

  for (std::size_t i = 0; i < kGroups; ++i) {
    Group wanted = initial_group(i, count);
    for (unsigned step = 1; step <= options.steps; ++step) update(wanted, i * count, step);
    get(offload, i, group);
    const auto equal = [&](const Floats& a, const Floats& b) {
      return std::memcmp(a.data(), b.data(), slot_bytes) == 0;
    };
    if (!equal(group.master, wanted.master) || !equal(group.exp_avg, wanted.exp_avg) ||
        !equal(group.exp_avg_sq, wanted.exp_avg_sq)) {
      std::fprintf(stderr, "offload_adam: group %zu differs from the same steps in memory\n", i);
      return 1;
    }
  }
  std::printf("equal bit for bit to the same steps in memory\n");
  return 0;
}
