/* libckpt: checkpoints of a training job. All ranks save in parallel and in the background; a checkpoint loads on any
 * number of ranks and in any layout. This is the C interface: opaque handles, structs that begin with their size, no
 * C++ types, no MPI. The C++ interface, ckpt/ckpt.hpp, is a header over this one. One rank, one tensor, in brief:
 *
 *   ckpt_run_open("runs/exp7", &options, &run);
 *   ckpt_model_new(axes, 1, &model); ckpt_model_tensor(model, &tensor, steps, 1); ckpt_run_set_model(run, model);
 *   ckpt_load(run, &read, 1, CKPT_STRICT, &report);                 // resume, if there is a checkpoint
 *   for (step = report.step + 1; ...; ++step) {                     // the training loop
 *     ckpt_should_save(run, step, &due);
 *     if (due) { ckpt_begin(run, step, &save); ckpt_add(save, "w", data, bytes); ckpt_commit(save, NULL); }
 *   }
 *   ckpt_run_close(run);                                            // waits for the last save
 *
 * examples/trainer.c is a complete trainer.
 *
 * Every function that can fail returns 0 or the exit code that the command line has for the same failure (2 usage, 10
 * not found, 12 unknown or newer, 13 incomplete, 14 no space, 15 corrupt, 16 I/O or a lost rank, 17 memory, 70
 * internal); ckpt_last_error_json has the details. The library never exits or aborts, installs no signal handler unless
 * asked, and starts no threads beyond those of an open run. It prints to stderr in two cases only: the first failed
 * save of a run without a log; and, when the process exits while a run is open, the saves that failed without a report
 * or may be lost.
 *
 * Threads: use a handle from one thread at a time. Lifetime: handles of saves and checkpoints may outlive their run;
 * functions of a save that was begun but not committed then fail with 2, all other handles still work. Strings and
 * arrays passed in are copied, except tensor and blob data (see ckpt_add). In a forked child every function fails
 * with 2 and has no effect; signal handlers are those from before catch_signals.
 *
 * Structs begin with their size. A function fails with 2 if it is not set, with 12 if a newer caller sets a member that
 * this release does not know.
 *
 * "Collective" functions are called by all ranks of the run in the same order, and all ranks get the same outcome. They
 * wait at most `patience_ms` for a lost rank; after that every collective fails with 16 at once. "Local" functions
 * involve no other rank. */
#ifndef CKPT_CKPT_H
#define CKPT_CKPT_H

#include <stdint.h>

#include "ckpt/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CKPT_ABI_VERSION 1u

typedef struct ckpt_run ckpt_run;               /* the checkpoints of one run, on one rank */
typedef struct ckpt_model ckpt_model;           /* tensors and how they lie on the ranks */
typedef struct ckpt_save ckpt_save;             /* a save that was begun */
typedef struct ckpt_pending ckpt_pending;       /* a save from commit on */
typedef struct ckpt_checkpoint ckpt_checkpoint; /* a committed checkpoint, open for reading */

uint32_t ckpt_abi_version(void);

/* The last failure of a call by this thread: {"id":"CKPT-E1503","code":15,"message":...,"file":...,"offset":...,
 * "tensor":...,"hint":...}, with known members only; "{}" if nothing failed. Valid until the next call by this thread.
 */
const char* ckpt_last_error_json(void);

/* --- runs ---------------------------------------------------------------------------------------------------------
 */

