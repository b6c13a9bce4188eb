/* How the ranks of a job communicate: a table of functions over the trainer's own communicator, so that libckpt depends
 * on no MPI library. ckpt/mpi.hpp fills one from an MPI_Comm; other transports can fill one themselves. C and C++. */
#ifndef CKPT_COMM_H
#define CKPT_COMM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `size` is sizeof(ckpt_comm_table) of the program that fills the table; every function gets `self`. start_* begins an
 * operation and returns a request, or null on failure; test returns 1 when it is done, 0 if not yet, -1 if it failed,
 * and frees it unless it returns 0; abandon gives it up without waiting. Only close may block: it releases `self`, and
 * after a failed or abandoned request must not wait for other ranks. A request owns its buffers until it is done, an
 * abandoned one until the process ends. Collectives are started in the same order on all ranks, one in flight. All
 * calls come from the thread that calls libckpt. The members after close were added later: an older table ends before
 * them, or sets them to null. */
typedef struct ckpt_comm_table {
  uint64_t size;
  void* self;
  int (*rank)(void* self);
  int (*ranks)(void* self);
  int (*local_ranks)(void* self);                                   /* ranks on this node */
  void* (*start_max)(void* self, uint64_t* values, uint64_t count); /* all-reduce: element-wise maximum, in place */
  /* Rank 0 receives ranks * bytes into `out`, in the order of ranks; other ranks pass null. */
  void* (*start_gather)(void* self, const void* data, uint64_t bytes, void* out);
  void* (*start_broadcast)(void* self, void* data, uint64_t bytes); /* from rank 0 */
  int (*test)(void* self, void* request);
  void (*abandon)(void* self, void* request);
  const char* (*library)(void* self); /* name and version, for reports; valid until close */
  void (*close)(void* self);
  /* A message between two different ranks; both pass the same number of bytes. Messages of a pair are matched in the
   * order in which they were started. Several may be in flight, also next to a collective. Without these two functions
   * loads do not exchange replicas: every rank reads its own. */
  void* (*start_send)(void* self, const void* data, uint64_t bytes, int to);
  void* (*start_receive)(void* self, void* data, uint64_t bytes, int from);
} ckpt_comm_table;

#ifdef __cplusplus
}
#endif
#endif
