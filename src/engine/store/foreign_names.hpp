#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/io/io.hpp"

namespace ckpt {

/// A file in another tool's checkpoint that has its metrics.
struct MetricsFile {
  std::string_view name;  ///< in the directory of the checkpoint
  /// By name; none if it is no such file.
  std::vector<std::pair<std::string, double>> (*parse)(std::string_view text) = nullptr;
};

/// The names by which checkpoints of other tools are known from outside. The folder of each format supplies its own
/// (Format::names in convert/format.hpp), so the engine and the catalog know no framework. Empty: only our own
/// checkpoints are known. The texts are literals.
struct ForeignNames {
  /// Names of checkpoint directories: the text before the step, "#" for the step, and "*" for any text at either end.
  std::vector<std::string_view> steps{};
  /// Files next to checkpoints that name the one to resume from, by its directory or its step.
  std::vector<std::string_view> trackers{};
  /// Files that make a directory a checkpoint, relative to it.
  std::vector<std::string_view> markers{};
  std::vector<MetricsFile> metrics{};
  /// Suffixes of files that are a checkpoint each, with the step in the rest of the name.
  std::vector<std::string_view> file_suffixes{};
  /// The metrics in the name of such a file, if its tool writes any there.
  std::vector<std::vector<std::pair<std::string, double>> (*)(std::string_view name)> name_metrics{};

  /// The step in the name of a directory; nothing if no tool gives such names.
  std::optional<std::uint64_t> step_in(std::string_view name) const;
  /// The same of what may be a checkpoint: a directory, or a file that is no link.
  std::optional<std::uint64_t> step_in(const DirEntry& entry) const;
  std::vector<std::pair<std::string, double>> metrics_in_file(std::string_view name) const;
};

}  // namespace ckpt