typedef struct ckpt_options {
  uint64_t size;               /* sizeof(ckpt_options): zero the rest for defaults */
  const ckpt_comm_table* comm; /* NULL: one rank. Copied; the run closes it, also where opening fails */
  /* Bytes of preallocated memory on this rank that a save is copied to, so that training continues while it is written.
   * If it holds a whole save, commit takes as long as the copy; if it is smaller, commit waits until the rest is
   * written. 0: a small pool; commit returns when the checkpoint is durable or has failed. If it is 0 on one rank it
   * must be 0 on all. */
  uint64_t staging_memory;
  uint32_t copy_threads;  /* 0: 2 */
  uint32_t write_threads; /* 0: 1, which hashes and writes as fast as most disks */
  int64_t patience_ms;    /* how long to wait for other ranks; 0: 60000 */
  const char* io;         /* "auto" (also NULL), "uring", "threads" */
  uint64_t every_steps;   /* ckpt_should_save: save every N steps, not at step 0; 0: no rule; equal on all ranks */
  double every_seconds;   /* and when this much time has passed, by rank 0's clock; 0: no rule */
  double time_limit_s;    /* of the job, from opening: requests a stop early enough for a last save; 0: none */
  int32_t catch_signals;  /* not 0: SIGTERM and SIGUSR1 set ckpt_stop_requested; close restores the old handlers, unless
                           * the program has set others since */
  int32_t verify_all;     /* not 0: loads read whole leaves and compare every byte read with its hash */
  const char* framework;  /* the training framework, recorded in the manifest; may be NULL */
  const char* framework_version;
  /* Called in the caller's thread with one line of text for users: which save failed, why a commit waits. NULL: rank 0
   * prints the first failed save to stderr; after the loss of a rank, each remaining rank does. */
  void (*log)(void* user, const char* text);
  void* log_user;
  /* A directory on a faster disk of this node (NVMe), for this run only; NULL or "": none. A save is then durable as
   * soon as it is committed there, and is drained in the background: copied to the run directory, every byte compared
   * with its hash, and committed there with the same bytes and id. All ranks of a node give the same directory; the
   * lowest of them commits and drains what they wrote. With several nodes, drains advance in collective calls. Loads
   * use the nearest complete copy; with several nodes each has only a part, so loads wait for drains and read the run
   * directory. On opening, a job drains what the last job left undrained: the newest checkpoint, if the run directory
   * has nothing newer. With several nodes a load retries this drain, and fails if it is not possible now rather than
   * load an older checkpoint. A checkpoint that was never drained is removed from the local directory only after a
   * newer one was drained, and the log says so. If drains are slower than saves, this disk fills up. */
  const char* local_directory;
  uint64_t drain_bytes_per_second; /* limit of drain bandwidth, averaged over each drain; 0: none */
  uint64_t local_keep;             /* drained copies that stay in the local directory; 0: 2 */
  int32_t replicas; /* CKPT_REPLICAS_...: how loads read replicated parts; READ on one rank applies to all */
  /* `optimal` not 0: ckpt_should_save picks the interval that loses the least time, from the measured cost of saves and
   * mtbf_s (0: unknown; the interval is then 20 times the stall of a save). The first save measures the cost.
   * max_overhead is a cap: saves by any of these rules are delayed so that they stall training for at most this share
   * of the time; 0: no cap. Rank 0 decides for all ranks. */
  int32_t optimal;
  double max_overhead; /* 0 to 1; equal on all ranks */
  double mtbf_s;       /* mean time between failures of the job */
  double restart_s;    /* time lost at a failure before training continues */
  /* The store whose ckpt.toml says when to save, in [interval] or in a [[rule]] that matches the run, as for `ckpt
   * next-save`. It replaces all options from every_steps to restart_s except time_limit_s. Rank 0 reads it on opening
   * and decides; give it on all ranks or on none. NULL or "": the options decide. Opening fails with 2 if the file does
   * not say when to save. */
  const char* policy_store;
} ckpt_options;

enum {
  CKPT_REPLICAS_AUTOMATIC = 0, /* like EXCHANGE, until a load measures that reading is faster */
  CKPT_REPLICAS_READ = 1,      /* every rank reads its parts; used too if `comm` cannot send messages */
  CKPT_REPLICAS_EXCHANGE = 2   /* ranks with the same parts each read a share of them and exchange it */
};

/* Opens the run directory and the local directory, creates them if they do not exist, and removes what a crashed save
 * left in them. `options` may be NULL. Release with ckpt_run_close. 2 if the local directory is the run directory or
 * belongs to another run, or if options that must be equal differ between ranks. Collective. */
