/* How the ranks of a job talk to each other: a table of functions over the trainer's own communicator, so that no
 * library here names an MPI. C and C++; include/ckpt/mpi.hpp fills one from an MPI_Comm. */
#ifndef CKPT_COMM_H
#define CKPT_COMM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `size` is sizeof(ckpt_comm_table) of the writer, so that later members can be added. Nothing blocks: start_* returns
 * a request, or null on failure; test returns 1 when done, 0 when not, -1 on failure, and frees the request unless it
 * returns 0; abandon gives a request up without waiting (its buffers stay alive until process end). Buffers belong to
 * the request until it is done. Collectives are started in the same order on all ranks, one in flight. `close` releases
 * `self` and must return even when a rank is gone: after a failed or abandoned request it may not wait for the others.
 *
 * Members after `close` came later: a table of an older trainer ends before them, and null says the same. */
typedef struct ckpt_comm_table {
  uint64_t size;
  void* self;
  int (*rank)(void* self);
  int (*ranks)(void* self);
  int (*local_ranks)(void* self);                                   /* ranks on this node */
  void* (*start_max)(void* self, uint64_t* values, uint64_t count); /* in place, on all ranks */
  /* Fixed-size gather: rank 0 receives ranks * bytes into `out`; others pass null. */
  void* (*start_gather)(void* self, const void* data, uint64_t bytes, void* out);
  void* (*start_broadcast)(void* self, void* data, uint64_t bytes); /* from rank 0 */
  int (*test)(void* self, void* request);
  void (*abandon)(void* self, void* request);
  const char* (*library)(void* self);
  void (*close)(void* self);
  /* A message between two different ranks, who both name its bytes, alike. Those of one pair arrive in the order in
   * which both have started them; several may be in flight, beside a collective too. Without these two every rank reads
   * by itself what others hold as well. */
  void* (*start_send)(void* self, const void* data, uint64_t bytes, int to);
  void* (*start_receive)(void* self, void* data, uint64_t bytes, int from);
} ckpt_comm_table;

#ifdef __cplusplus
}
#endif
#endif
