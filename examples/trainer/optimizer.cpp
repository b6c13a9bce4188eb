#include "optimizer.hpp"

#include <algorithm>
#include <cmath>

namespace {

constexpr double kRate = 0.002, kBeta1 = 0.9, kBeta2 = 0.99, kEpsilon = 1e-8;

std::size_t ceil_div(std::size_t n, int parts) {
  const auto count = static_cast<std::size_t>(parts);
  return (n + count - 1) / count;
}

}  // namespace

Optimizer::Optimizer(const NetworkSize& size, const Mesh& mesh, int zero)
    : mesh_(mesh), zero_(zero), parameters_(parameters(size, mesh)), stages_(static_cast<std::size_t>(mesh.pp_size)) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    std::size_t& stage = stages_[static_cast<std::size_t>(parameter.stage)];
    begins_.push_back(stage);
    stage += parameter.elements;
    if (parameter.stage != mesh.pp) continue;
    const std::vector<float> values = initial_values(parameter, i, mesh);
    values_.insert(values_.end(), values.begin(), values.end());
    if (zero == 3) groups_.push_back({.begin = begins_.back(), .end = stage});
  }
  elements_ = values_.size();
  if (zero != 3) groups_.push_back({.begin = 0, .end = elements_});
  std::size_t kept = 0;
  for (Group& group : groups_) {
    group.part = ceil_div(group.end - group.begin, mesh.dp_size);
    group.kept_at = kept;
    kept += part_begin(group, mesh.dp + 1) - part_begin(group, mesh.dp);
    if (zero == 3) {
      shard_.insert(shard_.end(), values_.data() + part_begin(group, mesh.dp),
                    values_.data() + part_begin(group, mesh.dp + 1));
    }
  }
  exp_avg_.resize(zero == 0 ? elements_ : kept);
  exp_avg_sq_.resize(exp_avg_.size());
}

/// The offset of a data-parallel rank's part in the stage: all parts are equal except the last ones.
std::size_t Optimizer::part_begin(const Group& group, int rank) const {
  return std::min(group.begin + static_cast<std::size_t>(rank) * group.part, group.end);
}

/// All-gathers the parts of a group over the data axis.
void Optimizer::gather(const Group& group, std::vector<float>& elements) const {
  std::vector<int> counts, begins;
  for (int rank = 0; rank < mesh_.dp_size; ++rank) {
    begins.push_back(static_cast<int>(part_begin(group, rank)));
    counts.push_back(static_cast<int>(part_begin(group, rank + 1)) - begins.back());
  }
  MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, elements.data(), counts.data(), begins.data(), MPI_FLOAT, mesh_.data);
}

const float* Optimizer::gather_values() {
  if (zero_ == 3) {
    values_.resize(elements_);
    for (const Group& group : groups_) {
      const std::size_t begin = part_begin(group, mesh_.dp);
      const std::size_t end = part_begin(group, mesh_.dp + 1);
      std::copy_n(shard_.data() + group.kept_at, end - begin, values_.data() + begin);
      gather(group, values_);
    }
  }
  return values_.data();
}