int ckpt_run_open(const char* run_directory, const ckpt_options* options, ckpt_run** run);
/* Waits for saves in flight and for drains, then releases the run, also on failure. Returns the worst outcome of all
 * saves and drains since opening that was not yet reported by ckpt_wait, ckpt_poll, a callback or commit: 0 means that
 * no failure went unreported. An outcome that one rank has not seen is returned on all ranks. It does not save: call
 * commit after the last step yourself. Collective. */
int ckpt_run_close(ckpt_run* run);

/* Sets *answer to 1 if the step should be saved: an option or the policy asks for it, or a stop was requested; else to
 * 0. Also advances saves in flight, so call it every step: without it a save of several ranks is published only after a
 * later collective call of the run, such as the next ckpt_begin. Collective: one small all-reduce, which the next call
 * completes; a stop request on one rank reaches all ranks one call later, at the same step. */
int ckpt_should_save(ckpt_run* run, uint64_t step, int* answer);
/* 1 if a rank was asked to stop (by a signal or the time limit) and all ranks know it, by ckpt_should_save; a run of one
 * rank knows a signal at once. Else 0. Local. */
int ckpt_stop_requested(const ckpt_run* run);
/* 1 if a collective has failed because a rank is lost or hangs: every later one fails at once, and collectives of the
 * trainer would wait forever. Other failures of a save are no reason to end training. Local. */
int ckpt_ranks_lost(const ckpt_run* run);

/* Fills `table` with MPI_COMM_WORLD, for programs that do not include ckpt/mpi.hpp (C, Python). Loads the plug-in
 * libckpt_mpi.so from where ckpt is installed, and initialises MPI if the program has not. 2 if the plug-in is missing,
 * was built for another release, or cannot initialise MPI. Collective over MPI_COMM_WORLD. */
int ckpt_comm_world(ckpt_comm_table* table);

/* --- models: which rank holds which part of a tensor ----------------------------------------------------------------
 * A Llama attention projection [8192, 8192] on 8 tensor-parallel and 4 data-parallel ranks, column-parallel:
 *
 *   ckpt_axis axes[] = {{"dp", 4}, {"tp", 8}};                 // rank = dp * 8 + tp
 *   ckpt_step column = {.kind = CKPT_COLUMN, .axes = "tp"};    // each tp rank: 1024 rows; the 4 dp ranks hold replicas
 *   ckpt_model_tensor(model, &tensor, &column, 1);
 */

typedef struct ckpt_axis {
  const char* name; /* "dp", "tp", "pp", "ep", ... */
  uint64_t size;
} ckpt_axis;

/* Ranks are numbered row-major over the axes, the first outermost; the product of the sizes is the number of ranks.
 * `axes` is copied. Release with ckpt_model_free. */
int ckpt_model_new(const ckpt_axis* axes, uint32_t axis_count, ckpt_model** model);
void ckpt_model_free(ckpt_model* model);

typedef struct ckpt_tensor {
  uint64_t size; /* sizeof(ckpt_tensor) */
  const char* name;
  const char* dtype;     /* as in safetensors: "F32", "BF16", "I64", ... */
  const uint64_t* shape; /* of the whole tensor, `ndim` long, in elements */
  uint32_t ndim;
  const char* role;      /* "param" (also NULL), "buffer", "slot" (optimizer state) */
  const char* parameter; /* of a slot: the name of its parameter; may be NULL */
  const char* slot;      /* of a slot: "master", "exp_avg", "exp_avg_sq", "step", ... */
} ckpt_tensor;

enum {
  CKPT_CHUNK = 1,    /* a dimension in parts of ceil(length / parts): torch.chunk, DTensor Shard, FSDP */
  CKPT_EVEN = 2,     /* parts whose lengths differ by at most one: Megatron's column and row cuts */
  CKPT_POINTS = 3,   /* part k is [numbers[k], numbers[k + 1]): a padded vocabulary */
  CKPT_SEGMENTS = 4, /* the dimension is segments of numbers[0], numbers[1], ... laid end to end, each divided evenly:
                      * fused QKV, GLU */
  CKPT_AT = 5,       /* only ranks with one of these coordinates hold the tensor: pipeline stages, experts */
  CKPT_FLAT = 6,     /* a range of the flattened rest: numbers = {elements per part, begin}, where begin is the offset
                      * of the tensor in its ZeRO-1 or 2 group, 0 for ZeRO-3 */

