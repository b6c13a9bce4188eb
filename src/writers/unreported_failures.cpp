#include "writers/unreported_failures.hpp"

#include <fmt/format.h>

#include <utility>

namespace ckpt {
namespace {

bool is_worse(const Error& a, const Error& b) {
  return a.verdict.value_or(a.code) > b.verdict.value_or(b.code);
}

}  // namespace

void UnreportedFailures::add(const SaveEvent& event, Error error) {
  sort_out();
  failures_.push_back({.told = event.reported_mark(), .error = std::move(error)});
}

void UnreportedFailures::sort_out() {
  std::vector<Failure> kept;
  for (Failure& failure : failures_) {
    if (*failure.told) continue;
    if (failure.told.use_count() > 1) {
      kept.push_back(std::move(failure));
      continue;
    }
    if (++forgotten_.count == 1 || is_worse(failure.error, forgotten_.worst)) {
      forgotten_.worst = std::move(failure.error);
    }
  }
  failures_ = std::move(kept);
}

std::optional<Error> UnreportedFailures::worst() {
  sort_out();
  std::optional<Error> worst;
  if (forgotten_.count != 0) worst = forgotten_.worst;
  for (const Failure& failure : failures_) {
    if (!worst || is_worse(failure.error, *worst)) worst = failure.error;
  }
  const std::size_t count = forgotten_.count + failures_.size();
  if (count > 1) worst->message += fmt::format(" ({} more failed)", count - 1);
  return worst;
}

}  // namespace ckpt
