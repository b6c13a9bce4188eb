#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ckpt::cli {

/// Reads the environment; tests pass their own. Nothing if a variable is unset or empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

/// What the environment says about an MPI launch. Uses no MPI library.
struct Launch {
  int ranks = 1;  ///< 0 = launched, but the environment does not say how many
  int rank = 0;
  int local_rank = 0;
  bool is_on_one_machine = false;  ///< Open MPI says that no rank is on another one
  std::string seen{};              ///< the variable that says so: "OMPI_COMM_WORLD_SIZE=4"
  bool active() const { return ranks != 1; }
};

/// A launch is a world of more than one: OMPI_COMM_WORLD_SIZE, PMI_SIZE or SLURM_STEP_NUM_TASKS above 1, or
/// PMIX_RANK without any of these.
Launch find_launch(const Environment& environment);

/// Before MPI starts: Open MPI looks for every kind of network, which takes 0.2 s, also on one machine, whose ranks use shared
/// memory. There it leaves that out, unless the user has chosen otherwise (OMPI_MCA_pml).
void skip_networks(const Launch& launch);

}  // namespace ckpt::cli