  /* Placements: the same cuts by the rules of common trainers, over one axis. 2 where the trainer itself would refuse,
   * for example if the heads do not divide among the ranks. */
  CKPT_COLUMN = 7,     /* dimension 0 in equal parts: Megatron's ColumnParallelLinear, [out, in], and its bias */
  CKPT_ROW = 8,        /* dimension 1 in equal parts: RowParallelLinear (its bias is replicated: no step) */
  CKPT_VOCABULARY = 9, /* an embedding [vocabulary, hidden] without padding rows. numbers = {divisible_by}; none: 128.
                        * The vocabulary is padded to a multiple of divisible_by * ranks, then divided equally */
  CKPT_QKV = 10,       /* fused QKV as in Megatron: for each group the rows of its query heads, its key head and its
                        * value head; each rank holds whole groups. numbers = {heads, groups, rows of a head};
                        * groups = heads without GQA */
  CKPT_GLU = 11,       /* two equal halves end to end in `dim`, [gate; up]: each rank holds an equal part of both */
  CKPT_EXPERT = 12,    /* one expert's tensor: numbers = {experts, expert}. Each coordinate of the axis holds equally
                        * many consecutive experts */
  CKPT_LAYER = 13,     /* a layer's tensor, on its pipeline stage: numbers = {layers, layer} or {layers, layer, virtual
                        * stages}: the interleaved schedule, with several blocks of layers on each stage */
  CKPT_PARTITION = 14  /* ZeRO-3: the elements that earlier cuts left, in parts of ceil(n / ranks); last, like FLAT */
};
/* One step of a layout. Steps apply in order: first those that choose ranks (CKPT_AT, EXPERT, LAYER), then
 * cuts of dimensions, each applied to what the previous one left, then at most one CKPT_FLAT or PARTITION. Axes that no
 * step names hold replicas; their ranks write one copy, each a share of it. Replicas must be equal: commit compares a
 * hash of every byte that each rank adds, through ckpt_add_fill too, and fails with 2 and the tensor's name if they
 * differ. */
typedef struct ckpt_step {
  int32_t kind;
  uint32_t dim;     /* the dimension that is cut; 0 where the kind does not cut one */
  const char* axes; /* "tp", or several, outermost first: "dp,ep" */
  const uint64_t* numbers;
  uint32_t number_count;
} ckpt_step;

/* Declares a tensor. Every rank declares all tensors identically, those that it holds no part of too. No steps:
 * replicated on all ranks. */
int ckpt_model_tensor(ckpt_model* model, const ckpt_tensor* tensor, const ckpt_step* steps, uint32_t step_count);
/* Bytes of the part that this rank holds; 0 if it holds none. */
int ckpt_model_part_bytes(const ckpt_model* model, const char* name, uint64_t rank, uint64_t* bytes);
/* A parameter group of DeepSpeed ZeRO stages 1 and 2: parameters laid end to end, divided equally among `ranks`.
 * `counts`: elements of each parameter, or of its tensor-parallel part. `align_factor`: 2; 1 in DeepSpeed before
 * 2021-09. Returns the numbers of each parameter's CKPT_FLAT: *part for all, and begins[i], `count` of them. */
int ckpt_flat_group(const uint64_t* counts, uint64_t count, uint64_t ranks, uint64_t align_factor, uint64_t* part,
                    uint64_t* begins);
/* Sets the model of later saves and loads; the run keeps a copy. Local: if the models of the ranks differ, commit fails
 * with 2. */
int ckpt_run_set_model(ckpt_run* run, const ckpt_model* model);

/* --- saving ---------------------------------------------------------------------------------------------------------
 */

/* Begins the save of a step. Drops an earlier save that was not committed; its handle then fails with 2. End the save
 * with ckpt_commit or ckpt_save_drop. Collective. */
