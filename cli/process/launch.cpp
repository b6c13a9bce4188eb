#include "cli/process/launch.hpp"

#include <cstdlib>
#include <limits>
#include <string_view>

#include "cli/text/units.hpp"
#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

std::optional<int> number(const Environment& environment, const std::string& name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  const auto value = parse_count(*text, 0, static_cast<std::uint64_t>(std::numeric_limits<int>::max()));
  if (!value) return std::nullopt;
  return static_cast<int>(*value);
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
  };
}

Launch find_launch(const Environment& environment) {
  Launch out;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const auto size = number(environment, name);
    if (!size || *size < 1) continue;
    out.ranks = *size;
    out.seen = std::string(name) + "=" + std::to_string(*size);
    break;
  }
  if (out.seen.empty() && number(environment, "PMIX_RANK")) {
    out.ranks = 0;
    out.seen = "PMIX_RANK=" + *environment("PMIX_RANK");
  }
  if (!out.active()) return out;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const auto rank = number(environment, name);
    if (!rank) continue;
    out.rank = *rank;
    break;
  }
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    const auto rank = number(environment, name);
    if (!rank) continue;
    out.local_rank = *rank;
    break;
  }
  out.is_on_one_machine = number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE") == out.ranks;
  return out;
}

void skip_networks(const Launch& launch) {
  if (launch.is_on_one_machine) setenv("OMPI_MCA_pml", "ob1", 0);
}

}  // namespace ckpt::cli
