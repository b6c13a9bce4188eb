// One rank of mpi_comm_test, started by mpirun: rank 1 opens its communicator after the others' patience has ended.
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "ckpt/mpi.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(4));
  auto mine = std::make_unique<ckpt::mpi_detail::MpiRanks>();
  const bool opened = ckpt::mpi_detail::duplicate(MPI_COMM_WORLD, *mine, std::chrono::seconds(1));
  static_cast<void>(mine.release());  // MPI may still write into it
  std::printf(opened ? "opened\n" : "given up\n");
  std::fflush(stdout);
  MPI_Finalize();
  return 0;
}
