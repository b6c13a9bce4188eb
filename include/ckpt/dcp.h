/* Checkpoints of torch.distributed.checkpoint (PyTorch DCP), written by the processes of a job, for storage plug-ins such
 * as ckpt.dcp.Writer. The caller plans, and its ranks agree by their own means; this library writes the files and publishes
 * them. Until then they are in a directory beside the target, so readers see the old checkpoint or the new one:
 *
 *   coordinator    ckpt_dcp_begin(target, 0, &save);
 *   every rank     ckpt_dcp_write(target, "__3_0.distcp", items, count, 0, NULL, NULL);   // after begin has returned
 *   coordinator    ckpt_dcp_publish(save, metadata, bytes);                               // after all ranks have written
 *
 * Codes and ckpt_last_error_json are those of ckpt/ckpt.h. */
#ifndef CKPT_DCP_H
#define CKPT_DCP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ckpt_dcp ckpt_dcp; /* a checkpoint that was begun, in the process that publishes it */

enum {
  CKPT_DCP_NEW = 0,    /* the target does not exist, or is an empty directory */
  CKPT_DCP_REPLACE = 1 /* if it is a DCP checkpoint, publishing replaces it and removes its files */
};

/* Makes the directory beside the target, and removes what a killed save of the same target left. The target's parent
 * exists. Release with ckpt_dcp_free. 2 if the target exists and must not be replaced: it also holds other files, or
 * `mode` is CKPT_DCP_NEW; 11 if another process saves to it now. */
int ckpt_dcp_begin(const char* target, int32_t mode, ckpt_dcp** save);

typedef struct ckpt_dcp_item {
  uint64_t size;         /* sizeof(ckpt_dcp_item) */
  const char* dtype;     /* of a tensor, as torch calls it: "bfloat16"; NULL: the bytes are the item */
  const uint64_t* shape; /* of the tensor's part, `ndim` long, as torch counts elements */
  uint32_t ndim;
  const void* data; /* dense, row-major; must not change before ckpt_dcp_write returns */
  uint64_t bytes;
  uint64_t offset, length; /* filled in by ckpt_dcp_write: the item's place in the file */
} ckpt_dcp_item;

/* Called in the caller's thread while bytes are written, at least every 20 ms; other than 0 stops the call. */
typedef int (*ckpt_dcp_progress)(void* user, uint64_t done_bytes, uint64_t total_bytes);

/* Writes one data file and syncs it: a tensor as torch.save writes it, other items as they are. `name` is a data file's:
 * "__RANK_NUMBER.distcp". `threads`: that copy, and that write; 0: 2. `progress` may be NULL. After a failure the save
 * cannot be published. 2 if the bytes of a tensor do not match its shape, or the file was written before; 10 without
 * ckpt_dcp_begin; 12 for a dtype that is not known here; 14 no space; 130 stopped. */
int ckpt_dcp_write(const char* target, const char* name, ckpt_dcp_item* items, uint64_t count, uint32_t threads,
                   ckpt_dcp_progress progress, void* user);

/* Writes .metadata and renames the directory to the target. On success the checkpoint is durable. Once per save. */
int ckpt_dcp_publish(ckpt_dcp* save, const void* metadata, uint64_t bytes);
/* Releases the save; one that was not published is removed. */
void ckpt_dcp_free(ckpt_dcp* save);

#ifdef __cplusplus
}
#endif
#endif
