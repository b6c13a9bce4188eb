#include "api/run/exit_report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace ckpt {
namespace {

/// Runs that are open in this process. Never destroyed: the process may exit in any order.
struct OpenRuns {
  std::mutex mutex;
  std::vector<const ExitReport*> reports;  // guarded by mutex
  pid_t process = 0;                       // that opened one last: a forked child that opened none has nothing to say
};

OpenRuns& open_runs() {
  static auto* const runs = new OpenRuns;
  return *runs;
}

void report_all() {
  OpenRuns& runs = open_runs();
  if (::getpid() != runs.process) return;
  const std::scoped_lock lock(runs.mutex);
  for (const ExitReport* report : runs.reports) {
    const std::string text = report->text();
    if (!text.empty()) std::fprintf(stderr, "ckpt: %s\n", text.c_str());
  }
}

}  // namespace

ExitReport::ExitReport(std::string run_directory, bool reports)
    : run_directory_(std::move(run_directory)), reports_(reports), process_(::getpid()) {
  static const int registered = std::atexit(report_all);
  static_cast<void>(registered);  // refused: the exit is silent
  OpenRuns& runs = open_runs();
  const std::scoped_lock lock(runs.mutex);
  runs.process = process_;
  runs.reports.push_back(this);
}

ExitReport::~ExitReport() {
  OpenRuns& runs = open_runs();
  const std::scoped_lock lock(runs.mutex);
  std::erase(runs.reports, this);
}

/// Needs no further report.
bool ExitReport::Save::is_settled() const {
  return save ? save->durable().known() && save->durable().outcome() : reported->load();
}

/// Of one that failed only the words are kept.
void ExitReport::Save::shrink() {
  if (!save || !save->durable().known()) return;
  auto outcome = save->durable().outcome();
  if (outcome) return;
  failure = std::move(outcome).error().message;
  save.reset();
}

void ExitReport::add(std::uint64_t step, std::shared_ptr<const PendingSave> save) {
  if (!reports_) return;
  const std::scoped_lock lock(mutex_);
  for (Save& earlier : saves_) earlier.shrink();
  std::erase_if(saves_, [](const Save& earlier) { return earlier.is_settled(); });
  auto reported = save->durable().reported_mark();
  saves_.push_back({.step = step, .reported = std::move(reported), .save = std::move(save)});
}

std::string ExitReport::text() const {
  if (::getpid() != process_) return "";  // and its lock may be held by a thread that is not in this process
  const std::scoped_lock lock(mutex_);
  std::string out;
  for (Save each : saves_) {
    each.shrink();
    if (each.is_settled()) continue;
    out += fmt::format("; step {}: {}", each.step,
                       each.save ? "still being saved, may be lost" : "not saved: " + each.failure);
  }
  return out.empty() ? "" : run_directory_ + ": the program exited without closing the run" + out;
}

}  // namespace ckpt
