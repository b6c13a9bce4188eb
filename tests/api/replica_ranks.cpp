// One rank of mpi_replicas_test, started by mpirun: replica_ranks SCENARIO RUN. Saves as DP 2 x TP 2 and loads as that.
// Prints a line "rank R: ..."; its exit code is the scenario's outcome.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "support/training_job.hpp"

namespace ckpt::test {
namespace {

using namespace std::chrono_literals;

int my_rank = -1;

int say(int code, const std::string& text) {
  const std::string line = "rank " + std::to_string(my_rank) + ": " + text + "\n";
  static_cast<void>(!::write(STDOUT_FILENO, line.data(), line.size()));
  return code;
}

void* send_and_die(void*, const void*, std::uint64_t, int) {
  static_cast<void>(::raise(SIGKILL));
  return nullptr;
}

int run(const std::string& scenario, const std::string& directory) {
  auto table = load_mpi_table();
  if (!table) return say(99, table.error().message);
  my_rank = table->rank(table->self);
  const bool dies = scenario == "one_is_killed" && my_rank == 2;
  if (dies) table->start_send = send_and_die;
  const bool loses = scenario == "one_is_killed";
  auto run = Run::open(open_io(IoKind::automatic, 8), std::make_unique<Comm>(*table), directory,
                       {.patience = loses ? 10s : 60s, .replicas = Replicas::exchange});
  if (!run) return say(98, run.error().message);
  (*run)->set_model(*model_of({.dp = 2, .tp = 2}));
  if (const auto saved = save_step(**run, 1); !saved) return say(97, saved.error().message);
  const auto loaded = load_parts(**run);
  if (!loaded) return say(exit_code(loaded.error()), loaded.error().message);
  const ReadReport& report = loaded->report.load;
  return say(0, "needed " + std::to_string(report.needed_bytes) + " received " + std::to_string(report.received_bytes) +
                    " end");
}

}  // namespace
}  // namespace ckpt::test

int main(int argc, char** argv) {
  return argc == 3 ? ckpt::test::run(argv[1], argv[2]) : 96;
}
