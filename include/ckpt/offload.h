/* Tensors that do not fit in memory, swapped to files of a fast local disk: optimizer state, experts of a mixture. Part
 * of libckpt: failures, sized structs and forked children as in ckpt/ckpt.h. The C++ interface is ckpt/offload.hpp.
 *
 * Memory is one pool of equal buffers; a tensor takes whole ones, and nothing else holds tensor bytes, so memory_bytes
 * is never exceeded. ckpt_offload_put copies into buffers and returns; a thread writes them in the background. What was
 * written stays in memory until its buffers are needed, least recently used first. ckpt_offload_prefetch reads ahead.
 *
 * Swap files are not checkpoints: they are not synced, and are removed on close. A tensor that could not be written
 * stays in memory and can still be had; the next put or flush fails once with the reason, and the write is retried
 * when memory is needed and by flush. Use a handle from one thread at a time. */
#ifndef CKPT_OFFLOAD_H
#define CKPT_OFFLOAD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ckpt_offload ckpt_offload; /* the swapped tensors of one process */

typedef struct ckpt_offload_options {
  uint64_t size;         /* sizeof(ckpt_offload_options): zero the rest for defaults */
  const char* directory; /* of this handle alone; created if it does not exist. Swap files found there are removed */
  uint64_t memory_bytes; /* of all buffers, at least two; one is kept for reading. 0: 1 GiB */
  uint64_t buffer_bytes; /* a multiple of 4096; the last buffer of a tensor may be partly empty. 0: 4 MiB */
  uint64_t block_bytes;  /* of one request, a multiple of 4096, at most a buffer. 0: 4 MiB, or a smaller buffer */
  uint32_t queue_depth;  /* requests in flight. 0: 16 */
  const char* io;        /* "auto" (also NULL), "uring", "threads" */
} ckpt_offload_options;

/* 2 for sizes that cannot be; 11 if another handle, of any process, has the directory. */
int ckpt_offload_open(const ckpt_offload_options* options, ckpt_offload** offload);

enum { CKPT_OFFLOAD_PARAMETERS = 1, CKPT_OFFLOAD_OPTIMIZER = 2 };

/* What a DeepSpeed configuration does not say. */
typedef struct ckpt_offload_sizes {
  uint64_t size;                 /* sizeof(ckpt_offload_sizes) */
  uint64_t element_bytes;        /* of what is offloaded: DeepSpeed counts elements. 0: 4 */
  uint64_t largest_tensor_bytes; /* its optimizer buffers are as large as this */
  uint64_t rank;                 /* the directory is `nvme_path`/ckpt-offload-rankN */
} ckpt_offload_sizes;

/* Opens what a DeepSpeed configuration asks for (the JSON text of its file): `zero_optimization.offload_param` or
 * `offload_optimizer`, by `which`, and `aio`. 15 if the text is not JSON; 2 for values that DeepSpeed would refuse, or
 * if it offloads nothing to nvme there. */
int ckpt_offload_open_deepspeed(const char* configuration, int32_t which, const ckpt_offload_sizes* sizes,
                                ckpt_offload** offload);

/* Ends what is under way and removes the files. */
int ckpt_offload_close(ckpt_offload* offload);

/* Stores a copy of `bytes` under `name`, replacing what was there. Waits while every buffer waits for the disk; more
 * than the memory holds is written through. Fails with the unreported failure of an earlier tensor (the error's
 * "tensor" names it), or with 14 or 16 if no buffer can be freed: then nothing was stored and the earlier value
 * remains, except where `bytes` are more than the memory holds, which the message says. */
int ckpt_offload_put(ckpt_offload* offload, const char* name, const void* data, uint64_t bytes);
/* Copies the tensor out; `bytes` must be its size (2). 10 if there is none; after 15 or 16 it may be tried again. */
int ckpt_offload_get(ckpt_offload* offload, const char* name, void* out, uint64_t bytes);
/* Begins to read what is not in memory, as buffers become free, and keeps it until the next get. Returns at once; get
 * reports a failure. 10 if there is none. */
int ckpt_offload_prefetch(ckpt_offload* offload, const char* name);
/* Forgets the tensor and its file. 10 if there is none. */
int ckpt_offload_remove(ckpt_offload* offload, const char* name);
/* Waits until every tensor is written; they stay in memory too. Fails with the reason for one that is not. */
int ckpt_offload_flush(ckpt_offload* offload);
/* The size of a tensor. 10 if there is none. */
int ckpt_offload_bytes(const ckpt_offload* offload, const char* name, uint64_t* bytes);

typedef struct ckpt_offload_stats {
  uint64_t size;           /* sizeof(ckpt_offload_stats) */
  uint64_t hits;           /* gets that found everything in memory, read ahead included */
  uint64_t misses;         /* gets that had to read */
  uint64_t read_bytes;     /* from disk, with the padding of last blocks */
  uint64_t written_bytes;  /* to disk, likewise */
  uint64_t write_failures; /* of buffers, including those that succeeded later */
  uint64_t memory_bytes;   /* in buffers now */
  uint64_t peak_memory_bytes;
  int32_t direct; /* 1: every file so far took direct I/O */
} ckpt_offload_stats;
int ckpt_offload_get_stats(const ckpt_offload* offload, ckpt_offload_stats* stats);

#ifdef __cplusplus
}
#endif
#endif
