#include "api/convert/mark_facts.hpp"

#include <fmt/format.h>

#include <map>
#include <string>

#include "catalog/scan/entry.hpp"
#include "catalog/scan/marks.hpp"
#include "catalog/scan/utc.hpp"

namespace ckpt {
namespace {

void append(std::string& line, std::string_view between, std::string_view text) {
  line += fmt::format("{}{}", line.empty() ? "" : between, text);
}

std::string pin_text(const catalog::Mark& pin) {
  std::string out = pin.name;
  if (!pin.owner.empty()) append(out, " ", "by " + pin.owner);
  if (pin.until) append(out, " ", "until " + catalog::time_text(*pin.until));
  if (!pin.text.empty()) append(out, ": ", pin.text);
  return out.empty() ? "yes" : out;
}

}  // namespace

std::vector<InspectReport::Fact> mark_facts(Io& io, const Source& source) {
  std::map<std::string, double> metrics;
  std::string tags;
  std::string pins;
  std::vector<InspectReport::Fact> out;
  for (const auto& [key, text] : source.map.meta.user)
    if (const auto metric = catalog::metric_in(key, text)) metrics[std::string(metric->first)] = metric->second;
  for (const catalog::Mark& mark : catalog::read_marks(io, catalog::marks_path(source.root)).marks) {
    if (mark.kind == catalog::Mark::Kind::metric) metrics[mark.name] = mark.value;
    if (mark.kind == catalog::Mark::Kind::tag) append(tags, ", ", mark.name);
    if (mark.kind == catalog::Mark::Kind::pin) append(pins, "; ", pin_text(mark));
    if (mark.kind == catalog::Mark::Kind::note && mark.name != catalog::kScrubNote) out.push_back({"note", mark.text});
  }
  if (!pins.empty()) out.insert(out.begin(), {"pinned", pins});
  if (!tags.empty()) out.insert(out.begin(), {"tags", tags});
  std::string line;
  for (const auto& [name, value] : metrics) append(line, " · ", fmt::format("{} {:.6g}", name, value));
  if (!line.empty()) out.insert(out.begin(), {"metrics", line});
  return out;
}

}  // namespace ckpt