int ckpt_begin(ckpt_run* run, uint64_t step, ckpt_save** save);
/* Text, and metrics, stored with the checkpoint. Those of rank 0 are stored; a later call replaces an earlier one of
 * the same key or name. */
int ckpt_set(ckpt_save* save, const char* key, const char* text);
int ckpt_metric(ckpt_save* save, const char* name, double value);
/* Adds this rank's part of a model tensor: its local array, dense, row-major. The memory is the caller's; it must not
 * change until commit returns. Every add is checked at once: 2 for a name that is not in the model, a part that is
 * added twice or has another size, or a box outside its tensor. Commit then fails on all ranks. */
int ckpt_add(ckpt_save* save, const char* name, const void* data, uint64_t bytes);
/* The same for memory that only the caller can read (device memory): `fill` copies bytes [offset, offset + bytes) of
 * the part to `out` and returns 0, or anything else to fail the save. It is called from several threads at once, and
 * only until commit returns. */
typedef int (*ckpt_fill)(void* user, void* out, uint64_t offset, uint64_t bytes);
int ckpt_add_fill(ckpt_save* save, const char* name, uint64_t bytes, ckpt_fill fill, void* user);
/* Adds a part of a tensor that is not in the model: the box at `offset` of `extent` elements (both ndim long). Ranks
 * exchange descriptions whenever the set of such parts changes, so prefer the model for tensors that all ranks know.
 * Two ranks that add the same box must add the same bytes, and both write them. If boxes leave a hole or overlap in
 * part, commit fails with 2 on all ranks. */
int ckpt_add_part(ckpt_save* save, const ckpt_tensor* tensor, const uint64_t* offset, const uint64_t* extent,
                  const void* data, uint64_t bytes);
typedef struct ckpt_parts {
  uint64_t size;         /* sizeof(ckpt_parts) */
  uint64_t count;        /* of parts */
  const char* names;     /* `count` strings one after another, each with its null character */
  const char* dtypes;    /* the same */
  const uint32_t* ndims; /* of each tensor */
  /* Of all tensors, one after another. `offsets` and `extents`: both NULL where every part is its whole tensor. */
  const uint64_t* shapes;
  const uint64_t* offsets;
  const uint64_t* extents;
  const void* const* data; /* of each part, dense, row-major */
  const uint64_t* bytes;   /* of each part */
  const uint8_t* roles;    /* of each tensor: one of these; NULL: all are parameters */
} ckpt_parts;
enum { CKPT_PARAM = 0, CKPT_BUFFER = 1, CKPT_SLOT = 2 };
/* ckpt_add_part for many parts in one call, for callers whose calls are slow. Stops at the first part that is refused. */
int ckpt_add_parts(ckpt_save* save, const ckpt_parts* parts);
/* Adds opaque bytes, which the library never interprets. The memory must not change until commit returns. Blobs of the
 * same name must be equal on all ranks that add them, else commit fails with 2; give per-rank data the name NAME@RANK.
 */
int ckpt_add_blob(ckpt_save* save, const char* name, const void* data, uint64_t bytes);
/* Copies everything and returns; the caller may then change its memory. Always releases `save`. `pending` may be NULL;
 * else release it with ckpt_pending_free. Fails on all ranks if an add failed, or a part was not added, on any rank.
 * Without staging memory, commit waits until the checkpoint is durable, and returns the failure of the save. With
 * staging memory, later failures are reported by ckpt_wait, ckpt_poll and callbacks, else by close. Collective. */
int ckpt_commit(ckpt_save* save, ckpt_pending** pending);

/* Drops a save instead of committing it, on all ranks. Releases `save`; the next begin, or close, removes its files. */
void ckpt_save_drop(ckpt_save* save);

/* A save has three events: staged (commit has returned), durable (on disk: in the local directory if there is one, else
 * in the run directory), drained (in the run directory; without a local directory the same as durable). A failed save
 * reaches neither durable nor drained. If a drain fails, the save stays durable, the log gives the reason, and later
 * saves are still drained. */

