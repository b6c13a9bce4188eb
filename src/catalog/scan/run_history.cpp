#include "catalog/scan/run_history.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <string_view>

#include "catalog/failure_rate.hpp"

namespace ckpt::catalog {
namespace {

double seconds_between(Time from, Time to) {
  return std::chrono::duration<double>(to - from).count();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

RunHistory run_history(std::span<const Entry> entries) {
  std::vector<const Entry*> ours;
  for (const Entry& entry : entries)
    if (!entry.foreign && entry.checkpoint.generation != 0) ours.push_back(&entry);
  std::sort(ours.begin(), ours.end(),
            [](const Entry* a, const Entry* b) { return committed_before(a->checkpoint, b->checkpoint); });
  RunHistory out;
  std::vector<double> gaps;
  std::vector<double> steps;
  const Entry* before = nullptr;
  for (const Entry* entry : ours) {
    const Checkpoint& one = entry->checkpoint;
    const bool same_job =
        before != nullptr && before->parent == entry->parent && before->checkpoint.series == one.series;
    if (entry->save) {
      const double stall = entry->save->plan_s + entry->save->stage_s;
      out.measured = with_save(out.measured, stall, stall + entry->save->write_s);
    }
    if (same_job) {
      // Clocks may step back; a negative gap is ignored.
      const double gap = seconds_between(before->checkpoint.created, one.created);
      if (gap > 0) {
        gaps.push_back(gap);
        out.uptime_s += gap;
        const double stall = before->save ? before->save->plan_s + before->save->stage_s : 0;
        if (one.step > before->checkpoint.step && gap > stall)
          steps.push_back((gap - stall) / static_cast<double>(one.step - before->checkpoint.step));
      }
    } else {
      ++out.jobs;
      if (before != nullptr) ++out.restarts;
      if (before != nullptr && before->checkpoint.series != one.series && one.series_from) ++out.roll_backs;
    }
    before = entry;
  }
  std::set<std::string_view> parents;
  for (const Entry* entry : ours) parents.insert(entry->parent);
  for (const Entry* entry : ours)  // resumed from, and nothing was saved after
    if (entry->last(Mark::Kind::restored) && !parents.contains(entry->checkpoint.id)) ++out.restarts;
  out.uptime_s += static_cast<double>(out.jobs) * median(std::move(gaps));
  out.measured.step_s = median(std::move(steps));
  return out;
}

double careful_mtbf(const RunHistory& history) {
  if (history.restarts == 0 || !(history.uptime_s > 0)) return 0;
  return estimate_mtbf({.uptime_s = history.uptime_s, .failures = history.restarts}).low_s;
}

}  // namespace ckpt::catalog
