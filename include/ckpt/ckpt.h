/* libckpt: checkpoints of a training job, saved by all its ranks in parallel and asynchronously, loaded on any number
 * of ranks and in any layout. The C interface: opaque handles, structs that begin with their size, no C++ type, no MPI.
 * The C++ one, ckpt/ckpt.hpp, is a header over this.
 *
 * Every function that can fail returns 0, or the exit code of the command line for the same failure (2 usage, 10 not
 * found, 12 unknown or newer, 13 incomplete, 14 no space, 15 corrupt, 16 I/O or a lost rank, 17 memory, 70 internal);
 * ckpt_last_error_json tells the rest. The library never exits or aborts, installs no signal handler unless asked, and
 * starts no threads beyond those of an open store. It prints to stderr in two cases only: the first failed save of a
 * store without a log; and, when the process exits while a store is open, the saves that failed unnoticed or may be
 * lost. A handle is used by one thread at a time. Handles of saves and checkpoints may outlive their store: what was
 * begun and not committed is then refused with 2, the rest still tells. In a forked child every function fails with 2
 * and touches nothing; caught signals do there what they did before.
 *
 * A struct begins with its size: 2 where that is not set; 12 where a newer caller sets a member unknown here.
 *
 * "Collective" functions are called by all ranks of the store in the same order; all ranks learn the same outcome. None
 * waits for a lost rank longer than the store's patience; after that every collective fails with 16 at once. */
#ifndef CKPT_CKPT_H
#define CKPT_CKPT_H

#include <stdint.h>

#include "ckpt/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CKPT_ABI_VERSION 1u

typedef struct ckpt_store ckpt_store;           /* the checkpoints of one run, on one rank */
typedef struct ckpt_model ckpt_model;           /* tensors and how they lie on the ranks */
typedef struct ckpt_save ckpt_save;             /* a save that was begun */
typedef struct ckpt_pending ckpt_pending;       /* a save from commit on */
typedef struct ckpt_checkpoint ckpt_checkpoint; /* a committed checkpoint, open for reading */

uint32_t ckpt_abi_version(void);

/* The last failure of a call by this thread: {"id":"CKPT-E1503","code":15,"message":...,"file":...,"offset":...,
 * "tensor":...,"hint":...}, members only where known; "{}" where nothing failed. Valid until the next call by this
 * thread. */
const char* ckpt_last_error_json(void);

/* --- stores ---------------------------------------------------------------------------------------------------------
 */

