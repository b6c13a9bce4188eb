#include "convert/dcp/writer.hpp"

#include <utility>

#include "convert/dcp/state_entries.hpp"
#include "convert/dcp_target.hpp"

namespace ckpt::dcp {

Result<Skeleton> lay_out(const WriteRequest& request) {
  CKPT_TRY(StateEntries state, state_entries(request));
  return lay_out_entries(request, std::move(state), {.ranks = ranks_of(request)});
}

}  // namespace ckpt::dcp
