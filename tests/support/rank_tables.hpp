#pragma once

#include <functional>

#include "ckpt/comm.h"

namespace ckpt::test {

/// Runs `body` on threads that are the ranks of one job, each with its table: for tests that include nothing of the
/// project but its public headers.
void on_rank_tables(int ranks, const std::function<void(int rank, const ckpt_comm_table& table)>& body);

}  // namespace ckpt::test