typedef struct ckpt_options {
  uint64_t size;               /* sizeof(ckpt_options): zero the rest for defaults */
  const ckpt_comm_table* comm; /* NULL: one rank. Copied; the store closes it, also where opening fails */
  /* Bytes of warm memory on this rank that a save is copied to, so that training goes on while it is written. Holding a
   * whole save, commit takes as long as the copy; with less it waits for the difference to be written; 0: a small pool,
   * and commit returns when the checkpoint is durable, or with its failure. 0 on one rank is 0 on all. */
  uint64_t staging_memory;
  uint32_t copy_threads;  /* 0: 2 */
  uint32_t write_threads; /* 0: 1, which hashes and writes as fast as most disks */
  int64_t patience_ms;    /* for other ranks; 0: 60000 */
  const char* io;         /* "auto" (also NULL), "uring", "threads" */
  uint64_t every_steps;   /* ckpt_should_save: every so many steps, not step 0; 0: not by steps; equal on all ranks */
  double every_seconds;   /* and as soon as so much time has passed, by rank 0's clock; 0: not by time */
  double time_limit_s;    /* the job's, from opening on: a stop is requested so that a save still fits; 0: none */
  int32_t catch_signals;  /* not 0: SIGTERM and SIGUSR1 set ckpt_stop_requested; handlers are restored by close */
  int32_t verify_all;     /* not 0: loads read every leaf whole, so that every byte read is compared with its hash */
  const char* framework;  /* for the manifest: who trains; may be NULL */
  const char* framework_version;
  /* One line of what a user should know (what a commit waits for, which save failed), in the caller's thread. NULL: the
   * first save that fails is told on stderr, by rank 0, or by those that are left. */
  void (*log)(void* user, const char* text);
  void* log_user;
  /* A directory on a faster disk of this node (NVMe), for this run alone; NULL or "": none. With it a save is durable
   * as soon as it is committed there, and is then drained in the background: copied to the run's directory, every byte
   * compared with its hash, and committed there too, with the same bytes and id. The ranks of a node give the same
   * directory; the lowest of them commits and drains what they wrote, and where there are several nodes drains advance
   * in the collective calls. Loads take the nearest copy that is whole; of several nodes each has only a part, so they
   * wait for drains and take the run's directory. What a job left undrained the next one drains on opening: the newest,
   * where the run's directory has nothing newer; of several nodes a load tries again, and fails where that is not
   * possible now, rather than take an older one. A checkpoint that is not in the run's directory is removed here only
   * when a newer one has been drained, and the log says so; drains that are slower than the saves fill this disk. */
  const char* local_directory;
  uint64_t drain_bytes_per_second; /* the most that drains write, on average over each; 0: no limit */
  uint64_t local_keep;             /* drained copies that stay in the local directory; 0: 2 */
  int32_t replicas; /* CKPT_REPLICAS_...: how loads read what several ranks hold alike; READ on one rank is on all */
  /* ckpt_should_save as often as loses least time, by what saves here cost and by mtbf_s (0: unknown; then at 20 times
   * what a save stalls training); a first save measures. And a cap: saves by any of these rules are put off so that
   * they stall training for at most this part of the time; 0: no cap. Rank 0 decides by both, for all. */
  int32_t optimal;
  double max_overhead; /* 0 to 1; equal on all ranks */
  double mtbf_s;       /* mean time between failures of the job */
  double restart_s;    /* what a failure costs before training goes on */
  /* The directory of runs, whose ckpt.toml says when to save, in [interval] or in a [[rule]] of the run, as `ckpt
   * next-save` reads it: in place of every_steps to restart_s, time_limit_s aside. Rank 0 reads it on opening, and
   * decides; given on all ranks or on none. NULL or "": the options decide. 2 where it does not say. */
  const char* policy_store;
} ckpt_options;

enum {
  CKPT_REPLICAS_AUTOMATIC = 0, /* as EXCHANGE, until a load has shown that reading is faster here */
  CKPT_REPLICAS_READ = 1,      /* every rank reads its parts; also where `comm` cannot send messages */
  CKPT_REPLICAS_EXCHANGE = 2   /* ranks with the same parts read a share of them each, and send it to each other */
};

/* The run's directory, made where it is missing, and the local one; what a crashed save left in them is removed.
 * Collective. `options` may be NULL. 2 where the local directory is the run's, or another run's, and where options that
 * must be equal differ between ranks. */
int ckpt_store_open(const char* run_directory, const ckpt_options* options, ckpt_store** store);
/* Waits for the saves in flight, and for drains, then releases the store. The outcome is the worst of all saves and
 * drains since opening whose outcome was not asked for: by ckpt_wait, ckpt_poll, a callback, or as that of commit. So 0
 * means that no save was lost without a word. Where one rank asked and another did not, all get what is untold.
 * Collective. */
int ckpt_store_close(ckpt_store* store);

/* Whether to save after this step: by the options' policy, or because a stop is requested. Also carries saves in flight
 * on, so call it every step. Collective, one small all-reduce that the next call completes; what one rank saw thus
 * reaches all ranks one call later, at the same step. */
