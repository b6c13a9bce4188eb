/* libckpt: checkpoints of a training job, saved by all its ranks in parallel and asynchronously, loaded on any number
 * of ranks and in any layout. The C interface: opaque handles, structs that begin with their size, no C++ types, no
 * MPI. The C++ interface, ckpt/ckpt.hpp, is a header over this one.
 *
 * Every function that can fail returns 0 or the exit code that the command line has for the same failure (2 usage, 10
 * not found, 12 unknown or newer, 13 incomplete, 14 no space, 15 corrupt, 16 I/O or a lost rank, 17 memory, 70
 * internal); ckpt_last_error_json has the details. The library never exits or aborts, installs no signal handler unless
 * asked, and starts no threads beyond those of an open run. It prints to stderr in two cases only: the first failed
 * save of a run without a log; and, when the process exits while a run is open, the saves that failed unnoticed or
 * may be lost. Use a handle from one thread at a time. Handles of saves and checkpoints may outlive their run:
 * functions of a save that was begun but not committed then fail with 2, all other handles still answer. In a forked
 * child every function fails with 2 and touches nothing; caught signals behave there as before they were caught.
 *
 * A struct begins with its size: 2 if it is not set; 12 if a newer caller sets a member that this release does not
 * know.
 *
 * "Collective" functions are called by all ranks of the run in the same order; all ranks get the same outcome. None
 * waits for a lost rank longer than the run's patience; after that every collective fails with 16 at once. */
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
   * written. 0: a small pool; commit returns when the checkpoint is durable or has failed. 0 on one rank requires 0 on
   * all. */
  uint64_t staging_memory;
  uint32_t copy_threads;  /* 0: 2 */
  uint32_t write_threads; /* 0: 1, which hashes and writes as fast as most disks */
  int64_t patience_ms;    /* for other ranks; 0: 60000 */
  const char* io;         /* "auto" (also NULL), "uring", "threads" */
  uint64_t every_steps;   /* ckpt_should_save: save every N steps, not at step 0; 0: no; equal on all ranks */
  double every_seconds;   /* and after this much time, by rank 0's clock; 0: no */
  double time_limit_s;    /* of the job, from opening: requests a stop early enough for a last save; 0: none */
  int32_t catch_signals;  /* not 0: SIGTERM and SIGUSR1 set ckpt_stop_requested; handlers are restored by close */
  int32_t verify_all;     /* not 0: loads read whole leaves and compare every byte read with its hash */
  const char* framework;  /* for the manifest: the training framework; may be NULL */
  const char* framework_version;
  /* Called in the caller's thread with one line that users should see, such as what a commit waits for or which save
   * failed. NULL: rank 0 prints the first failed save to stderr; after the loss of a rank, each remaining rank does. */
  void (*log)(void* user, const char* text);
  void* log_user;
  /* A directory on a faster disk of this node (NVMe), for this run only; NULL or "": none. A save is then durable as
   * soon as it is committed there, and is drained in the background: copied to the run directory, every byte compared
   * with its hash, and committed there with the same bytes and id. All ranks of a node give the same directory; the
   * lowest of them commits and drains what they wrote. With several nodes, drains advance in collective calls. Loads
   * use the nearest complete copy; with several nodes each has only a part, so loads wait for drains and read the run
   * directory. On opening, a job drains what the last job left undrained: the newest checkpoint, if the run directory
   * has nothing newer. With several nodes a load retries this drain, and fails if it is not possible now rather than
   * load an older checkpoint. A checkpoint that is not in the run directory is removed here only after a newer one was
   * drained, and the log says so; drains that are slower than saves fill this disk. */
  const char* local_directory;
  uint64_t drain_bytes_per_second; /* limit of drain bandwidth, averaged over each drain; 0: none */
  uint64_t local_keep;             /* drained copies that stay in the local directory; 0: 2 */
  int32_t replicas; /* CKPT_REPLICAS_...: how loads read replicated parts; READ on one rank applies to all */
  /* `optimal` not 0: ckpt_should_save picks the interval that loses least time, from the cost of saves here and mtbf_s
   * (0: unknown; the interval is then 20 times the time that a save stalls training); the first save measures the cost.
   * max_overhead is a cap: saves by any of these rules are delayed so that they stall training for at most this share
   * of the time; 0: no cap. Rank 0 decides both for all ranks. */
  int32_t optimal;
  double max_overhead; /* 0 to 1; equal on all ranks */
  double mtbf_s;       /* mean time between failures of the job */
  double restart_s;    /* time lost at a failure before training continues */
  /* The directory of runs whose ckpt.toml says when to save, in [interval] or in a [[rule]] of the run, as `ckpt
   * next-save` reads it. It replaces every_steps to restart_s, except time_limit_s. Rank 0 reads it on opening and
   * decides; give it on all ranks or on none. NULL or "": the options decide. 2 if the file does not say when to save.
   */
  const char* policy_store;
} ckpt_options;

