#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/run/run.hpp"
#include "support/thread_comm.hpp"

namespace ckpt::test {

/// How a job of several ranks divides its model.
struct JobLayout {
  std::uint64_t dp = 1;
  std::uint64_t tp = 1;
  std::uint64_t pp = 1;
  unsigned zero = 0;
  std::uint64_t ranks() const { return dp * tp * pp; }
};

/// A small model whose values are known from step, name and position alone: weights cut by tensor and pipeline
/// parallelism, optimizer slots by ZeRO, replicated buffers.
Result<Model> model_of(const JobLayout& layout);

/// The part of a tensor that a rank holds at a step, as bytes.
std::vector<std::byte> part_of(const Model& model, const universal::TensorRow& row, std::uint64_t rank,
                               std::uint64_t step);

/// Adds every part of this rank, and a separate blob. The bytes are in `memory` until commit has returned.
Result<> add_all(Run& run, std::uint64_t step, std::vector<std::vector<std::byte>>& memory);

/// Loads every part of this rank; `internal` if a byte is not that of the loaded step.
Result<Run::Loaded> load_parts(Run& run);
/// The same; the step.
Result<std::uint64_t> load_all(Run& run);

/// Runs `body` on every rank, each with its own run over `io(rank)`.
void with_runs(const JobLayout& layout, const std::string& run_directory, const Run::Options& options,
               const std::function<std::unique_ptr<Io>(std::size_t rank)>& io,
               const std::function<void(std::size_t rank, Result<std::unique_ptr<Run>> run)>& body);

/// Begins, adds, commits and waits.
Result<> save_step(Run& run, std::uint64_t step);

}  // namespace ckpt::test
