#include "cli/report/store_health.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "format/text/quantity.hpp"

namespace ckpt::cli {
namespace {

std::string count_text(const StoreFacts::Group& group, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", group.count, group.count == 1 ? one : many);
}

void diagnose_catalog(const StoreFacts& facts, std::vector<Diagnosis>& out) {
  const auto say = [&](Health health, std::string text, std::string mend = {}) {
    out.push_back({health, "catalog", std::move(text), std::move(mend)});
  };
  if (!facts.catalog) {
    if (!facts.has_catalog) return say(Health::note, "no catalog yet; the next 'ckpt list' creates it");
    if (facts.catalog_late == 0) return say(Health::ok, "the catalog is valid and up to date");
    return say(Health::ok,
               fmt::format("the catalog was {} checkpoints behind and has been refreshed", facts.catalog_late));
  }
  const Error& error = *facts.catalog;
  const std::string rebuild = "ckpt list --rebuild --store " + facts.path;
  switch (error.code) {
    case Errc::newer:
      return say(Health::warn, error.message + ": every listing scans the directories",
                 "use that release, or " + rebuild);
    case Errc::locked:
      return say(Health::warn, "the catalog is in use by another process: " + error.message, "wait for it to end");
    case Errc::corrupt:
      return say(Health::warn, "the catalog is damaged (no data is lost): " + error.message, rebuild);
    default:
      return say(Health::warn, "the catalog is unusable, so every listing scans the directories: " + error.message,
                 "make it writable for this user: " + facts.own);
  }
}

}  // namespace

std::vector<Diagnosis> diagnose(const StoreFacts& facts) {
  std::vector<Diagnosis> out;
  const auto group = [&](const StoreFacts::Group& of, Health health, std::string_view about, std::string text,
                         std::string mend) {
    if (of.count == 0) return;
    out.push_back({health, std::string(about), std::move(text) + ", the first " + of.first, std::move(mend)});
  };
  const std::string repair = "ckpt repair " + facts.path;
  if (facts.unwritable) {
    out.push_back({Health::warn, "store",
                   fmt::format("{} is not writable, so there is no catalog and nothing can be deleted: {}", facts.own,
                               facts.unwritable->message),
                   "make it writable for this user: " + facts.own});
  }
  diagnose_catalog(facts, out);
  group(facts.inner, Health::warn, "store",
        count_text(facts.inner, "store in this one, whose trash and notes are",
                   "stores in this one, whose trash and notes are") +
            " not seen from here",
        "to merge it, run 'ckpt undelete --all --store DIR', then remove DIR/.ckpt; to keep it separate, create "
        "DIR/ckpt.toml");
  group(facts.leftover, Health::warn, "left over",
        fmt::format("{} of killed saves or conversions, {}", count_text(facts.leftover, "leftover", "leftovers"),
                    size_text(facts.leftover.bytes)),
        repair + " --apply");
  group(facts.claims, Health::warn, "claims",
        fmt::format("{} without a known live reader; the checkpoint that {} names cannot be deleted",
                    count_text(facts.claims, "reader's claim", "readers' claims"),
                    facts.claims.count == 1 ? "it" : "each"),
        repair + " --apply; for other hosts, again after 10 minutes");
  group(facts.stopped, Health::warn, "trash", "interrupted deletions", repair + " --apply");
  group(facts.past_grace, Health::note, "trash",
        fmt::format("{} past the grace period, {}",
                    count_text(facts.past_grace, "deleted checkpoint is", "deleted checkpoints are"),
                    size_text(facts.past_grace.bytes)),
        "ckpt prune --apply --store " + facts.path);
  group(facts.unrecorded, Health::warn, "trash",
        fmt::format("{} in the trash without a record: never removed automatically",
                    count_text(facts.unrecorded, "thing", "things")),
        "move it back or remove it by hand");
  if (facts.recycled.files != 0) {
    out.push_back({Health::note, "recycle",
                   fmt::format("{} recycled {} for the next save, {} (not free)", facts.recycled.files,
                               facts.recycled.files == 1 ? "file" : "files", size_text(facts.recycled.bytes)),
                   "recycle = 0 in ckpt.toml makes the next 'ckpt prune --apply' remove them"});
  }
  group(facts.unknown_recycled, Health::warn, "recycle",
        fmt::format("{} in recycle/ of unknown origin: never used or removed",
                    count_text(facts.unknown_recycled, "thing", "things")),
        "remove it by hand");
  group(facts.marks_unreadable, Health::warn, "marks",
        fmt::format("the marks of {} are unreadable: it cannot be deleted",
                    count_text(facts.marks_unreadable, "checkpoint", "checkpoints")),
        "repair or remove the named file");
  group(facts.corrupt, Health::fail, "checkpoints",
        count_text(facts.corrupt, "checkpoint is damaged", "checkpoints are damaged"), repair);
  group(facts.unreadable, Health::warn, "checkpoints",
        count_text(facts.unreadable, "checkpoint is unreadable", "checkpoints are unreadable"), repair);
  for (const std::string& text : facts.unlistable)
    out.push_back({Health::warn, "store", "could not be checked: " + text, ""});
  return out;
}

}  // namespace ckpt::cli