enum {
  CKPT_REPLICAS_AUTOMATIC = 0, /* like EXCHANGE, until a load finds that reading is faster here */
  CKPT_REPLICAS_READ = 1,      /* every rank reads its parts; also where `comm` cannot send messages */
  CKPT_REPLICAS_EXCHANGE = 2   /* ranks with the same parts each read a share of them and exchange it */
};

/* Opens the run directory, and creates it if it does not exist, and the local one; removes what a crashed save left in
 * them. Collective. `options` may be NULL. 2 if the local directory is the run directory or belongs to another run, and
 * if options that must be equal differ between ranks. */
int ckpt_run_open(const char* run_directory, const ckpt_options* options, ckpt_run** run);
/* Waits for saves in flight and for drains, then releases the run. Returns the worst outcome of all saves and drains
 * since opening that was not yet reported by ckpt_wait, ckpt_poll, a callback or commit: 0 means that no failed save
 * went unreported. If one rank has seen an outcome and another has not, all ranks get it. Collective. */
int ckpt_run_close(ckpt_run* run);

/* Whether to save after this step: by the options' policy, or because a stop is requested. Also advances saves in
 * flight, so call it every step. Collective: one small all-reduce that the next call completes, so what one rank saw
 * reaches all ranks one call later, at the same step. */
int ckpt_should_save(ckpt_run* run, uint64_t step, int* answer);
/* Whether all ranks know that one of them was asked to stop (by a signal or the time limit). Local. */
int ckpt_stop_requested(const ckpt_run* run);
/* Whether a collective has failed because a rank is lost or hangs: every later one fails at once, and collectives of
 * the trainer would wait forever. Other failures of a save are no reason to end training. Local. */
int ckpt_ranks_lost(const ckpt_run* run);

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
      4,         /* the dimension is numbers[0], numbers[1], ... laid end to end, each divided evenly: fused QKV, GLU */
  CKPT_AT = 5,   /* only ranks with one of these coordinates hold the tensor: pipeline stages, experts */
  CKPT_FLAT = 6, /* elements of the rest: numbers = {part, begin}; ZeRO-1, 2 (begin: of the tensor in its group), 3 */

  /* Placements: the same cuts by the rules of common trainers, over one axis. What the trainer's own rule refuses,
   * such as heads that do not divide among the ranks, is 2. */
  CKPT_COLUMN = 7,     /* dimension 0 in equal parts: Megatron's ColumnParallelLinear, [out, in], and its bias */
  CKPT_ROW = 8,        /* dimension 1 in equal parts: RowParallelLinear (its bias is replicated: no step) */
  CKPT_VOCABULARY = 9, /* an embedding [vocabulary, hidden] without padding rows. numbers = {divisible_by}, none: 128.
                        * The vocabulary is padded to a multiple of divisible_by * ranks, then divided equally */
  CKPT_QKV = 10,       /* fused rows [query heads of a group, key head, value head] a group, as in Megatron: ranks hold
                        * whole groups. numbers = {heads, groups, rows of a head}; groups = heads without GQA */
  CKPT_GLU = 11,       /* two equal halves laid end to end in `dim`, [gate; up]: ranks hold an equal part of each */
  CKPT_EXPERT = 12,    /* one expert's tensor: numbers = {experts, expert}. Experts are dealt in order, equally many to
                        * each coordinate of the axis */
  CKPT_LAYER = 13,     /* a layer's tensor, on its pipeline stage: numbers = {layers, layer} or {layers, layer, virtual
                        * stages}, with which each stage runs several runs of consecutive layers in turn */
  CKPT_PARTITION = 14  /* ZeRO-3: elements in parts of ceil(n / ranks), of what equal cuts have left; last, like FLAT */
};
/* One step of a layout. Steps apply in order: first those that choose ranks (CKPT_AT, EXPERT, LAYER), then
 * cuts of dimensions, each applied to what the previous one left, then at most one CKPT_FLAT or PARTITION. Axes that no
 * step names hold replicas, which their ranks write once, together. Replicas must be equal: commit compares a hash of
 * every byte that each rank adds, through ckpt_add_fill too, and fails with 2 and the tensor's name if ranks have
 * drifted apart. */