int ckpt_should_save(ckpt_store* store, uint64_t step, int* answer);
/* Whether all ranks know that one of them was told to stop (a signal, the time limit). Local. */
int ckpt_stop_requested(const ckpt_store* store);
/* Whether a collective has failed, so that a rank is gone or hangs: every later one fails at once, and the trainer's
 * own would wait for ever. Other failures of a save are no reason to end training. Local. */
int ckpt_ranks_lost(const ckpt_store* store);

/* Carries MPI_COMM_WORLD of the plug-in libckpt_mpi.so, for programs that are not compiled with MPI's C++ users'
 * header; initialises MPI where that was not done. */
int ckpt_comm_world(ckpt_comm_table* table);

/* --- models: which rank holds what ----------------------------------------------------------------------------------
 */

typedef struct ckpt_axis {
  const char* name; /* "dp", "tp", "pp", "ep", ... */
  uint64_t size;
} ckpt_axis;

/* Ranks are numbered row-major over the axes, the first outermost; their product is the number of ranks. */
int ckpt_model_new(const ckpt_axis* axes, uint32_t axis_count, ckpt_model** model);
void ckpt_model_free(ckpt_model* model);

typedef struct ckpt_tensor {
  uint64_t size; /* sizeof(ckpt_tensor) */
  const char* name;
  const char* dtype; /* as in safetensors: "F32", "BF16", "I64", ... */
  const uint64_t* shape;
  uint32_t ndim;
  const char* role;      /* "param" (also NULL), "buffer", "slot" */
  const char* parameter; /* of a slot: whose state this is; may be NULL */
  const char* slot;      /* of a slot: "master", "exp_avg", "exp_avg_sq", "step", ... */
} ckpt_tensor;

enum {
  CKPT_CHUNK = 1,  /* a dimension in parts of ceil(length / parts): torch.chunk, DTensor Shard, FSDP */
  CKPT_EVEN = 2,   /* parts that differ by at most one: even division; Megatron's column and row cuts */
  CKPT_POINTS = 3, /* part k is [numbers[k], numbers[k + 1]): a padded vocabulary */
  CKPT_SEGMENTS =
      4,       /* the dimension is numbers[0], numbers[1], ... laid end to end, each divided evenly: fused QKV, GLU */
  CKPT_AT = 5, /* only ranks with one of these coordinates hold the tensor: pipeline stages, experts */
  CKPT_FLAT =
      6 /* elements of what is left: numbers = {part, begin}; ZeRO-1, 2 (begin: of the tensor in its group), 3 */
};
/* One step of a layout. Steps apply in order: first CKPT_AT, then cuts of dimensions, each to what the one before left,
 * then at most one CKPT_FLAT. Axes that no step names hold replicas: written once, by them together. They must be
 * equal: a sample of each is compared in commit, which fails with 2 and the tensor's name where ranks have drifted
 * apart. (Not of what ckpt_add_fill gives.) */
typedef struct ckpt_step {
  int32_t kind;
  uint32_t dim;     /* of cuts */
  const char* axes; /* "tp", or several, outermost first: "dp,ep" */
  const uint64_t* numbers;
  uint32_t number_count;
} ckpt_step;

/* Declares a tensor, alike on every rank, whether it holds a part or not. No steps: replicated on all ranks. */
int ckpt_model_tensor(ckpt_model* model, const ckpt_tensor* tensor, const ckpt_step* steps, uint32_t step_count);
/* Bytes of the part that this rank holds; 0 where it holds none. */
int ckpt_model_part_bytes(const ckpt_model* model, const char* name, uint64_t rank, uint64_t* bytes);
/* For the saves and loads after this; the store keeps a copy. Local: ranks whose models differ learn it in commit. */
int ckpt_store_set_model(ckpt_store* store, const ckpt_model* model);

/* --- saving ---------------------------------------------------------------------------------------------------------
 */