/* Waits until the checkpoint is durable on all ranks. Returns 0, its failure, or 11 on timeout. Collective. */
int ckpt_wait(ckpt_pending* pending, int64_t timeout_ms);
/* Sets *done to 0 or 1; if 1, returns the outcome. Local. */
int ckpt_poll(ckpt_pending* pending, int* done);
/* The callback is called once with the outcome (0 or a failure): in the thread of a later collective call, with one
 * rank in a thread of the library. It must not call functions of the run; exceptions that it throws are dropped. */
int ckpt_on_durable(ckpt_pending* pending, void (*callback)(void* user, int outcome), void* user);
/* The same three for drained. */
int ckpt_wait_drained(ckpt_pending* pending, int64_t timeout_ms);
int ckpt_poll_drained(ckpt_pending* pending, int* done);
int ckpt_on_drained(ckpt_pending* pending, void (*callback)(void* user, int outcome), void* user);
/* The name of the checkpoint in its directory, such as step-000001000.g7, once it is durable, else "". Valid until the
 * next call with this `pending`, or its release. A drain changes the name only if another job has saved to the run in
 * the meantime. */
const char* ckpt_pending_name(ckpt_pending* pending);
typedef struct ckpt_stats {
  uint64_t size;   /* sizeof(ckpt_stats) */
  uint64_t bytes;  /* of this rank */
  double plan_s;   /* computing the layout, agreement of the ranks on it */
  double stage_s;  /* copying, and waiting for staging memory */
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
  /* A box, each ndim long. Both NULL: this rank's part according to the run's model, else the whole tensor. */
  const uint64_t* offset;
  const uint64_t* extent;
  uint32_t ndim;
  void* out;      /* dense, row-major, in the tensor's dtype; the caller's memory */
  uint64_t bytes; /* of `out`: exactly the size of the box */
} ckpt_read;

typedef struct ckpt_load_report {
  uint64_t size; /* sizeof(ckpt_load_report) */
  uint64_t step;
  uint64_t needed_bytes;     /* that this rank asked for */
  uint64_t read_bytes;       /* from files, including bytes around the requested parts */
  uint64_t verified_leaves;  /* leaves of 4 MiB whose hash was compared */
  uint64_t unverified_bytes; /* of leaves that were needed only in part */
  uint64_t missing;          /* requested names that the checkpoint lacks (CKPT_PARTIAL) */
  uint64_t skipped;          /* damaged newer checkpoints and nearer copies; the log names them and the reasons */
  uint64_t received_bytes;   /* of needed_bytes: read and verified by another rank with the same data */
} ckpt_load_report;

enum { CKPT_STRICT = 0, CKPT_PARTIAL = 1 };

/* Loads from the newest checkpoint that verifies, from its local copy if there is one. If a copy is damaged, all ranks
 * fall back to the next copy of the same checkpoint, then to the previous checkpoint, and the log says so. All ranks
 * load the same checkpoint: 16 if a rank sees a different one under its name, for example because a disk is not
 * mounted. A checkpoint written by a later release is not skipped: the load fails with 12. With CKPT_STRICT a missing
 * name fails with 10. Also 10 if there is no checkpoint, 15 if none of them is usable. Collective. */
int ckpt_load(ckpt_run* run, const ckpt_read* reads, uint64_t read_count, int32_t mode, ckpt_load_report* report);
/* The same from the newest save of one step, for a job that goes back: its next save begins a new series, which supersedes
 * the later checkpoints. (Once the job has saved, only a save that is not of a later step than its last one does so: a load
 * may be a mere look.) Falls back to another copy of that checkpoint, never to another one. `step` is equal
 * on all ranks, else 2. 10 if the run has no checkpoint of this step. Collective. */
int ckpt_load_step(ckpt_run* run, uint64_t step, const ckpt_read* reads, uint64_t read_count, int32_t mode,
                   ckpt_load_report* report);
/* The steps of which the run has checkpoints, the newest save first; not checked further. *count is the room in `steps`,
 * and becomes the number of steps; `steps` may be NULL if *count is 0. Rank 0 lists them for all. Collective. */
