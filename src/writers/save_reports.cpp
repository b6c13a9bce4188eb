#include "writers/save_reports.hpp"

#include <fmt/format.h>

#include "format/text/error_context.hpp"

namespace ckpt {

void SaveReports::report_failure(const SaveEvent& event, const std::string& what) {
  const auto outcome = event.outcome();
  if (outcome) return;
  Error error = with_context(outcome.error(), what);
  if (const auto& told = log_failure_ ? log_failure_ : log_) told(error.message);
  unreported_.add(event, std::move(error));
}

}  // namespace ckpt
