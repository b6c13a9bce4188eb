#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "catalog/index/rows.hpp"

/// Entries and whole indexes as text, for comparing them.
namespace ckpt::catalog {

/// Everything that an entry holds but what only a listing's moment decides.
inline std::string text_of(const Entry& entry) {
  const Checkpoint& c = entry.checkpoint;
  std::string out = c.run + "|" + entry.name + "|" + c.id + "|" + std::to_string(c.series) + "|" +
                    std::to_string(c.series_from.value_or(77)) + "|" + std::to_string(c.generation) + "|" +
                    std::to_string(c.step) + "|" + std::to_string(c.created.time_since_epoch().count()) + "|" +
                    std::to_string(static_cast<int>(c.state)) + "|" + entry.reason + "|" + std::to_string(c.bytes) +
                    "|" + std::to_string(c.optimizer_bytes) + "|" + entry.format + "|" + entry.layout + "|" +
                    entry.parent + "|" + std::to_string(entry.file_count) + "|" + std::to_string(c.marks_unreadable) +
                    std::to_string(c.link) + std::to_string(entry.foreign) + "\n";
  for (const std::uint64_t bytes : entry.class_bytes) out += " " + std::to_string(bytes);
  for (const Mark& mark : entry.marks)
    out += "\n  " + std::string(kind_name(mark.kind)) + "|" + mark.name + "|" + mark.text + "|" + mark.owner + "|" +
           std::to_string(mark.at.value_or(Time()).time_since_epoch().count()) + "|" +
           std::to_string(mark.until.value_or(Time()).time_since_epoch().count()) + "|" +
           (mark.kind == Mark::Kind::metric || mark.kind == Mark::Kind::verified ? std::to_string(mark.value) : "");
  for (const auto& [name, value] : c.metrics) out += "\n  metric " + name + " " + std::to_string(value);
  for (const std::string& tag : c.tags) out += "\n  tag " + tag;
  for (const Pin& pin : c.pins) out += "\n  pin " + pin.name + pin.owner + pin.reason;
  for (const std::string& reference : c.references) out += "\n  reference " + reference;
  for (const std::string& tracker : c.trackers) out += "\n  tracker " + tracker;
  for (const auto& [key, value] : c.attributes) out += "\n  " + key + "=" + value;
  if (entry.save) out += "\n  saved " + std::to_string(entry.save->write_s);
  return out + "\n";
}

/// The index as text; marks in the order of the tables.
inline std::string dump(Database& database) {
  std::string out;
  auto entries = select_entries(database, {});
  EXPECT_TRUE(entries) << entries.error().message;
  if (!entries) return "";
  for (Entry& entry : *entries) {
    std::stable_sort(entry.marks.begin(), entry.marks.end(), [](const Mark& a, const Mark& b) {
      return std::pair(a.kind, a.name) < std::pair(b.kind, b.name);
    });
    out += text_of(entry);
  }
  return out;
}

}  // namespace ckpt::catalog
