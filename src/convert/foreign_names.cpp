#include "convert/foreign_names.hpp"

#include "convert/format.hpp"

namespace ckpt {

ForeignNames foreign_names() {
  ForeignNames out;
  for (const Format& format : formats()) {
    const FormatNames& own = format.names;
    out.steps.insert(out.steps.end(), own.steps.begin(), own.steps.end());
    out.trackers.insert(out.trackers.end(), own.trackers.begin(), own.trackers.end());
    out.markers.insert(out.markers.end(), own.markers.begin(), own.markers.end());
    out.file_suffixes.insert(out.file_suffixes.end(), own.file_suffixes.begin(), own.file_suffixes.end());
    if (own.name_metrics != nullptr) out.name_metrics.push_back(own.name_metrics);
    out.metrics.insert(out.metrics.end(), own.metrics.begin(), own.metrics.end());
  }
  return out;
}

}  // namespace ckpt
