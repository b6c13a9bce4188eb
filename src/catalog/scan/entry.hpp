#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "catalog/checkpoint.hpp"
#include "catalog/scan/marks.hpp"
#include "engine/io/io.hpp"
#include "engine/store/foreign_names.hpp"
#include "engine/store/run_directory.hpp"
#include "format/universal/sums.hpp"

namespace ckpt::catalog {

/// Where the marks of our checkpoints are; and those of another tool's, which may have its own
/// `marks`.
inline constexpr std::string_view kMarksDirectory = "marks";
inline constexpr std::string_view kForeignMarksDirectory = ".ckpt-marks";

/// Entry::layout of another tool's checkpoint that is one file.
inline constexpr std::string_view kSingleFile = "file";

/// Identifies the version that was read: shows whether a directory or file, or its content, was replaced.
struct Stamp {
  std::uint64_t inode = 0;  ///< 0: it does not exist
  std::int64_t mtime_ns = 0;
  bool operator==(const Stamp&) const = default;
};

/// A checkpoint on the disk, by its manifest and marks only.
struct Entry {
  Checkpoint checkpoint{};  ///< as retention sees it; `run` is the path of its run in the store, "." for the store
  std::string name{};       ///< of its directory in its run: "step-000001000.g7", "global_step100"
  std::string format{};     ///< "ckpt", or that of another tool; also checkpoint.attributes "format"
  bool foreign = false;     ///< another tool's: no generation, and its marks are in kForeignMarksDirectory
  std::string layout{};     ///< "whole", "mesh", "irregular", "virtual", "file"; "" if unknown
  std::string framework{};
  std::string parent{};  ///< id of the checkpoint that was loaded before it was saved
  std::uint64_t revision = 0;
  std::array<std::uint64_t, universal::kClassCount> class_bytes{};  ///< by universal::FileClass; foreign: zeros
  std::uint64_t file_count = 0;
  std::uint64_t referenced_files = 0;  ///< of other checkpoints, to which a virtual one refers
  std::uint64_t referenced_bytes = 0;  ///< their sizes
  std::string reason{};                ///< why it is unreadable or corrupt
  std::vector<Mark> marks{};           ///< all, including those in `checkpoint`
  std::optional<SaveCost> save{};
  Stamp directory{};  ///< of its directory, its marks and its manifest, before they were read
  Stamp marks_directory{};
  Stamp manifest{};                  ///< for universal checkpoints
  std::vector<std::string> links{};  ///< symbolic links in another tool's: paths below it. Not of one from the index

  /// STORE/RUN/NAME.
  std::string path(std::string_view store) const;
  /// When it was last verified, or restored.
  std::optional<Time> last(Mark::Kind kind) const;
  /// Whether its optimizer was dropped: nothing else revises a manifest so that none is left. Not where its table of
  /// files cannot be read.
  bool is_demoted() const;
};

/// The metric that a save stored among its texts, under the key "metric.NAME"; nothing for another text.
std::optional<std::pair<std::string_view, double>> metric_in(std::string_view key, const std::string& text);

/// STORE/RUN, of a run's path in its store.
std::string run_path(std::string_view store, std::string_view run);
/// The directory of a checkpoint's marks.
std::string marks_path(std::string_view checkpoint, bool foreign);
/// The same; its name says whether it is one of ours.
std::string marks_path(std::string_view checkpoint);

/// A checkpoint's directory, before anything in it was read.
struct EntryPlace {
  std::string run{};
  std::string name{};
  bool foreign = false;
  bool single_file = false;                                     ///< a foreign one that is no directory
  std::string format{};                                         ///< of a foreign one
  std::optional<std::uint64_t> step{};                          ///< of a foreign one
  std::vector<std::string> trackers{};                          ///< files of another tool that name it
  bool link = false;                                            ///< a symbolic link
  std::vector<MetricsFile> metrics{};                           ///< of a foreign one: files in it that may have metrics
  std::vector<std::pair<std::string, double>> named_metrics{};  ///< of a single file: those in its name
  std::optional<Error> unread{};  ///< of a foreign one by its name: why nothing else is known
};

/// Reads its manifest, its table of files and its marks. No tensor data. Nothing if the directory does not exist, or
/// vanishes meanwhile; errors are reported in state and `reason`. A larger manifest than `manifest_bytes` is
/// unreadable: parsing takes many times its size.
std::optional<Entry> read_entry(Io& io, std::string_view store, const EntryPlace& place,
                                std::uint64_t manifest_bytes = kMostManifestBytes);

/// The metrics that another tool's checkpoint at this path holds in its files, or in its name if it is one file.
std::vector<std::pair<std::string, double>> foreign_metrics(Io& io, const std::string& path, const ForeignNames& names);

/// Whether `ckpt repair` can repair a damaged universal checkpoint: one copy of the manifest is right and fits the
/// table of files, the other is lost or torn.
bool is_repairable(Io& io, const std::string& path);

/// Adds marks to an entry that has none yet. A state other than `committed` is unchanged.
void apply_marks(Entry& entry, std::vector<Mark> marks);

/// The stamp of a path; an empty one if it does not exist.
Result<Stamp> find_stamp(Io& io, const std::string& path);
/// The same; an empty one also if it cannot be read.
Stamp stamp_of(Io& io, const std::string& path);
/// When it was changed last.
Time time_of(const Stamp& stamp);
/// Of ours: its manifest, which is written last; where that is lost its directory, which may have changed later.
void take_commit_time(Entry& entry);
/// Whether every later change will show in it. Two changes of a directory within a few seconds may leave the same time:
/// file system clocks are coarse, and a server's clock may differ. Only a time older than that when it is read proves a
/// directory unchanged later.
bool is_settled(const Stamp& stamp, Time now);

}  // namespace ckpt::catalog