int ckpt_run_steps(ckpt_run* run, uint64_t* steps, uint64_t* count);

/* --- position in the data, random streams ---------------------------------------------------------------------------
 * What a job needs besides its tensors to continue on another number of ranks: every sample of an epoch is read exactly
 * once, and random number generators continue where they were. Stored as blobs; src/format/LEDGER.md specifies them and
 * says what stays bit-exact. */

typedef struct ckpt_position ckpt_position; /* which samples of an epoch are consumed, and which rank reads the rest */

typedef struct ckpt_shard {
  const char* name;
  uint64_t samples;
} ckpt_shard;

typedef struct ckpt_epoch {
  uint64_t size; /* sizeof(ckpt_epoch) */
  uint64_t epoch;
  uint64_t seed;         /* of the data loader's permutation */
  uint64_t samples;      /* of the epoch; ignored if `shards` is set */
  uint64_t global_batch; /* samples of one step on all ranks, at least `world` */
  uint64_t world;        /* data-parallel ranks among which a batch is divided */
  /* NULL: one global order of samples; every step takes the next global_batch of it, divided evenly among the ranks.
   * Else every rank reads ranges of these shards, one after the other. */
  const ckpt_shard* shards;
  uint64_t shard_count;
} ckpt_epoch;
/* The position at the start of an epoch. Release with ckpt_position_free. 2 if a batch has fewer samples than there are
 * ranks, or if sizes overflow 64 bits. Functions of positions are local. */
int ckpt_position_begin(const ckpt_epoch* epoch, ckpt_position** position);
void ckpt_position_free(ckpt_position* position);

typedef struct ckpt_range {
  uint64_t shard; /* index in ckpt_epoch.shards; 0 without shards */
  uint64_t begin, end;
} ckpt_range;
/* The samples that data-parallel rank `rank` reads `step` steps after the position, in order. `ranges` has room for
 * *count entries and is filled as far as they go; *count becomes the number there are, 0 past the end of the epoch. */
int ckpt_position_share(const ckpt_position* position, uint64_t rank, uint64_t step, ckpt_range* ranges,
                        uint64_t* count);
/* Advances by this many training steps. Call it equally on all ranks. */
int ckpt_position_advance(ckpt_position* position, uint64_t steps);
typedef struct ckpt_position_state {
  uint64_t size; /* sizeof(ckpt_position_state) */
  uint64_t epoch, seed, samples;
  uint64_t consumed; /* of this epoch, by all ranks together */
  uint64_t global_batch, world;
  uint64_t steps_left; /* of the epoch; the last batch may be short */
} ckpt_position_state;
int ckpt_position_get(const ckpt_position* position, ckpt_position_state* state);

/* Adds a copy of the position to a save. At least one rank adds it; if several do, their positions must be equal. */
int ckpt_add_position(ckpt_save* save, const ckpt_position* position);
/* The position stored in the checkpoint that the last ckpt_load loaded, with the remaining samples divided among
 * `world` ranks: each is read exactly once. Release with ckpt_position_free. 10 if the checkpoint has no position, or
 * was deleted since; 2 before any load, or if `world` exceeds the global batch. Local. */
int ckpt_restore_position(ckpt_run* run, uint64_t world, ckpt_position** position);

/* A random number generator. Its identity is its purpose and its mesh coordinates, not the rank that had it. */
typedef struct ckpt_stream {
  uint64_t size;           /* sizeof(ckpt_stream) */
  const char* name;        /* "dropout" */
  const char* coordinates; /* "dp=3,tp=0": the axes along which streams differ; NULL or "": all ranks share it */
  const char* algorithm;   /* the generator: "torch.cuda", "numpy.mt19937", or a name of the trainer's */
  void* state;
  uint64_t bytes; /* of the state, at most 1 MiB */
} ckpt_stream;
/* Adds a copy of a stream's state to a save. Ranks that share a stream may all add it, with the same state. */
int ckpt_add_stream(ckpt_save* save, const ckpt_stream* stream);
/* Fills stream->state from the checkpoint that the last ckpt_load loaded. If it has a stream of this name, coordinates
 * and algorithm, *restored is 1 and *bytes the size of the state. Otherwise (a new rank) *restored is 0 and `state`
 * gets a seed of 16 bytes, derived from `seed`, the loaded step and the stream's identity: the same at every resume
 * from this step, different for every other stream. 2 if stream->bytes is too small. Local. */
