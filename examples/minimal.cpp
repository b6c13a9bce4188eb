// The smallest trainer that uses ckpt: one parameter, split by rows over any number of ranks, as FSDP does.
// examples/trainer.cpp is a complete training loop.
//
//   mpirun -n 4 minimal RUN STEPS
#include <ckpt/ckpt.hpp>
#include <ckpt/mpi.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

void train_one_step(std::vector<float>& part) {
  for (float& value : part) value += 1;
}

/// Returns the first error. A save that fails in the background does not stop training; close() reports it.
ckpt::Result<> train(const std::string& directory, std::uint64_t steps, std::uint64_t ranks, std::uint64_t rank) {
  const std::uint64_t rows = 1000, columns = 64;

  auto run =
      ckpt::Run::open(directory, {.comm = ckpt::mpi(MPI_COMM_WORLD),
                                  .staging_memory = std::uint64_t{256} << 20,  // a save is copied here, then written
                                  .every_steps = 100,
                                  .catch_signals = true});  // SIGTERM, SIGUSR1: save and stop
  if (!run) return tl::unexpected(run.error());

  // Which rank holds what; the same on all ranks.
  auto model = ckpt::Model::on({{"dp", ranks}});
  if (!model) return tl::unexpected(model.error());
  if (auto declared = model->tensor({.name = "w", .shape = {rows, columns}}, {ckpt::Step::chunk(0, "dp")}); !declared)
    return declared;
  if (auto declared = run->set_model(*model); !declared) return declared;
  std::vector<float> part(model->part_bytes("w", rank).value_or(0) / sizeof(float));

  // The newest checkpoint that verifies, saved on any number of ranks.
  std::uint64_t step = 0;
  const std::vector<ckpt::Read> reads{{.name = "w", .out = std::as_writable_bytes(std::span(part))}};
  if (auto newest = run->latest_usable()) {
    auto loaded = run->load(reads);
    if (!loaded) return tl::unexpected(loaded.error());
    step = loaded->step;
  } else if (newest.error().code != 10) {  // 10: no checkpoint yet
    return tl::unexpected(newest.error());
  }

  while (step < steps && !run->stop_requested()) {
    train_one_step(part);
    auto due = run->should_save(++step);
    if (!due) return tl::unexpected(due.error());
    if (!*due) continue;
    auto save = run->begin(step);
    if (!save) return tl::unexpected(save.error());
    if (auto added = save->add("w", part); !added) return added;
    auto pending = save->commit();  // copied: `part` may change while the disk is written
    if (!pending) return tl::unexpected(pending.error());
  }
  return run->close();  // waits for the last save; fails if any save failed
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int ranks = 1;
  int rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
  const auto trained = train(argv[1], std::strtoull(argv[2], nullptr, 10), static_cast<std::uint64_t>(ranks),
                             static_cast<std::uint64_t>(rank));
  if (!trained) {
    std::fprintf(stderr, "minimal: %s\n", trained.error().json.c_str());
    MPI_Abort(MPI_COMM_WORLD, trained.error().code);
  }
  MPI_Finalize();
  return 0;
}
