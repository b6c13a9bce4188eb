#include "writers/save_reports.hpp"

#include <fmt/format.h>

namespace ckpt {

void SaveReports::tell_failure(const SaveEvent& event, const std::string& what) {
  const auto outcome = event.outcome();
  if (outcome) return;
  Error error = outcome.error();
  error.message = fmt::format("{}: {}", what, error.message);
  if (const auto& told = log_failure_ ? log_failure_ : log_) told(error.message);
  untold_.add(event, std::move(error));
}

}  // namespace ckpt
