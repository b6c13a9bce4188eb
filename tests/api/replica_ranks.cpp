// One rank of mpi_replicas_test, started by mpirun: replica_ranks SCENARIO RUN. Saves as DP 2 x TP 2 and loads as that.
// Prints a line "rank R: ..."; its exit code is the scenario's outcome.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

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

/// The rank's bytes, as it asked for them.
Result<LoadReport> load_parts(Store& store) {
  const auto rank = static_cast<std::uint64_t>(store.rank());
  std::vector<std::vector<std::byte>> memory;
  std::vector<NamedRead> reads;
  for (const auto& row : store.model().rows) {
    memory.emplace_back(part_of(store.model(), row, rank, 0).size());
    reads.push_back({.name = row.tensor.name, .out = memory.back().data(), .bytes = memory.back().size()});
  }
  CKPT_TRY(const Store::Loaded loaded, store.load(reads, false));
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (memory[i] != part_of(store.model(), store.model().rows[i], rank, loaded.step)) {
      return fail(Errc::internal, reads[i].name + ": other values than were saved");
    }
  }
  return loaded.report.load;
}

int run(const std::string& scenario, const std::string& directory) {
  auto table = load_mpi_table();
  if (!table) return say(99, table.error().message);
  my_rank = table->rank(table->self);
  const bool dies = scenario == "one_is_killed" && my_rank == 2;
  if (dies) table->start_send = send_and_die;
  const bool loses = scenario == "one_is_killed";
  auto store = Store::open(open_io(IoKind::automatic, 8), std::make_unique<Comm>(*table), directory,
                           {.patience = loses ? 10s : 60s, .replicas = Replicas::exchange});
  if (!store) return say(98, store.error().message);
  (*store)->set_model(*model_of({.dp = 2, .tp = 2}));
  if (const auto saved = save_step(**store, 1); !saved) return say(97, saved.error().message);
  const auto report = load_parts(**store);
  if (!report) return say(exit_code(report.error()), report.error().message);
  return say(0, "needed " + std::to_string(report->needed_bytes) + " received " +
                    std::to_string(report->received_bytes) + " end");
}

}  // namespace
}  // namespace ckpt::test

int main(int argc, char** argv) {
  return argc == 3 ? ckpt::test::run(argv[1], argv[2]) : 96;
}
