#include "catalog/checkpoint.hpp"

#include <tuple>

namespace ckpt::catalog {

std::string_view state_word(const Checkpoint& checkpoint) {
  if (checkpoint.superseded && checkpoint.state >= State::committed) return "superseded";
  switch (checkpoint.state) {
    case State::uncommitted:
      return "unfinished";
    case State::unreadable:
      return "unreadable";
    case State::repairable:
      return "repairable";
    case State::corrupt:
      return "damaged";
    case State::committed:
      return checkpoint.foreign ? "unverified" : "complete";
    case State::verified:
      return "verified";
  }
  return {};
}

const double* find_metric(const Checkpoint& checkpoint, const std::string& name) {
  for (const auto& [key, value] : checkpoint.metrics) {
    if (key == name) return &value;
  }
  return nullptr;
}

bool older(const Checkpoint& a, const Checkpoint& b) {
  return std::tie(a.series, a.step, a.generation, a.id) < std::tie(b.series, b.step, b.generation, b.id);
}

CommitOrder commit_order(const Checkpoint& one) {
  if (one.generation != 0) return {one.generation, 0, 0, one.id};
  return {0, one.series, one.step, one.id};
}

bool committed_before(const Checkpoint& a, const Checkpoint& b) {
  return commit_order(a) < commit_order(b);
}

}  // namespace ckpt::catalog