/* Begins the save of a step; an earlier one that was not committed is dropped, and its handle refused. Collective. */
int ckpt_begin(ckpt_store* store, uint64_t step, ckpt_save** save);
/* Text kept with the checkpoint; rank 0's counts, and the last one of a key. */
int ckpt_set(ckpt_save* save, const char* key, const char* text);
int ckpt_metric(ckpt_save* save, const char* name, double value);
/* This rank's part of a tensor of the model: its local array, dense. Memory is used until commit returns. Whatever is
 * added is checked at once: 2 for a name that is not in the model, a part given twice or of another size, a box outside
 * of its tensor. Commit then fails on all ranks. */
int ckpt_add(ckpt_save* save, const char* name, const void* data, uint64_t bytes);
/* The same from memory that only the caller can read (a device's): copies bytes [offset, offset + bytes) of the part to
 * `out`, returns 0 or a failure; called from several threads at once, during commit. */
typedef int (*ckpt_fill)(void* user, void* out, uint64_t offset, uint64_t bytes);
int ckpt_add_fill(ckpt_save* save, const char* name, uint64_t bytes, ckpt_fill fill, void* user);
/* A part of a tensor that is in no model: the box at `offset` of `extent` elements (both ndim long). Costs the ranks an
 * exchange whenever the set of such parts changes; tensors that all ranks know belong in a model. Two ranks that add
 * the same box must give the same bytes, and both write it; boxes that leave a hole, or meet and differ, are refused by
 * commit on all ranks: 2. */
int ckpt_add_part(ckpt_save* save, const ckpt_tensor* tensor, const uint64_t* offset, const uint64_t* extent,
                  const void* data, uint64_t bytes);
/* Opaque bytes, never interpreted. Of two ranks' blobs of one name only equal ones are accepted, else commit fails with
 * 2: name what each rank has of its own NAME@RANK. */
int ckpt_add_blob(ckpt_save* save, const char* name, const void* data, uint64_t bytes);
/* Copies everything and returns; what was given may change then. `save` is released in any case; `pending` may be NULL.
 * Where an add had failed, or a part was not given, on any rank, it fails on all: no part is missing in silence.
 * Without staging memory it waits until the checkpoint is durable, and a save that fails then is a failure of this
 * call. With staging memory what goes wrong later is told by ckpt_wait, ckpt_poll and callbacks, else by close.
 * Collective. */
int ckpt_commit(ckpt_save* save, ckpt_pending** pending);

/* Instead of commit, on all ranks alike: what was begun is removed by the next begin, or by close. */
void ckpt_save_drop(ckpt_save* save);

/* A save has three events: staged (commit has returned), durable (on disk: in the local directory where there is one,
 * else in the run's), drained (in the run's directory; without a local one the same as durable). A save that fails is
 * neither; one whose drain fails stays durable, the log says why, and later saves are drained all the same. */

/* Until the checkpoint is durable on all ranks: 0; its failure; 11: not within the time. Collective. */
int ckpt_wait(ckpt_pending* pending, int64_t timeout_ms);
/* Local: *done is 0 or 1; where 1, the outcome is returned. */
int ckpt_poll(ckpt_pending* pending, int* done);
/* Called once with the outcome (0 or a failure): by the thread that learns it, which with one rank is the library's.
 * It may not call functions of the store; what it throws is lost. */
int ckpt_on_durable(ckpt_pending* pending, void (*callback)(void* user, int outcome), void* user);
/* The same three for drained. */
int ckpt_wait_drained(ckpt_pending* pending, int64_t timeout_ms);
int ckpt_poll_drained(ckpt_pending* pending, int* done);
int ckpt_on_drained(ckpt_pending* pending, void (*callback)(void* user, int outcome), void* user);
/* The checkpoint's name in its directory once it is durable, else "". Valid until the next call of this, while
 * `pending` is. (A drain changes it only where another job has saved to the run meanwhile.) */
