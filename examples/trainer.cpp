// A training job that uses ckpt: an MLP with Adam on synthetic data, on any mesh of MPI ranks, saved in the background,
// killed at any time, resumed on any other mesh, with the same losses to the last bit.
//
//   mpirun -n 4 trainer --dir run --dp 2 --tp 2 --zero 1 --steps 100 --every 10
//   mpirun -n 2 trainer --dir run --pp 2 --steps 200 --every 10           (resumes from the newest checkpoint)
//
// All checkpoint code is in this file; trainer/ has the training.
#include <mpi.h>
#include <signal.h>

#include <chrono>
#include <cinttypes>
#include <ckpt/ckpt.hpp>
#include <ckpt/mpi.hpp>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include "trainer/data.hpp"
#include "trainer/mesh.hpp"
#include "trainer/network.hpp"
#include "trainer/optimizer.hpp"

namespace {

constexpr int kMicroBatches = 12;  // of a step, on all ranks together: they fix the order of sums
constexpr std::size_t kMicroBatchSamples = 2;
constexpr std::size_t kBatchSamples = kMicroBatches * kMicroBatchSamples;

struct Flags {
  std::string dir;
  std::string local;  // saves go here first: a disk of the node, shared by its ranks
  int pp = 1, dp = 1, tp = 1, zero = 0, layers = 4;
  std::uint64_t width = 256, steps = 20, every = 5, staging = 64 << 20, patience_s = 60;
  std::uint64_t die_at = 0;     // kill -9 at this step ...
  int die_rank = 0;             // ... of this rank ...
  std::string die_in = "save";  // ... in its save, or after its "commit", or after the "step" before its save
};

/// Ends the job; the rank that noticed the failure prints it.
[[noreturn]] void give_up(const ckpt::Error& error, const char* call) {
  std::fprintf(stderr, "trainer: %s: %s\n", call, error.json.c_str());
  MPI_Abort(MPI_COMM_WORLD, error.code);
  std::abort();
}

template <class T>
T need(ckpt::Result<T> result, const char* call) {
  if (!result) give_up(result.error(), call);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// All state that training changes, and its layout on the ranks.
struct Training {
  Mesh mesh;
  Network network;
  Optimizer optimizer;
  Position position{};
  Random random{};
};

// --- checkpoints ----------------------------------------------------------------------------------------------------

/// One tensor of the job, declared identically on all ranks; `part` is the memory of this rank's part.
struct Entry {
  ckpt::Tensor tensor;
  std::vector<ckpt::Step> layout;
  std::span<float> part;
};

/// Every parameter and its two Adam slots, with their real layouts: stage, tensor-parallel cut, ZeRO part.
std::vector<Entry> entries_of(Optimizer& optimizer, int zero) {
  std::vector<Entry> entries;
  for (const Optimizer::Kept& kept : optimizer.kept()) {
    const Parameter& parameter = kept.parameter;
    std::vector<ckpt::Step> held{ckpt::Model::stage("pp", {static_cast<std::uint64_t>(parameter.stage)})};
    if (parameter.cut_dim == 0) held.push_back(ckpt::Model::column("tp"));
    if (parameter.cut_dim == 1) held.push_back(ckpt::Model::row("tp"));
    std::vector<ckpt::Step> divided = held;
    divided.push_back(ckpt::Step::flat("dp", kept.part, kept.begin));
    entries.push_back({.tensor = {.name = parameter.name, .shape = parameter.shape},
                       .layout = zero == 3 ? divided : held,
                       .part = kept.values});
    for (const auto& [slot, part] : {std::pair("exp_avg", kept.exp_avg), std::pair("exp_avg_sq", kept.exp_avg_sq)}) {
      entries.push_back({.tensor = {.name = "optimizer.state." + parameter.name + "." + slot,
                                    .shape = parameter.shape,
                                    .role = "slot",
                                    .parameter = parameter.name,
                                    .slot = slot},
                         .layout = zero == 0 ? held : divided,
                         .part = part});
    }
  }
  return entries;
}

const ckpt::Tensor kSteps{.name = "optimizer.steps", .dtype = "I64", .shape = {}, .role = "slot", .slot = "step"};
const ckpt::Stream kAugment{.name = "augment", .algorithm = "splitmix64"};  // the same on all ranks

ckpt::Model declare(const Mesh& mesh, const std::vector<Entry>& entries) {
  const auto size = [](int ranks) { return static_cast<std::uint64_t>(ranks); };
  auto model = need(
      ckpt::Model::on({{"pp", size(mesh.pp_size)}, {"dp", size(mesh.dp_size)}, {"tp", size(mesh.tp_size)}}), "model");
  for (const Entry& entry : entries) need(model.tensor(entry.tensor, entry.layout), "declare");
  need(model.tensor(kSteps, {}), "declare");  // no steps: replicated on all ranks
  return model;
}

/// Loads the newest checkpoint that verifies, saved on any mesh. Returns the step that it was saved after, or 0.
std::uint64_t resume(ckpt::Run& run, Training& training, std::vector<Entry>& entries) {
  if (const auto newest = run.latest_usable(); !newest) {
    if (newest.error().code == 10) return 0;  // no checkpoint yet
    give_up(newest.error(), "latest_usable");
  }
  std::vector<ckpt::Read> reads;
  for (Entry& entry : entries) {
    if (!entry.part.empty()) reads.push_back({.name = entry.tensor.name, .out = std::as_writable_bytes(entry.part)});
  }
  reads.push_back({.name = kSteps.name, .out = std::as_writable_bytes(std::span(&training.optimizer.steps(), 1))});
  const ckpt_load_report report = need(run.load(reads), "load");
  const auto position = need(run.restore_position(static_cast<std::uint64_t>(training.mesh.dp_size)), "position");
  training.position = {.epoch = position.state().epoch, .consumed = position.state().consumed};
  need(run.restore_stream(kAugment, std::as_writable_bytes(std::span(&training.random.state, 1)), kSeed), "stream");
  return report.step;
}

void die_here(const Flags& flags, const Training& training, std::uint64_t step, const char* where) {
  if (step == flags.die_at && training.mesh.rank == flags.die_rank && flags.die_in == where) ::raise(SIGKILL);
}

/// Adds everything and returns when it is copied; training may change it while it is written.
ckpt::Result<ckpt::Pending> save(ckpt::Run& run, const Flags& flags, Training& training, std::uint64_t step,
                                 double loss, const std::vector<Entry>& entries) {
  auto begun = run.begin(step);
  if (!begun) return tl::unexpected(begun.error());
  auto position = need(ckpt::Position::begin({.epoch = training.position.epoch,
                                              .seed = kSeed,
                                              .samples = kSamples,
                                              .global_batch = kBatchSamples,
                                              .world = static_cast<std::uint64_t>(training.mesh.dp_size)}),
                       "position");
  need(position.advance(training.position.consumed / kBatchSamples), "position");
  const auto add_all = [&]() -> ckpt::Result<> {
    for (const Entry& entry : entries) {
      if (entry.part.empty()) continue;
      if (auto added = begun->add(entry.tensor.name, std::as_bytes(entry.part)); !added) return added;
    }
    auto added = begun->add(kSteps.name, std::as_bytes(std::span(&training.optimizer.steps(), 1)));
    if (added) added = begun->position(position);
    if (added) added = begun->stream(kAugment, std::as_bytes(std::span(&training.random.state, 1)));
    if (added) added = begun->metric("loss", loss);
    return added;
  };
  if (auto added = add_all(); !added) give_up(added.error(), "add");  // a bug in this program
  die_here(flags, training, step, "save");
  auto pending = begun->commit();
  die_here(flags, training, step, "commit");
  return pending;
}

/// Reports saves that have finished, in order. A failed save does not stop training: returns the code of the last one,
/// for the end of the job, or 0 if none failed.
int tell_ended(std::deque<ckpt::Pending>& saves, int rank) {
  int failed = 0;
  while (!saves.empty()) {
    const auto done = saves.front().poll();
    if (done && !*done) break;
    if (!done) failed = done.error().code;
    if (rank == 0 && !done) std::fprintf(stderr, "trainer: a save failed: %s\n", done.error().json.c_str());
    if (rank == 0 && done) {
      const ckpt_stats stats = saves.front().stats();
      std::fprintf(stderr, "trainer: saved %s, commit took %.2f ms\n", saves.front().name().c_str(),
                   1e3 * (stats.plan_s + stats.stage_s));
    }
    saves.pop_front();
  }
  return failed;
}

// --- training -------------------------------------------------------------------------------------------------------

/// One step on the next global batch; its mean loss.
double train_step(Training& training) {
  const Mesh& mesh = training.mesh;
  Optimizer& optimizer = training.optimizer;
  const std::uint64_t augmentation = training.random.next();
  const int here = kMicroBatches / mesh.dp_size;
  const float* values = optimizer.gather_values();
  std::vector<float> gradients(static_cast<std::size_t>(here) * optimizer.elements());
  std::vector<double> losses(kMicroBatches);
  for (int m = 0; m < here; ++m) {
    const auto number = static_cast<std::size_t>(mesh.dp * here + m);
    Network::Batch batch;
    for (std::size_t s = 0; s < kMicroBatchSamples; ++s) {
      batch.push_back(
          sample(training.position, number * kMicroBatchSamples + s, augmentation, training.network.width()));
    }
    float* gradient = gradients.data() + static_cast<std::size_t>(m) * optimizer.elements();
    training.network.train(batch, kBatchSamples, values, gradient, losses[number]);
    if (!mesh.is_last_stage() || mesh.tp != 0) losses[number] = 0;
  }
  optimizer.update(gradients);
  training.position.advance(kBatchSamples);
  // Of every element one rank has the loss and the others 0, so the sum is exact in any order.
  MPI_Allreduce(MPI_IN_PLACE, losses.data(), kMicroBatches, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  double loss = 0;
  for (const double one : losses) loss += one;
  return loss;
}

bool parse(int argc, char** argv, Flags& flags) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    const auto number = std::strtoull(value.c_str(), nullptr, 10);
    if (flag == "--dir")
      flags.dir = value;
    else if (flag == "--local")
      flags.local = value;
    else if (flag == "--die-in")
      flags.die_in = value;
    else if (flag == "--pp")
      flags.pp = static_cast<int>(number);
    else if (flag == "--dp")
      flags.dp = static_cast<int>(number);
    else if (flag == "--tp")
      flags.tp = static_cast<int>(number);
    else if (flag == "--zero")
      flags.zero = static_cast<int>(number);
    else if (flag == "--layers")
      flags.layers = static_cast<int>(number);
    else if (flag == "--width")
      flags.width = number;
    else if (flag == "--steps")
      flags.steps = number;
    else if (flag == "--every")
      flags.every = number;
    else if (flag == "--staging")
      flags.staging = number;
    else if (flag == "--patience")
      flags.patience_s = number;
    else if (flag == "--die-at")
      flags.die_at = number;
    else if (flag == "--die-rank")
      flags.die_rank = static_cast<int>(number);
    else
      return false;
  }
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return argc % 2 == 1 && !flags.dir.empty() && flags.pp * flags.dp * flags.tp == ranks && flags.zero <= 3 &&
         kMicroBatches % flags.dp == 0 && kBlocks % flags.tp == 0 && flags.width % kBlocks == 0 &&
         flags.layers % 2 == 0 && flags.layers % flags.pp == 0;
}

int train(const Flags& flags) {
  const Mesh mesh = Mesh::make(flags.pp, flags.dp, flags.tp);
  const NetworkSize size{.layers = flags.layers, .width = flags.width};
  Training training{mesh, Network(size, mesh), Optimizer(size, mesh, flags.zero)};

  auto run = need(ckpt::Run::open(flags.dir, {.comm = ckpt::mpi(MPI_COMM_WORLD),
                                              .staging_memory = flags.staging,
                                              .patience = std::chrono::seconds(flags.patience_s),
                                              .every_steps = flags.every,
                                              .catch_signals = true,
                                              .framework = "trainer",
                                              .log =
                                                  [&](std::string_view text) {
                                                    if (mesh.rank != 0) return;
                                                    std::fprintf(stderr, "ckpt: %.*s\n", static_cast<int>(text.size()),
                                                                 text.data());
                                                  },
                                              .local_directory = flags.local}),
                  "open");
  std::vector<Entry> entries = entries_of(training.optimizer, flags.zero);
  need(run.set_model(declare(mesh, entries)), "set_model");
  std::uint64_t step = resume(run, training, entries);
  if (mesh.rank == 0) std::fprintf(stderr, "trainer: begins after step %" PRIu64 "\n", step);

  int failed = 0;  // code of the last failed save, or 0
  const auto note = [&](int code) { failed = code == 0 ? failed : code; };
  std::deque<ckpt::Pending> saves;  // in flight
  while (step < flags.steps && !run.stop_requested()) {
    ++step;
    const double loss = train_step(training);
    if (mesh.rank == 0) std::printf("step %" PRIu64 " loss %a\n", step, loss);
    if (mesh.rank == 0) std::fflush(stdout);
    die_here(flags, training, step, "step");
    if (need(run.should_save(step), "should_save")) {
      auto pending = save(run, flags, training, step, loss, entries);
      if (pending)
        saves.push_back(std::move(*pending));
      else if (run.ranks_lost())
        give_up(pending.error(), "commit");  // the next MPI call would never return
      else
        std::fprintf(stderr, "trainer: step %" PRIu64 " is not saved: %s\n", step, pending.error().json.c_str());
      if (!pending) note(pending.error().code);
    }
    note(tell_ended(saves, mesh.rank));
  }
  for (ckpt::Pending& pending : saves) static_cast<void>(pending.wait(std::chrono::minutes(10)));
  note(tell_ended(saves, mesh.rank));
  need(run.close(), "close");
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Flags flags;
  int code = 2;
  if (parse(argc, argv, flags)) {
    code = train(flags);
  } else {
    std::fprintf(stderr, "usage: trainer --dir RUN [--pp N --dp N --tp N --zero 0..3] [--steps N --every N] ...\n");
  }
  MPI_Finalize();
  return code;
}