int ckpt_restore_stream(ckpt_run* run, const ckpt_stream* stream, uint64_t seed, uint64_t* bytes, int* restored);

/* Opens the newest checkpoint whose structure is complete. Release with ckpt_checkpoint_free. 10 if there is no
 * checkpoint, 15 if none is complete. Collective. */
int ckpt_latest_usable(ckpt_run* run, ckpt_checkpoint** checkpoint);
/* The same of the newest save of one step, superseded or not. Collective. */
int ckpt_step_usable(ckpt_run* run, uint64_t step, ckpt_checkpoint** checkpoint);
/* Both only look. A job that reads its state from such a checkpoint, rather than with ckpt_load, calls this when it has: its
 * saves then continue from there, as after ckpt_load and ckpt_load_step. 2 on all ranks if on one it is not the
 * checkpoint that was opened last. Collective. */
int ckpt_loaded(ckpt_run* run, const ckpt_checkpoint* checkpoint);
/* Opens a checkpoint by path, in any format that ckpt reads; of a directory of checkpoints (a run, a store with one run,
 * a trainer's output directory) the newest. `options` may be NULL. 12 if the format is unknown, 13 if files are missing.
 * Local. */
int ckpt_checkpoint_open(const char* path, const ckpt_options* options, ckpt_checkpoint** checkpoint);
void ckpt_checkpoint_free(ckpt_checkpoint* checkpoint);
uint64_t ckpt_checkpoint_step(const ckpt_checkpoint* checkpoint);
const char* ckpt_checkpoint_path(const ckpt_checkpoint* checkpoint);
/* Shape and dtype of a tensor; 10 if the checkpoint has no tensor of this name. `shape` has room for *ndim numbers and
 * is filled as far as they go; *ndim becomes the number of dimensions. *dtype is valid as long as the checkpoint. */
int ckpt_checkpoint_tensor(const ckpt_checkpoint* checkpoint, const char* name, uint64_t* shape, uint32_t* ndim,
                           const char** dtype);
/* *json: one JSON document of what the checkpoint holds, valid as long as the checkpoint. Members, all present:
 *   path, format; variant, chosen, framework, framework_version, which may be null; step, a number or null
 *   tensors   [{name, dtype, true_dtype, shape, bytes, role, parameter, slot}] in the order of the source; the last two,
 *             and true_dtype, may be null. true_dtype: "complex128", stored as F64 with a last dimension of 2
 *   ties      [{name, target}]: second names of tensors
 *   blobs     [{name, bytes}]: read them as U8 tensors of one dimension, for example with ckpt_read_into
 *   metadata  [{key, text}]; metrics [{name, value}], where the value is null if it is not finite
 *   objects   [{name, value, data}]: values that are not tensors, as text, shortened as in `ckpt ls --json`. Of plain values,
 *             and lists, tuples, sets and dicts of at most a million of them, also `data`, as in FORMAT.md section 7.1
 * Non-ASCII bytes of text that is not UTF-8 are written as %XX. Local. */
int ckpt_checkpoint_json(ckpt_checkpoint* checkpoint, const char** json);
/* Reads many parts in file order, and only the bytes that they need. `report` may be NULL. 12 for compressed tensors of
 * PyTorch DCP: convert the checkpoint first. Local. */
int ckpt_read_plan(ckpt_checkpoint* checkpoint, const ckpt_read* reads, uint64_t read_count, ckpt_load_report* report);
/* Reads one part: see ckpt_read. Local. */
int ckpt_read_into(ckpt_checkpoint* checkpoint, const char* name, const uint64_t* offset, const uint64_t* extent,
                   uint32_t ndim, void* out, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
