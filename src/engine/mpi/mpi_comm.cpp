// The plug-in: ckpt/mpi.hpp compiled once, over MPI_COMM_WORLD, for programs that are not linked to MPI.
#include <memory>
#include <new>
#include <utility>

#include "ckpt/mpi.hpp"

/// Initialises MPI if the program has not, and fills `table`. 0 on success. Collective.
extern "C" __attribute__((visibility("default"))) int ckpt_mpi_open(ckpt_comm_table* table) {
  auto mine = std::unique_ptr<ckpt::mpi_detail::MpiRanks>(new (std::nothrow) ckpt::mpi_detail::MpiRanks);
  if (!mine) return 1;
  int initialised = 0;
  MPI_Initialized(&initialised);
  if (initialised == 0) {
    int provided = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) return 1;
    mine->initialised_here = true;
  }
  if (!ckpt::mpi_detail::duplicate(MPI_COMM_WORLD, *mine)) {
    static_cast<void>(mine.release());
    return 1;
  }
  *table = ckpt::mpi_detail::table_of(std::move(mine));
  return 0;
}
