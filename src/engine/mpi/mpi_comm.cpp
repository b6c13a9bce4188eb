// The plug-in: ckpt/mpi.hpp compiled once, over MPI_COMM_WORLD, for programs that are not linked to MPI.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "ckpt/mpi.hpp"

namespace {

/// Open MPI looks for every kind of network as it starts, which takes 0.2 s. Ranks of one machine need none: they are left
/// the component that uses shared memory, unless the user has chosen one.
void start_without_networks() {
  const char* all = std::getenv("OMPI_COMM_WORLD_SIZE");
  const char* here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (all != nullptr && here != nullptr && std::strcmp(all, here) == 0) setenv("OMPI_MCA_pml", "ob1", 0);
}

}  // namespace

/// Initialises MPI if the program has not, and fills `table`. 0 on success. Collective.
extern "C" __attribute__((visibility("default"))) int ckpt_mpi_open(ckpt_comm_table* table) {
  auto mine = std::unique_ptr<ckpt::mpi_detail::MpiRanks>(new (std::nothrow) ckpt::mpi_detail::MpiRanks);
  if (!mine) return 1;
  int initialised = 0;
  MPI_Initialized(&initialised);
  if (initialised == 0) {
    start_without_networks();
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
