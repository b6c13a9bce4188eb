#include "catalog/scan/resume_sources.hpp"

#include <optional>
#include <string_view>
#include <unordered_map>

namespace ckpt::catalog {

void note_resume_sources(std::vector<Entry>& entries) {
  struct Loaded {
    Entry* entry = nullptr;
    Time at{};
  };
  std::unordered_map<std::string_view, Loaded> last;  // by run
  for (Entry& entry : entries) {
    const auto at = entry.last(Mark::Kind::restored);
    if (!at) continue;
    Loaded& of_run = last[entry.checkpoint.run];
    if (of_run.entry == nullptr || of_run.at < *at) of_run = {&entry, *at};
  }
  for (const auto& [run, loaded] : last) loaded.entry->checkpoint.resume_source = true;
}

}  // namespace ckpt::catalog