const char* ckpt_pending_name(ckpt_pending* pending);
typedef struct ckpt_stats {
  uint64_t size;   /* sizeof(ckpt_stats) */
  uint64_t bytes;  /* of this rank */
  double plan_s;   /* layout, agreement on the table */
  double stage_s;  /* copy, and waiting for staging memory */
  double write_s;  /* hash, write, sync: in the background */
  double commit_s; /* rank 0: manifest, sync, rename */
  double drain_s;  /* rank 0: the drain, in the background */
} ckpt_stats;
int ckpt_pending_stats(const ckpt_pending* pending, ckpt_stats* stats);
void ckpt_pending_free(ckpt_pending* pending);

/* --- loading --------------------------------------------------------------------------------------------------------
 */

typedef struct ckpt_read {
  uint64_t size; /* sizeof(ckpt_read) */
  const char* name;
  /* A box, each ndim long. Both NULL: this rank's part by the store's model, else the whole tensor. */
  const uint64_t* offset;
  const uint64_t* extent;
  uint32_t ndim;
  void* out; /* dense, row-major, in the tensor's dtype */
  uint64_t bytes;
} ckpt_read;

typedef struct ckpt_load_report {
  uint64_t size; /* sizeof(ckpt_load_report) */
  uint64_t step;
  uint64_t needed_bytes;     /* of this rank */
  uint64_t read_bytes;       /* from files, over-reading included */
  uint64_t verified_leaves;  /* 4 MiB each: hash compared */
  uint64_t unverified_bytes; /* of leaves that were needed only in part */
  uint64_t missing;          /* names asked for that the checkpoint lacks (CKPT_PARTIAL) */
  uint64_t skipped;          /* newer checkpoints, and nearer copies, that are damaged: the log names them and why */
  uint64_t received_bytes;   /* of those needed: read, and verified, by another rank that holds the same */
} ckpt_load_report;

enum { CKPT_STRICT = 0, CKPT_PARTIAL = 1 };

/* Loads from the newest checkpoint that verifies, from its local copy where there is one; where a copy is damaged all
 * ranks fall back to the next one of the same checkpoint, then to the one before, and the log says so. All ranks load
 * the same checkpoint: 16 where one sees another under its name, as where a disk is not mounted. One that a later
 * release wrote is not passed over: the load ends with 12. CKPT_STRICT: a missing name fails with 10. 10 also
 * where there is no checkpoint; 15 where none of them can be used. Collective. */
int ckpt_load(ckpt_store* store, const ckpt_read* reads, uint64_t read_count, int32_t mode, ckpt_load_report* report);

/* The newest checkpoint whose structure is whole; 10 where there is none, 15 where none of them is. Collective. */
int ckpt_latest_usable(ckpt_store* store, ckpt_checkpoint** checkpoint);
/* Any checkpoint by path, of any format that ckpt reads. Local. */
int ckpt_checkpoint_open(const char* path, const ckpt_options* options, ckpt_checkpoint** checkpoint);
void ckpt_checkpoint_free(ckpt_checkpoint* checkpoint);
uint64_t ckpt_checkpoint_step(const ckpt_checkpoint* checkpoint);
const char* ckpt_checkpoint_path(const ckpt_checkpoint* checkpoint);
/* Shape and dtype of a tensor; 10 where there is none. `shape` has room for *ndim numbers and gets as many as there
 * are; *ndim becomes the number of dimensions, *dtype a name that lives with the checkpoint. */
int ckpt_checkpoint_tensor(const ckpt_checkpoint* checkpoint, const char* name, uint64_t* shape, uint32_t* ndim,
                           const char** dtype);
/* Many parts at once, in the order of the files; only what is needed is read. Local. `report` may be NULL. */
int ckpt_read_plan(ckpt_checkpoint* checkpoint, const ckpt_read* reads, uint64_t read_count, ckpt_load_report* report);
/* One part. */
int ckpt_read_into(ckpt_checkpoint* checkpoint, const char* name, const uint64_t* offset, const uint64_t* extent,
                   uint32_t ndim, void* out, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
