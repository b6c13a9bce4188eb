#include "catalog/policy_presets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "catalog/metric_order.hpp"

namespace ckpt::catalog {
namespace {

constexpr std::size_t kMostTags = 8;  // more are not names that a person chose one by one

/// Can be written in quotes, in a file of ASCII.
bool is_plain(std::string_view word) {
  return !word.empty() &&
         std::ranges::all_of(word, [](char c) { return c > ' ' && c <= '~' && c != '"' && c != '\\'; });
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// One setting, and its comment in a column.
std::string line(std::string_view setting, std::string_view comment) {
  return fmt::format("{:<42} # {}\n", setting, comment);
}

std::string head(Preset preset, std::string_view purpose) {
  return fmt::format(
             "# Retention policy \"{}\": {}\n"
             "#\n"
             "#   ckpt policy show       what it keeps, run by run\n"
             "#   ckpt prune             what it would delete; changes nothing\n"
             "#   ckpt prune --apply     deletes: moves to the trash\n"
             "#   ckpt undelete RUN      restores from the trash\n"
             "\n"
             "# One [[rule]] for each pattern of runs; the first that matches a run applies to it. Runs that none\n"
             "# matches are never changed. A checkpoint stays if any line of [rule.keep] keeps it. Pinned checkpoints\n"
             "# always stay.\n"
             "[[rule]]\n",
             kPresetNames[static_cast<std::size_t>(preset)], purpose) +
         line("runs = \"*\"", "all runs; \"llama8b\" or \"prod/*\" for some");
}

std::string tail(std::string_view ttl) {
  return "\n# Holds for every rule above.\n[guard]\n" +
         line("newest_verified = 1", "the newest verified checkpoint of each run stays") +
         line("max_delete_fraction = 0.5", "a new or changed policy needs -y to delete more than half") +
         "\n[trash]\n" + line(fmt::format("ttl = \"{}\"", ttl), "deleted checkpoints can be restored for this time");
}

std::string best_lines(const Recorded& recorded) {
  const std::string metric = ranking_metric(recorded.metrics);
  if (metric.empty()) {
    return "# No metric is recorded yet. Record one with 'ckpt mark RUN@STEP --metric eval_loss=1.2', then remove\n"
           "# the # of the next line:\n"
           "# best = { metric = \"eval_loss\", n = 2, lower = true }\n";
  }
  const bool higher = is_higher_better(metric);
  return line(fmt::format("best = {{ metric = \"{}\", n = 2, lower = {} }}", metric, !higher),
              fmt::format("the 2 with the {} {}", higher ? "highest" : "lowest", metric));
}

std::string research(const Recorded& recorded) {
  return head(Preset::research, "recent, best and regular checkpoints of each run") + "\n[rule.keep]\n" +
         line("last = 3", "the 3 newest, to resume from") +
         line("every_steps = 5000", "steps 5000, 10000, 15000, ..., to compare later") + best_lines(recorded) +
         tail("24h");
}

std::string production(const Recorded& recorded) {
  std::vector<std::string> tags{"keep", "release"};
  if (recorded.tags.size() <= kMostTags) {
    for (const std::string& tag : recorded.tags)
      if (is_plain(tag) && std::ranges::find(tags, tag) == tags.end()) tags.push_back(tag);
  }
  return head(Preset::production, "dense recent history, thinned with age") + "\n[rule.keep]\n" +
         line("last = 5", "the 5 newest, to resume from") +
         line("hourly = 24", "the newest of each hour, for 24 hours with checkpoints") +
         line("daily = 14", "the newest of each day, for 14 days with checkpoints") +
         line(fmt::format("tags_any = [\"{}\"]", fmt::join(tags, "\", \"")), "with any of these tags") + tail("3d");
}

std::string space() {
  return head(Preset::space, "the last 2 checkpoints whole, only the weights of older ones") +
         line("drop_optimizer_after = \"0s\"", "older ones: weights only, a seventh of the bytes with Adam") +
         line("min_free = \"10%\"", "if less is free, the lowest steps are deleted") + "\n[rule.keep]\n" +
         line("last = \"all\"", "all, as long as there is space; or a number") +
         "\n# Holds for every rule above.\n[guard]\n" +
         line("newest = 2", "the 2 newest of each run stay whole, to resume from") +
         line("newest_verified = 1", "so does the newest verified one") +
         line("max_delete_fraction = 0.5", "a new or changed policy needs -y to change more than half") +
         "\n[trash]\n" + line("ttl = \"6h\"", "deleted checkpoints and optimizers can be restored for this time");
}

}  // namespace

std::string ranking_metric(const std::vector<std::string>& metrics) {
  std::vector<std::string> named;
  std::ranges::copy_if(metrics, std::back_inserter(named), is_plain);
  std::ranges::sort(named);
  const auto first = [&](auto&& wanted) { return std::ranges::find_if(named, wanted); };
  auto found = first([](std::string_view name) {
    return contains(name, "loss") && (contains(name, "eval") || contains(name, "val") || contains(name, "test"));
  });
  if (found == named.end()) found = first([](std::string_view name) { return contains(name, "loss"); });
  if (found == named.end()) found = named.begin();
  return found == named.end() ? std::string() : *found;
}

std::string preset_text(Preset preset, const Recorded& recorded) {
  switch (preset) {
    case Preset::production:
      return production(recorded);
    case Preset::space:
      return space();
    case Preset::research:
      break;
  }
  return research(recorded);
}

}  // namespace ckpt::catalog
