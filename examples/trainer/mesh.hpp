#pragma once

// The ranks of a job as a mesh, pipeline stages outermost: rank = (pp * dp_size + dp) * tp_size + tp.
#include <mpi.h>

/// MPI's handles live until MPI_Finalize.
struct Mesh {
  int rank = 0;
  int pp_size = 1, dp_size = 1, tp_size = 1;
  int pp = 0, dp = 0, tp = 0;
  MPI_Comm data = MPI_COMM_NULL;    ///< ranks that hold the same parameters, or parts of the same
  MPI_Comm tensor = MPI_COMM_NULL;  ///< ranks that hold slices of the same layers
  MPI_Comm stages = MPI_COMM_NULL;  ///< ranks that a micro-batch passes through

  /// The sizes' product must be the number of ranks.
  static Mesh make(int pp_size, int dp_size, int tp_size) {
    Mesh mesh{.pp_size = pp_size, .dp_size = dp_size, .tp_size = tp_size};
    MPI_Comm_rank(MPI_COMM_WORLD, &mesh.rank);
    mesh.tp = mesh.rank % tp_size;
    mesh.dp = mesh.rank / tp_size % dp_size;
    mesh.pp = mesh.rank / tp_size / dp_size;
    MPI_Comm_split(MPI_COMM_WORLD, mesh.pp * tp_size + mesh.tp, mesh.dp, &mesh.data);
    MPI_Comm_split(MPI_COMM_WORLD, mesh.pp * dp_size + mesh.dp, mesh.tp, &mesh.tensor);
    MPI_Comm_split(MPI_COMM_WORLD, mesh.dp * tp_size + mesh.tp, mesh.pp, &mesh.stages);
    return mesh;
  }
  bool is_first_stage() const { return pp == 0; }
  bool is_last_stage() const { return pp == pp_size - 1; }
};
