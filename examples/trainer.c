/* A training job in C that uses ckpt: one linear layer with Adam, data parallel, its state divided as by ZeRO-1.
 *
 *   mpirun -n 3 trainer_c RUN STEPS EVERY [DIE_AT]     resumes from the newest checkpoint, on any number of ranks
 *
 * Saves every EVERY steps; rank 0 is killed after step DIE_AT. Losses do not depend on the number of ranks: gradients
 * are added in the order of samples. */
#include <ckpt/ckpt.h>
#include <math.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { kIn = 24, kOut = 10, kElements = kIn * kOut, kSamples = 12 };

static int rank;
static int ranks;
static int failed; /* code of the last failed save, or 0: the exit code of the job */

/* Ends the job with the library's last error. */
static void need(int code, const char* call) {
  if (code == 0) return;
  fprintf(stderr, "trainer_c: rank %d: %s: %s\n", rank, call, ckpt_last_error_json());
  MPI_Abort(MPI_COMM_WORLD, code);
}

static void print_log(void* user, const char* text) {
  (void)user;
  if (rank == 0) fprintf(stderr, "ckpt: %s\n", text);
}

/* --- saved state -------------------------------------------------------------------------------------------------- */

/* The weight is replicated. Of the two slots, laid flat, each rank has `part` elements from part * rank on, the last
 * ranks less or none: `kept` of them. */
typedef struct {
  float weight[kElements];
  float exp_avg[kElements], exp_avg_sq[kElements]; /* the first `kept` are used */
  int64_t step;
  size_t part, begin, kept;
} State;

static const char* const kWeight = "linear.weight";
static const char* const kExpAvg = "optimizer.state.linear.weight.exp_avg";
static const char* const kExpAvgSq = "optimizer.state.linear.weight.exp_avg_sq";
static const char* const kStep = "optimizer.step";

static ckpt_model* declare(const State* state) {
  const uint64_t shape[2] = {kOut, kIn};
  const uint64_t numbers[2] = {state->part, 0};
  const ckpt_axis axis = {"dp", (uint64_t)ranks};
  const ckpt_step flat = {.kind = CKPT_FLAT, .axes = "dp", .numbers = numbers, .number_count = 2};
  ckpt_tensor tensor = {.size = sizeof tensor, .name = kWeight, .dtype = "F32", .shape = shape, .ndim = 2};
  ckpt_model* model = NULL;
  need(ckpt_model_new(&axis, 1, &model), "model");
  need(ckpt_model_tensor(model, &tensor, NULL, 0), "declare");
  tensor.role = "slot";
  tensor.parameter = kWeight;
  tensor.name = kExpAvg;
  tensor.slot = "exp_avg";
  need(ckpt_model_tensor(model, &tensor, &flat, 1), "declare");
  tensor.name = kExpAvgSq;
  tensor.slot = "exp_avg_sq";
  need(ckpt_model_tensor(model, &tensor, &flat, 1), "declare");
  const ckpt_tensor step = {.size = sizeof step, .name = kStep, .dtype = "I64", .role = "slot", .slot = "step"};
  need(ckpt_model_tensor(model, &step, NULL, 0), "declare");
  return model;
}

static void resume(ckpt_run* run, State* state) {
  ckpt_checkpoint* newest = NULL;
  const int code = ckpt_latest_usable(run, &newest);
  if (code == 10) return; /* no checkpoint yet */
  need(code, "latest_usable");
  ckpt_checkpoint_free(newest);
  /* Without a box a read is this rank's part by the model. A rank may have none of a slot. */
  const uint64_t slot_bytes = state->kept * sizeof(float);
  const ckpt_read reads[4] = {
      {.size = sizeof *reads, .name = kWeight, .out = state->weight, .bytes = sizeof state->weight},
      {.size = sizeof *reads, .name = kStep, .out = &state->step, .bytes = sizeof state->step},
      {.size = sizeof *reads, .name = kExpAvg, .out = state->exp_avg, .bytes = slot_bytes},
      {.size = sizeof *reads, .name = kExpAvgSq, .out = state->exp_avg_sq, .bytes = slot_bytes}};
  need(ckpt_load(run, reads, 4, CKPT_STRICT, NULL), "load");
}

/* Copies everything and returns; the checkpoint is written while training continues. */
static ckpt_pending* save(ckpt_run* run, const State* state) {
  ckpt_save* begun = NULL;
  ckpt_pending* pending = NULL;
  need(ckpt_begin(run, (uint64_t)state->step, &begun), "begin");
  need(ckpt_add(begun, kWeight, state->weight, sizeof state->weight), "add");
  need(ckpt_add(begun, kStep, &state->step, sizeof state->step), "add");
  need(ckpt_add(begun, kExpAvg, state->exp_avg, state->kept * sizeof(float)), "add");
  need(ckpt_add(begun, kExpAvgSq, state->exp_avg_sq, state->kept * sizeof(float)), "add");
  need(ckpt_commit(begun, &pending), "commit");
  return pending;
}

