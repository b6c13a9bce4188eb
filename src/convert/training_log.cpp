#include "convert/training_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "convert/event_file.hpp"
#include "format/text/json.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt {
namespace training_log {
namespace {

constexpr std::string_view kEventFile = "events.out.tfevents.";
constexpr std::string_view kTable = "metrics.csv";
constexpr std::string_view kSummaryFile = "wandb-summary.json";
constexpr std::uint64_t kMostTextBytes = std::uint64_t{256} << 20;
constexpr unsigned kDeepest = 4;
constexpr std::size_t kMostFiles = 10000;

bool is_log(std::string_view name) {
  return name.starts_with(kEventFile) || name == kTable || name == kSummaryFile;
}

std::vector<std::string_view> cells_of(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::vector<std::string_view> out;
  for (;;) {
    const std::size_t comma = line.find(',');
    out.push_back(line.substr(0, comma));
    if (comma == line.npos) return out;
    line.remove_prefix(comma + 1);
  }
}

/// A table with a column `step`, and one for each metric; empty cells are no values.
constexpr std::size_t kLongestName = 1024;  // it is kept once for each value

Result<> read_table(const std::string& path, std::string_view text, std::vector<LoggedValue>& out) {
  std::vector<std::string_view> names;
  std::size_t step_at = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == text.npos && !names.empty()) break;  // still being written
    const std::vector<std::string_view> cells = cells_of(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (names.empty()) {
      names = cells;
      step_at = static_cast<std::size_t>(std::ranges::find(names, "step") - names.begin());
      if (step_at == names.size())
        return fail({.code = Errc::corrupt, .message = path + ": no 'step' column", .file = path});
      if (std::ranges::any_of(names, [](std::string_view name) { return name.size() > kLongestName; }))
        return fail({.code = Errc::corrupt,
                     .message = fmt::format("{}: a column's name is longer than {} bytes", path, kLongestName),
                     .file = path});
      continue;
    }
    const auto step = step_at < cells.size() ? parse_number<std::uint64_t>(cells[step_at]) : std::nullopt;
    if (!step) continue;
    for (std::size_t i = 0; i < std::min(cells.size(), names.size()); ++i) {
      if (i == step_at || names[i].empty()) continue;
      const auto value = parse_number<double>(cells[i]);
      if (value && std::isfinite(*value))
        out.push_back({.name = std::string(names[i]), .step = *step, .value = *value});
    }
  }
  return {};
}

/// The last values of a run. `_step` counts calls of the logger: a step that the trainer logged itself is better.
Result<> read_summary(const std::string& path, std::string_view text, std::vector<LoggedValue>& out) {
  auto root = json::parse(text);
  if (!root) return fail(with_file(std::move(root).error(), path));
  std::optional<std::uint64_t> step;
  for (const std::string_view name : {"train/global_step", "trainer/global_step", "global_step", "_step"}) {
    const json::Value* at = root->find(name);
    if (!step && at != nullptr && at->natural() != nullptr) step = *at->natural();
  }
  if (root->object() == nullptr || !step)
    return fail({.code = Errc::corrupt, .message = path + ": no step in the summary", .file = path});
  for (const auto& [name, value] : *root->object()) {
    const auto number = value.number();
    if (number && !name.starts_with('_')) out.push_back({.name = name, .step = *step, .value = *number});
  }
  return {};
}

Result<> read_file(Io& io, const std::string& path, std::vector<LoggedValue>& out) {
  const std::string name = base_name(path);
  if (name.starts_with(kEventFile)) return read_event_file(io, path, out);
  CKPT_TRY(const std::string text, read_small_file(io, path, kMostTextBytes));
  return name == kSummaryFile ? read_summary(path, text, out) : read_table(path, text, out);
}

Result<> find_logs(Io& io, const std::string& directory, unsigned depth, std::vector<std::string>& out) {
  CKPT_TRY(const std::vector<DirEntry> entries, io.list(directory));
  for (const DirEntry& entry : entries) {
    const std::string path = join_path(directory, entry.name);
    if (entry.kind == FileInfo::Kind::file && is_log(entry.name)) {
      if (out.size() == kMostFiles)
        return fail({.code = Errc::unsupported,
                     .message = fmt::format("{}: over {} log files", directory, kMostFiles),
                     .file = directory});
      out.push_back(path);
    }
    if (entry.kind == FileInfo::Kind::directory && !entry.is_link && depth < kDeepest)
      CKPT_CHECK(find_logs(io, path, depth + 1, out));
  }
  return {};
}

}  // namespace
}  // namespace training_log

Result<std::vector<LoggedValue>> read_training_log(Io& io, const std::string& path) {
  CKPT_TRY(const FileInfo info, io.stat(path));
  std::vector<std::string> files;
  if (info.kind == FileInfo::Kind::directory)
    CKPT_CHECK(training_log::find_logs(io, path, 0, files));
  else if (training_log::is_log(base_name(path)))
    files.push_back(path);
  if (files.empty())
    return fail(
        {.code = Errc::unsupported,
         .message = path + ": not a training log",
         .file = path,
         .hint = "expected events.out.tfevents.*, metrics.csv, wandb-summary.json, or a directory that contains them"});
  std::vector<LoggedValue> out;
  for (const std::string& file : files) CKPT_CHECK(training_log::read_file(io, file, out));
  return out;
}

}  // namespace ckpt