typedef struct ckpt_step {
  int32_t kind;
  uint32_t dim;     /* of cuts */
  const char* axes; /* "tp", or several, outermost first: "dp,ep" */
  const uint64_t* numbers;
  uint32_t number_count;
} ckpt_step;

/* Declares a tensor, identically on every rank, whether it holds a part or not. No steps: replicated on all ranks. */
int ckpt_model_tensor(ckpt_model* model, const ckpt_tensor* tensor, const ckpt_step* steps, uint32_t step_count);
/* Bytes of the part that this rank holds; 0 if it holds none. */
int ckpt_model_part_bytes(const ckpt_model* model, const char* name, uint64_t rank, uint64_t* bytes);
/* The parameter group of ZeRO stages 1 and 2 (DeepSpeed): parameters laid end to end, divided equally among `ranks`.
 * `counts`: elements of each parameter, or of its tensor-parallel part. `align_factor`: 2; 1 in DeepSpeed before
 * 2021-09. Gives the numbers of each parameter's CKPT_FLAT: *part, and its begin in `begins`, as long as `counts`. */
int ckpt_flat_group(const uint64_t* counts, uint64_t count, uint64_t ranks, uint64_t align_factor, uint64_t* part,
                    uint64_t* begins);
/* For the saves and loads after this; the run keeps a copy. Local: ranks whose models differ learn it in commit. */
int ckpt_run_set_model(ckpt_run* run, const ckpt_model* model);

/* --- saving ---------------------------------------------------------------------------------------------------------
 */

/* Begins the save of a step. Drops an earlier save that was not committed; its handle is then rejected. Collective. */
int ckpt_begin(ckpt_run* run, uint64_t step, ckpt_save** save);
/* Text kept with the checkpoint; rank 0's counts, and the last one of a key. */
int ckpt_set(ckpt_save* save, const char* key, const char* text);
int ckpt_metric(ckpt_save* save, const char* name, double value);
/* Adds this rank's part of a model tensor: its local array, dense. Commit reads this memory until it returns. Every add
 * is checked at once: 2 for a name that is not in the model, a part that is added twice or has another size, or a box
 * outside its tensor. Commit then fails on all ranks. */
int ckpt_add(ckpt_save* save, const char* name, const void* data, uint64_t bytes);
/* The same for memory that only the caller can read (device memory): `fill` copies bytes [offset, offset + bytes) of
 * the part to `out` and returns 0 or a failure. It is called from several threads at once, during commit. */
typedef int (*ckpt_fill)(void* user, void* out, uint64_t offset, uint64_t bytes);
int ckpt_add_fill(ckpt_save* save, const char* name, uint64_t bytes, ckpt_fill fill, void* user);
/* Adds a part of a tensor that is not in the model: the box at `offset` of `extent` elements (both ndim long). Costs an
 * exchange between ranks whenever the set of such parts changes; declare tensors that all ranks know in a model. Two
 * ranks that add the same box must add the same bytes, and both write them. Boxes that leave a hole or overlap
 * differently make commit fail with 2 on all ranks. */
int ckpt_add_part(ckpt_save* save, const ckpt_tensor* tensor, const uint64_t* offset, const uint64_t* extent,
                  const void* data, uint64_t bytes);
/* Adds opaque bytes, which are never interpreted. Blobs of the same name must be equal on all ranks that add them, else
 * commit fails with 2; give per-rank data the name NAME@RANK. */
int ckpt_add_blob(ckpt_save* save, const char* name, const void* data, uint64_t bytes);
/* Copies everything and returns; the caller may then change its memory. Releases `save` in any case; `pending` may be
 * NULL. Fails on all ranks if an add failed, or a part was not added, on any rank: no part is lost silently. Without
 * staging memory, commit waits until the checkpoint is durable, and returns the failure of the save. With staging
 * memory, later failures are reported by ckpt_wait, ckpt_poll and callbacks, else by close. Collective. */