/// Sums this rank's part of the gradients of all micro-batches, like MPI_Reduce_scatter but in a fixed order.
void Optimizer::sum(const Group& group, const std::vector<float>& gradients, std::vector<float>& gradient) const {
  const std::size_t here = gradients.size() / elements_;
  const std::size_t mine = part_begin(group, mesh_.dp);
  const std::size_t length = part_begin(group, mesh_.dp + 1) - mine;
  const auto ranks = static_cast<std::size_t>(mesh_.dp_size);
  std::vector<int> counts, begins, lengths, places;
  for (int rank = 0; rank < mesh_.dp_size; ++rank) {
    begins.push_back(static_cast<int>(part_begin(group, rank)));
    counts.push_back(static_cast<int>(part_begin(group, rank + 1)) - begins.back());
    lengths.push_back(static_cast<int>(length));
    places.push_back(rank * static_cast<int>(length));
  }
  std::vector<float> received(here * ranks * length);  // of this rank's micro-batch, of rank
  for (std::size_t m = 0; m < here; ++m) {
    MPI_Alltoallv(gradients.data() + m * elements_, counts.data(), begins.data(), MPI_FLOAT,
                  received.data() + m * ranks * length, lengths.data(), places.data(), MPI_FLOAT, mesh_.data);
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {  // whose micro-batches come before the next one's
    for (std::size_t m = 0; m < here; ++m) {
      const float* one = received.data() + (m * ranks + rank) * length;
      for (std::size_t i = 0; i < length; ++i) gradient[mine + i] += one[i];
    }
  }
}

void Optimizer::update(const std::vector<float>& gradients) {
  ++steps_;
  const auto step = static_cast<double>(steps_);
  const auto rate = static_cast<float>(kRate * std::sqrt(1 - std::pow(kBeta2, step)) / (1 - std::pow(kBeta1, step)));
  constexpr auto kKeep1 = static_cast<float>(kBeta1), kKeep2 = static_cast<float>(kBeta2);
  std::vector<float> gradient(elements_);
  for (const Group& group : groups_) {
    sum(group, gradients, gradient);
    if (zero_ < 2) gather(group, gradient);
    const std::size_t begin = zero_ == 0 ? group.begin : part_begin(group, mesh_.dp);
    const std::size_t end = zero_ == 0 ? group.end : part_begin(group, mesh_.dp + 1);
    for (std::size_t i = begin; i < end; ++i) {
      float& mean = exp_avg_[group.kept_at + i - begin];
      float& square = exp_avg_sq_[group.kept_at + i - begin];
      mean = kKeep1 * mean + (1 - kKeep1) * gradient[i];
      square = kKeep2 * square + (1 - kKeep2) * gradient[i] * gradient[i];
      values_[i] -= rate * mean / (std::sqrt(square) + static_cast<float>(kEpsilon));
    }
    if (zero_ == 3) std::copy(values_.data() + begin, values_.data() + end, shard_.data() + group.kept_at);
    if (zero_ == 1 || zero_ == 2) gather(group, values_);
  }
  if (zero_ == 3) values_.clear();
}

/// The overlap of this rank's part of a group with the stage's elements [begin, end).
std::span<float> Optimizer::kept_of(std::vector<float>& state, const Group& group, std::size_t begin,
                                    std::size_t end) const {
  const std::size_t mine = part_begin(group, mesh_.dp);
  const std::size_t from = std::max(begin, mine);
  const std::size_t to = std::min(end, part_begin(group, mesh_.dp + 1));
  if (from >= to) return {};
  return std::span(state).subspan(group.kept_at + from - mine, to - from);
}

std::vector<Optimizer::Kept> Optimizer::kept() {
  std::vector<Kept> all;
  std::size_t own = 0;  // number of the parameter in this stage
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    const std::size_t divided = zero_ == 3 ? parameter.elements : stages_[static_cast<std::size_t>(parameter.stage)];
    Kept kept{.parameter = parameter, .part = ceil_div(divided, mesh_.dp_size), .begin = zero_ == 3 ? 0 : begins_[i]};
    if (parameter.stage == mesh_.pp) {
      const std::size_t begin = begins_[i];
      const std::size_t end = begin + parameter.elements;
      const Group& group = groups_[zero_ == 3 ? own++ : 0];
      const auto state = [&](std::vector<float>& of) {
        return zero_ == 0 ? std::span(of).subspan(begin, end - begin) : kept_of(of, group, begin, end);
      };
      kept.values = zero_ == 3 ? state(shard_) : std::span(values_).subspan(begin, end - begin);
      kept.exp_avg = state(exp_avg_);
      kept.exp_avg_sq = state(exp_avg_sq_);
    }
    all.push_back(kept);
  }
  return all;
}