/* Waits until the save is durable, and releases it. A failed save does not stop training; a lost rank does, because the
 * next MPI call would wait for it forever. */
static void finish(ckpt_run* run, ckpt_pending* pending) {
  if (pending == NULL) return;
  const int code = ckpt_wait(pending, 600000);
  if (ckpt_ranks_lost(run)) need(code, "wait");
  if (code != 0) failed = code;
  if (rank == 0)
    fprintf(stderr, "trainer_c: saved '%s' %s\n", ckpt_pending_name(pending), code ? ckpt_last_error_json() : "");
  ckpt_pending_free(pending);
}

/* --- training ----------------------------------------------------------------------------------------------------- */

/* The gradient of one sample's squared error, and the error. */
static double sample_gradient(int64_t step, int sample, const float* weight, float* gradient) {
  float input[kIn];
  double loss = 0;
  for (int k = 0; k < kIn; ++k) input[k] = (float)sin((double)(step * kSamples + sample) * (k + 1));
  for (int o = 0; o < kOut; ++o) {
    float error = -0.5F * input[o];
    for (int k = 0; k < kIn; ++k) error += weight[o * kIn + k] * input[k];
    for (int k = 0; k < kIn; ++k) gradient[o * kIn + k] = error * input[k] / kSamples;
    loss += (double)(error * error);
  }
  return loss / kSamples;
}

static double train_step(State* state) {
  static float own[kSamples * (kElements + 1)], all[kSamples * (kElements + 1)];
  const int here = kSamples / ranks;
  const int length = kElements + 1; /* a sample's gradient, then its loss */
  for (int i = 0; i < here; ++i) {
    float* one = own + i * length;
    one[kElements] = (float)sample_gradient(state->step, rank * here + i, state->weight, one);
  }
  MPI_Allgather(own, here * length, MPI_FLOAT, all, here * length, MPI_FLOAT, MPI_COMM_WORLD);
  float gradient[kElements + 1] = {0};
  for (int i = 0; i < kSamples * length; ++i) gradient[i % length] += all[i];

  ++state->step;
  for (size_t i = 0; i < state->kept; ++i) {
    const float slope = gradient[state->begin + i];
    state->exp_avg[i] = 0.9F * state->exp_avg[i] + 0.1F * slope;
    state->exp_avg_sq[i] = 0.99F * state->exp_avg_sq[i] + 0.01F * slope * slope;
    state->weight[state->begin + i] -= 0.01F * state->exp_avg[i] / (sqrtf(state->exp_avg_sq[i]) + 1e-8F);
  }
  int counts[kSamples], begins[kSamples];
  for (int r = 0; r < ranks; ++r) {
    const int begin = r * (int)state->part;
    begins[r] = begin < kElements ? begin : kElements;
    counts[r] = kElements - begins[r] < (int)state->part ? kElements - begins[r] : (int)state->part;
  }
  MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, state->weight, counts, begins, MPI_FLOAT, MPI_COMM_WORLD);
  return (double)gradient[kElements];
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 4 || kSamples % ranks != 0) {
    fprintf(stderr, "usage: trainer_c RUN STEPS EVERY [DIE_AT]; the number of ranks divides %d\n", kSamples);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int64_t steps = atoll(argv[2]);
  const int64_t die_at = argc > 4 ? atoll(argv[4]) : 0;
  static State state;
  state.part = (size_t)((kElements + ranks - 1) / ranks);
  state.begin = (size_t)rank * state.part;
  if (state.begin > kElements) state.begin = kElements;
  state.kept = kElements - state.begin < state.part ? kElements - state.begin : state.part;

  ckpt_comm_table world; /* of the plug-in; a C++ program makes one with ckpt/mpi.hpp */
  need(ckpt_comm_world(&world), "comm_world");
  const ckpt_options options = {.size = sizeof options,
                                .comm = &world,
                                .staging_memory = 8 << 20,
                                .every_steps = (uint64_t)atoll(argv[3]),
                                .framework = "trainer_c",
                                .log = print_log};
  ckpt_run* run = NULL;
  need(ckpt_run_open(argv[1], &options, &run), "open");
  ckpt_model* model = declare(&state);
  need(ckpt_run_set_model(run, model), "set_model");
  ckpt_model_free(model);
  resume(run, &state);
  if (rank == 0) fprintf(stderr, "trainer_c: begins after step %lld\n", (long long)state.step);

  ckpt_pending* pending = NULL;
  while (state.step < steps) {
    const double loss = train_step(&state);
    if (rank == 0) printf("step %lld loss %a\n", (long long)state.step, loss);
    if (rank == 0) fflush(stdout);
    if (rank == 0 && state.step == die_at) raise(SIGKILL);
    int due = 0;
    need(ckpt_should_save(run, (uint64_t)state.step, &due), "should_save");
    if (!due) continue;
    finish(run, pending); /* one save at a time is in flight */
    pending = save(run, &state);
  }
  finish(run, pending);
  need(ckpt_run_close(run), "close");
  MPI_Finalize();
  return failed;
}