int ckpt_commit(ckpt_save* save, ckpt_pending** pending);

/* Call instead of commit, on all ranks: the next begin, or close, removes what was begun. */
void ckpt_save_drop(ckpt_save* save);

/* A save has three events: staged (commit has returned), durable (on disk: in the local directory if there is one, else
 * in the run directory), drained (in the run directory; without a local directory the same as durable). A failed save
 * reaches neither durable nor drained. If a drain fails the save stays durable, the log gives the reason, and later
 * saves are still drained. */

/* Waits until the checkpoint is durable on all ranks. Returns 0, its failure, or 11 on timeout. Collective. */
int ckpt_wait(ckpt_pending* pending, int64_t timeout_ms);
/* Sets *done to 0 or 1; if 1, returns the outcome. Local. */
int ckpt_poll(ckpt_pending* pending, int* done);
/* The callback is called once with the outcome (0 or a failure), by the thread that learns it: with one rank, a thread
 * of the library. It must not call functions of the run; exceptions that it throws are dropped. */
int ckpt_on_durable(ckpt_pending* pending, void (*callback)(void* user, int outcome), void* user);
/* The same three for drained. */
int ckpt_wait_drained(ckpt_pending* pending, int64_t timeout_ms);
int ckpt_poll_drained(ckpt_pending* pending, int* done);
int ckpt_on_drained(ckpt_pending* pending, void (*callback)(void* user, int outcome), void* user);
/* The checkpoint's name in its directory once it is durable, else "". Valid until the next call of this function, as
 * long as `pending` exists. (A drain changes the name only if another job has saved to the run in the meantime.) */
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
  /* A box, each ndim long. Both NULL: this rank's part according to the run's model, else the whole tensor. */
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
  uint64_t verified_leaves;  /* leaves of 4 MiB whose hash was compared */
  uint64_t unverified_bytes; /* of leaves that were needed only in part */
  uint64_t missing;          /* names asked for that the checkpoint lacks (CKPT_PARTIAL) */
  uint64_t skipped;          /* damaged newer checkpoints and nearer copies; the log names them and the reasons */
  uint64_t received_bytes;   /* part of needed_bytes that another rank with the same data read and verified */
} ckpt_load_report;

enum { CKPT_STRICT = 0, CKPT_PARTIAL = 1 };

/* Loads from the newest checkpoint that verifies, from its local copy if there is one. If a copy is damaged, all ranks
 * fall back to the next copy of the same checkpoint, then to the previous checkpoint, and the log says so. All ranks
 * load the same checkpoint: 16 if a rank sees a different one under its name, for example because a disk is not
 * mounted. A checkpoint written by a later release is not skipped: the load fails with 12. With CKPT_STRICT a missing
 * name fails with 10. Also 10 if there is no checkpoint, 15 if none of them is usable. Collective. */
int ckpt_load(ckpt_run* run, const ckpt_read* reads, uint64_t read_count, int32_t mode, ckpt_load_report* report);

/* --- position in the data, random streams ---------------------------------------------------------------------------
 * What a job needs beside its tensors to continue on another number of ranks. Kept as blobs that src/format/LEDGER.md
 * specifies, which also says what stays bit-exact. */

typedef struct ckpt_position ckpt_position; /* which samples of an epoch are consumed, and who reads the rest */

typedef struct ckpt_shard {
  const char* name;
  uint64_t samples;
} ckpt_shard;

typedef struct ckpt_epoch {
  uint64_t size; /* sizeof(ckpt_epoch) */
  uint64_t epoch;
  uint64_t seed;         /* of the loader's permutation */
  uint64_t samples;      /* of the epoch; not read where there are shards */
  uint64_t global_batch; /* samples of one step on all ranks, at least `world` */
  uint64_t world;        /* data-parallel ranks among which a batch is divided */
  /* NULL: one order of all samples, of which every step takes the next global_batch, divided evenly among the ranks.
   * Else every rank reads ranges of these shards, one after the other. */
  const ckpt_shard* shards;
  uint64_t shard_count;
} ckpt_epoch;
/* The start of an epoch. 2 for fewer samples in a batch than ranks, and sizes that overflow. */
int ckpt_position_begin(const ckpt_epoch* epoch, ckpt_position** position);
void ckpt_position_free(ckpt_position* position);

