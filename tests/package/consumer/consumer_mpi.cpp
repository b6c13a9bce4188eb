// The installed library on the ranks of MPI: consumer DIRECTORY. Each saves a row of a tensor and loads the whole.
#include <ckpt/ckpt.hpp>
#include <ckpt/mpi.hpp>
#include <cstdio>
#include <vector>

namespace {

ckpt::Result<bool> round_trip(const std::string& directory, std::uint64_t rank, std::uint64_t ranks) {
  const std::vector<std::uint64_t> saved{rank + 1};
  std::vector<std::uint64_t> loaded(ranks);
  auto run = ckpt::Run::open(directory, {.comm = ckpt::mpi(MPI_COMM_WORLD)});
  if (!run) return tl::unexpected(run.error());
  auto model = ckpt::Model::on({{"tp", ranks}});
  if (!model) return tl::unexpected(model.error());
  auto declared = model->tensor({.name = "w", .dtype = "U64", .shape = {ranks}}, {ckpt::Step::even(0, "tp")});
  if (!declared) return tl::unexpected(declared.error());
  if (auto done = run->set_model(*model); !done) return tl::unexpected(done.error());
  auto save = run->begin(1);
  if (!save) return tl::unexpected(save.error());
  if (auto done = save->add("w", saved); !done) return tl::unexpected(done.error());
  auto pending = save->commit();
  if (!pending) return tl::unexpected(pending.error());
  if (auto done = pending->wait(std::chrono::minutes(1)); !done) return tl::unexpected(done.error());
  const std::vector<ckpt::Read> reads{
      {.name = "w", .offset = {0}, .extent = {ranks}, .out = std::as_writable_bytes(std::span(loaded))}};
  auto report = run->load(reads);
  if (!report) return tl::unexpected(report.error());
  for (std::uint64_t i = 0; i < ranks; ++i) {
    if (loaded[i] != i + 1) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto equal = round_trip(argv[1], static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(ranks));
  if (!equal) std::fprintf(stderr, "%s\n", equal.error().json.c_str());
  MPI_Finalize();
  if (!equal || !*equal) return 1;
  if (rank == 0) std::puts("saved and loaded");
  return 0;
}
