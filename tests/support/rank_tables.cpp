#include "support/rank_tables.hpp"

#include "support/thread_comm.hpp"

namespace ckpt::test {

void on_rank_tables(int ranks, const std::function<void(int rank, const ckpt_comm_table& table)>& body) {
  ThreadRanks(ranks).run_tables([&](const ckpt_comm_table& table) { body(table.rank(table.self), table); });
}

}  // namespace ckpt::test