typedef struct ckpt_range {
  uint64_t shard; /* its number; 0 where there are no shards */
  uint64_t begin, end;
} ckpt_range;
/* Samples that data-parallel rank `rank` reads `step` steps from here, in order. `ranges` has room for *count and gets
 * as many as fit; *count becomes how many there are, 0 past the end of the epoch. */
int ckpt_position_share(const ckpt_position* position, uint64_t rank, uint64_t step, ckpt_range* ranges,
                        uint64_t* count);
/* Moves on by steps of training, on all ranks alike. */
int ckpt_position_advance(ckpt_position* position, uint64_t steps);
typedef struct ckpt_position_state {
  uint64_t size; /* sizeof(ckpt_position_state) */
  uint64_t epoch, seed, samples;
  uint64_t consumed; /* of this epoch, by all ranks together */
  uint64_t global_batch, world;
  uint64_t steps_left; /* of the epoch; the last may be short */
} ckpt_position_state;
int ckpt_position_get(const ckpt_position* position, ckpt_position_state* state);

/* Adds the position to a save, as it is now. Any ranks may add it, alike: at least one does. */
int ckpt_add_position(ckpt_save* save, const ckpt_position* position);
/* The position in the checkpoint that the last ckpt_load loaded, divided anew among `world` ranks: each remaining
 * sample is read exactly once. 10 if it has none, or was deleted since; 2 before any load, or if `world` is above the
 * batch. Local. */
int ckpt_restore_position(ckpt_run* run, uint64_t world, ckpt_position** position);

/* A random number generator, known by what it is for and by where on the mesh it differs, not by the rank that had it.
 */
typedef struct ckpt_stream {
  uint64_t size;           /* sizeof(ckpt_stream) */
  const char* name;        /* "dropout" */
  const char* coordinates; /* "dp=3,tp=0": axes along which the streams differ; NULL or "": all ranks share it */
  const char* algorithm;   /* what `state` is a state of: "torch.cuda", "numpy.mt19937", the trainer's own */
  void* state;
  uint64_t bytes; /* of the state, at most 1 MiB */
} ckpt_stream;
/* Adds a copy of a stream's state to a save. Ranks that share a stream may all add it, with the same state. */
int ckpt_add_stream(ckpt_save* save, const ckpt_stream* stream);
/* Fills stream->state from the checkpoint that the last ckpt_load loaded. If it has a stream of this name, coordinates
 * and algorithm: *restored is 1, *bytes the size of the state. Otherwise (a new rank) *restored is 0 and `state` gets a
 * seed of 16 bytes from `seed`, the step that was loaded and the stream's identity: the same at every resume from
 * there, different for every other stream. 2 if stream->bytes are too few. Local. */
int ckpt_restore_stream(ckpt_run* run, const ckpt_stream* stream, uint64_t seed, uint64_t* bytes, int* restored);

/* The newest checkpoint whose structure is complete; 10 if there is no checkpoint, 15 if none of them is complete.
 * Collective. */
int ckpt_latest_usable(ckpt_run* run, ckpt_checkpoint** checkpoint);
/* Opens any checkpoint by path, in any format that ckpt reads. Local. */
int ckpt_checkpoint_open(const char* path, const ckpt_options* options, ckpt_checkpoint** checkpoint);
void ckpt_checkpoint_free(ckpt_checkpoint* checkpoint);
uint64_t ckpt_checkpoint_step(const ckpt_checkpoint* checkpoint);
const char* ckpt_checkpoint_path(const ckpt_checkpoint* checkpoint);
/* Shape and dtype of a tensor; 10 where there is none. `shape` has room for *ndim numbers and gets as many as there
 * are; *ndim becomes the number of dimensions, *dtype a name that lives with the checkpoint. */
int ckpt_checkpoint_tensor(const ckpt_checkpoint* checkpoint, const char* name, uint64_t* shape, uint32_t* ndim,
                           const char** dtype);
/* Reads many parts at once, in file order; reads only what is needed. Local. `report` may be NULL. */
int ckpt_read_plan(ckpt_checkpoint* checkpoint, const ckpt_read* reads, uint64_t read_count, ckpt_load_report* report);
/* Reads one part. */
int ckpt_read_into(ckpt_checkpoint* checkpoint, const char* name, const uint64_t* offset, const uint64_t* extent,
                   uint32_t ndim, void* out, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
