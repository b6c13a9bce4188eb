/* Swaps tensors that do not fit in memory to files on a fast local disk: optimizer state, experts of a mixture. Part of
 * libckpt: failures, sized structs and forked children as in ckpt/ckpt.h. The C++ interface is ckpt/offload.hpp.
 *
 *   ckpt_offload_open(&options, &offload);
 *   ckpt_offload_put(offload, "layer.0.exp_avg", data, bytes);       // copied; written in the background
 *   ckpt_offload_prefetch(offload, "layer.1.exp_avg");               // read ahead
 *   ckpt_offload_get(offload, "layer.1.exp_avg", out, bytes);
 *
 * Memory is one pool of equal buffers; a tensor takes whole buffers, and nothing else holds tensor bytes, so
 * memory_bytes is never exceeded. Written tensors stay in memory until their buffers are needed; the least recently
 * used are evicted first.
 *
 * Swap files are not checkpoints: they are not synced, and close removes them. A tensor that could not be written stays
 * in memory, and get still returns it; the next put or flush fails once with the reason, and the write is retried by
 * flush and when memory is needed. Use a handle from one thread at a time. */
#ifndef CKPT_OFFLOAD_H
#define CKPT_OFFLOAD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ckpt_offload ckpt_offload; /* the swapped tensors of one process */

typedef struct ckpt_offload_options {
  uint64_t size;         /* sizeof(ckpt_offload_options): zero the rest for defaults */
  const char* directory; /* used by this handle only; created if missing; swap files found there are removed */
  uint64_t memory_bytes; /* of all buffers; room for at least two, as one is reserved for reading. 0: 1 GiB */
  uint64_t buffer_bytes; /* a multiple of 4096; the last buffer of a tensor may be partly empty. 0: 4 MiB */
  uint64_t block_bytes;  /* of one I/O request: a multiple of 4096, at most buffer_bytes. 0: 4 MiB or buffer_bytes */
  uint32_t queue_depth;  /* requests in flight. 0: 16 */
  const char* io;        /* "auto" (also NULL), "uring", "threads" */
} ckpt_offload_options;

/* Release with ckpt_offload_close. 2 for sizes outside the limits above; 11 if another handle, of any process, uses the
 * directory. */
int ckpt_offload_open(const ckpt_offload_options* options, ckpt_offload** offload);

enum { CKPT_OFFLOAD_PARAMETERS = 1, CKPT_OFFLOAD_OPTIMIZER = 2 };

/* Values that a DeepSpeed configuration does not contain. */
typedef struct ckpt_offload_sizes {
  uint64_t size;                 /* sizeof(ckpt_offload_sizes) */
  uint64_t element_bytes;        /* of the offloaded tensors, as DeepSpeed counts elements. 0: 4 */
  uint64_t largest_tensor_bytes; /* the size of DeepSpeed's optimizer buffers */
  uint64_t rank;                 /* the directory is `nvme_path`/ckpt-offload-rankN */
} ckpt_offload_sizes;

/* Opens the store that a DeepSpeed configuration (the JSON text of its file) describes in `aio` and, by `which`, in
 * `zero_optimization.offload_param` or `offload_optimizer`. 15 if the text is not JSON; 2 for values that DeepSpeed
 * would refuse, or if `device` is not nvme there. */
int ckpt_offload_open_deepspeed(const char* configuration, int32_t which, const ckpt_offload_sizes* sizes,
                                ckpt_offload** offload);

/* Waits for requests in flight, removes the files and releases the handle. */
int ckpt_offload_close(ckpt_offload* offload);

/* Stores a copy of `bytes` bytes under `name`, replacing an earlier value. Waits while all buffers wait for the disk; a
 * tensor larger than the memory is written through. Fails with the unreported failure of an earlier tensor (the error's
 * "tensor" names it), or with 14 or 16 if no buffer can be freed. Then nothing was stored and the earlier value
 * remains, except for a tensor larger than the memory; the message says so. */
int ckpt_offload_put(ckpt_offload* offload, const char* name, const void* data, uint64_t bytes);
/* Copies the tensor to `out`. 2 if `bytes` is not its size; 10 if there is no such tensor; after 15 or 16 the call may
 * be repeated. */
int ckpt_offload_get(ckpt_offload* offload, const char* name, void* out, uint64_t bytes);
/* Begins to read the tensor, as buffers become free, and keeps it in memory until the next get. Returns at once; get
 * reports a failure. 10 if there is no such tensor. */
int ckpt_offload_prefetch(ckpt_offload* offload, const char* name);
/* Removes the tensor and its file. 10 if there is no such tensor. */
int ckpt_offload_remove(ckpt_offload* offload, const char* name);
/* Waits until every tensor is written; they also stay in memory. If one cannot be written, fails with the reason. */
int ckpt_offload_flush(ckpt_offload* offload);
/* The size of a tensor. 10 if there is no such tensor. */
int ckpt_offload_bytes(const ckpt_offload* offload, const char* name, uint64_t* bytes);

typedef struct ckpt_offload_stats {
  uint64_t size;           /* sizeof(ckpt_offload_stats) */
  uint64_t hits;           /* gets that found the whole tensor in memory, prefetched ones included */
  uint64_t misses;         /* gets that had to read */
  uint64_t read_bytes;     /* from disk, including the padding of last blocks */
  uint64_t written_bytes;  /* to disk, including the padding of last blocks */
  uint64_t write_failures; /* of buffers, including those that succeeded later */
  uint64_t memory_bytes;   /* of the buffers in use now */
  uint64_t peak_memory_bytes;
  int32_t direct; /* 1: direct I/O has worked for every file so far */
} ckpt_offload_stats;
int ckpt_offload_get_stats(const ckpt_offload* offload, ckpt_offload_stats* stats);

#ifdef __cplusplus
}
#endif
#endif
