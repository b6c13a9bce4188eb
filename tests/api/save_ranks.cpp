// One rank of a job for tests that break it under MPI: saves steps of a small model whose layout follows the number of
// ranks, or loads the newest and compares every value. Each rank prints what came of every step:
//
//   save_ranks save RUN IO FROM TO [--rank R] [--at N] [--do kill|fill|slow] [--patience S] [--forbid-rings]
//   save_ranks load RUN IO
//
// `--do` happens on rank R to operation N, counted from the first save on, of its I/O: killed there; no space there and
// from there on, until the step has ended; every operation takes 20 ms longer.
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/fault_io.hpp"
#include "support/forbid_call.hpp"
#include "support/training_job.hpp"

namespace ckpt::test {
namespace {

void say(int rank, const std::string& text) {
  std::fputs(fmt::format("rank {}: {}\n", rank, text).c_str(), stdout);
  std::fflush(stdout);
}

struct Words {
  std::string verb;
  std::string run;
  IoKind io = IoKind::automatic;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::map<std::string, std::string> flags;

  std::uint64_t number(const std::string& flag, std::uint64_t otherwise) const {
    const auto at = flags.find(flag);
    return at == flags.end() ? otherwise : std::stoull(at->second);
  }
};

void break_here(const Words& words, const std::shared_ptr<FaultPlan>& plan) {
  const std::string what = words.flags.contains("--do") ? words.flags.at("--do") : "";
  const std::uint64_t n = plan->operation_count() + words.number("--at", 0);
  if (what == "kill") plan->call_at(n, [] { ::kill(::getpid(), SIGKILL); });
  if (what == "fill") plan->fail_from(n, Errc::no_space);
  if (what == "slow") plan->slow_down(std::chrono::milliseconds(20));
}

std::string told(const Result<>& done) {
  return done ? "saved" : fmt::format("{} {}", exit_code(done.error()), done.error().message);
}

/// The least layout that any number of ranks has: every tensor replicated, the optimizer divided as with ZeRO 1.
int save(Run& run, const Words& words, const std::shared_ptr<FaultPlan>& plan) {
  break_here(words, plan);
  for (std::uint64_t step = words.from; step <= words.to; ++step) {
    const auto done = save_step(run, step);
    say(run.rank(), fmt::format("step {}: {}", step, told(done)));
    plan->clear();
  }
  if (!run.ranks_lost()) return 0;
  const auto next = run.should_save(words.to + 1);
  say(run.rank(), fmt::format("next call: {}", next ? "as if nothing was" : told(fail(next.error()))));
  return 16;
}

int load(Run& run) {
  const auto step = load_all(run);
  say(run.rank(), step ? fmt::format("loaded {}", *step) : fmt::format("not loaded: {}", step.error().message));
  return step ? 0 : exit_code(step.error());
}

int run(const Words& words) {
  auto table = load_mpi_table();
  if (!table) {
    std::fputs((table.error().message + "\n").c_str(), stderr);
    return 2;
  }
  auto comm = std::make_unique<Comm>(*table);
  const int rank = comm->rank();
  const auto ranks = static_cast<std::uint64_t>(comm->ranks());
  if (words.flags.contains("--forbid-rings") && !forbid_call(SYS_io_uring_setup, EPERM)) return 77;
  const auto plan = std::make_shared<FaultPlan>();
  auto io = open_io(words.io, 8);
  if (io && words.number("--rank", 0) == static_cast<std::uint64_t>(rank)) *io = make_fault_io(std::move(*io), plan);
  auto run = Run::open(std::move(io), std::move(comm), words.run,
                       {.staging_bytes = 64U << 20, .patience = std::chrono::seconds(words.number("--patience", 60))});
  if (!run) {
    say(rank, "open: " + told(fail(run.error())));
    return exit_code(run.error());
  }
  auto model = model_of({.dp = ranks, .zero = 1});
  if (!model) return 1;
  (*run)->set_model(std::move(*model));
  const int code = words.verb == "load" ? load(**run) : save(**run, words, plan);
  run->reset();
  return code;
}

}  // namespace
}  // namespace ckpt::test

int main(int argc, char** argv) {
  using namespace ckpt;
  const std::vector<std::string> given(argv + 1, argv + argc);
  test::Words words;
  const std::size_t fixed = !given.empty() && given[0] == "save" ? 5 : 3;
  if (given.size() < fixed) return 2;
  words.verb = given[0];
  words.run = given[1];
  words.io = given[2] == "uring" ? IoKind::uring : given[2] == "threads" ? IoKind::threads : IoKind::automatic;
  if (fixed == 5) {
    words.from = std::stoull(given[3]);
    words.to = std::stoull(given[4]);
  }
  for (std::size_t i = fixed; i < given.size(); ++i) {
    const bool has_value = given[i] != "--forbid-rings" && i + 1 < given.size();
    words.flags[given[i]] = has_value ? given[i + 1] : "";
    if (has_value) ++i;
  }
  return test::run(words);
}
