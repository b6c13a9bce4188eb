#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/place.hpp"
#include "convert/read_options.hpp"
#include "convert/write_request.hpp"
#include "engine/io/io.hpp"
#include "engine/store/foreign_names.hpp"
#include "format/model/model.hpp"

namespace ckpt {

/// The hashes of a format that stores them, for verifying: read each file raw, compare the leaves.
struct StoredHashes {
  /// Every hashed file of the checkpoint, each with one raw placement of the whole file whose `raw_file` is the
  /// file's index in Map::files of the map that `open` returns for the same root. Empty files have no placement.
  std::vector<TargetFile> files{};
  std::vector<Hash128> leaves{};  ///< of `files` in order, as stored
  /// Structural problems of a checkpoint that opens: file headers that disagree with the layout, a second copy
  /// that is missing or stale (damage, with the file as the user can find it), files that belong to nothing
  /// (notes).
  std::vector<Finding> findings{};
};

/// The SHA-256 of a file of a checkpoint, as another file of it states it.
struct FileDigest {
  std::string path;    ///< below the root
  std::string sha256;  ///< 64 lower-case digits
};

/// How a target stores extras. `beside`: as files next to those of the writer, if the target is a directory; the
/// conversion adds them. `inside`: the writer lays them out.
enum class KeepsExtras : std::uint8_t { no, beside, inside };

struct FormatReader {
  /// Reads metadata into a map; no bulk byte.
  Result<Map> (*open)(Io& io, const std::string& root, const ReadOptions& options);
  bool opens_paths = false;       ///< its library opens files by their paths: none in an archive
  bool has_state_beside = false;  ///< trainers keep weights in this format, and their state next to it in others
  /// Opens the files of a trainer's state (optimizer, scheduler, random states) in this format in a directory with
  /// weights of another one (`has_state_beside`); nothing if there are none. Names begin with the file's. Or null.
  Result<std::optional<Map>> (*open_beside)(Io& io, const std::string& root, const ReadOptions& options) = nullptr;
};

struct FormatWriter {
  Result<Skeleton> (*lay_out)(const WriteRequest& request);
  /// Joins tensors of the source that the target has as one, before any is selected; or null.
  void (*prepare)(Map& source) = nullptr;
  std::span<const std::string_view> suffixes{};  ///< of targets that it writes without --to
  /// Whether the source's tensors have names that it can write without --names; null: any have.
  bool (*fits)(const Map& source) = nullptr;
  /// The options that this target takes, as flags without dashes ("zero-stage"): see TargetOptions.
  std::span<const std::string_view> options{};
  /// The conversion id that a target of ours holds, for formats whose map has no id; else null.
  Result<std::string> (*stored_id)(Io& io, const std::string& root) = nullptr;
  /// For a target of another format that is the directory of a trainer (`state_beside`): takes the trainer's other state
  /// (schedulers, random states) out of the request, and lays out its files. Or null.
  Result<Skeleton> (*lay_out_beside)(WriteRequest& request) = nullptr;
  bool state_beside = false;  ///< trainers keep other state in files of their own next to it
  KeepsExtras extras = KeepsExtras::no;
  bool lists_extras = false;   ///< its own files hold Map::written_beside; else kBesideFile does
  bool for_trainers = false;   ///< training state, rather than files for inference
  bool reads_steps = false;    ///< its layout depends on step counters: WriteRequest::scalars
  bool holds_blobs = false;    ///< it takes opaque blobs too
  bool copies_stored = false;  ///< a copy in this form keeps names as they are stored: ReadOptions::saved_trees
  bool refers = false;         ///< it can hold references instead of bytes: WriteRequest::refer
  /// It keeps the model-parallel layout of a source in its own form, which is opened with ReadOptions::ranks_apart.
  bool keeps_model_ranks = false;
  /// Memory that its layout takes for each tensor, bytes: measured with 50 000 small ones of names of 40 bytes, so that a
  /// conversion that does not fit is refused before it is laid out.
  std::uint64_t tensor_memory = 250;
};

/// For `load`, which extracts parts of tensors.
struct FormatPartsWriter {
  std::string_view name;                             ///< the option's word ("npy"); a target X.npy is one file
  Result<Skeleton> (*lay_out)(const WriteRequest&);  ///< supports Selected::part
};

/// The names of a format's checkpoints in a directory, as text of ForeignNames. Ours need none.
struct FormatNames {
  std::span<const std::string_view> steps{};
  std::span<const std::string_view> trackers{};
  std::span<const std::string_view> markers{};
  std::span<const MetricsFile> metrics{};
  std::span<const std::string_view> file_suffixes{};
  std::vector<std::pair<std::string, double>> (*name_metrics)(std::string_view name) = nullptr;
};

/// One format, from its folder; registered by one line in registry.cpp. `detect` is always there, all other parts where
/// the folder has them: without a reader it is recognised only, and opening gives `unsupported`.
struct Format {
  std::string_view name;
  std::string_view summary;                      ///< one line for people
  std::span<const std::string_view> synonyms{};  ///< other names that --from and --to accept
  /// Nothing when this is not such a checkpoint. Looks at names and first bytes only.
  Result<std::optional<Match>> (*detect)(const Place& place);
  /// Suffixes of its files: without --to, a target with such a suffix is refused if the format has no writer for it.
  std::span<const std::string_view> suffixes{};
  /// Paths below the root that belong to such a checkpoint besides its map's files: an index, a tracker. * and ? are
  /// wildcards in the last component. --overwrite keeps all other files.
  std::span<const std::string_view> own_names{};
  bool has_folders = false;  ///< its files may be in folders below the root
  FormatNames names{};
  std::optional<FormatReader> reader{};
  std::optional<FormatWriter> writer{};
  std::optional<FormatPartsWriter> parts_writer{};
  /// Null for formats that store no hashes. Errors as `open`; reads metadata and file headers, no bulk byte.
  Result<StoredHashes> (*hashes)(Io& io, const std::string& root) = nullptr;
  /// For formats whose checkpoints may state digests of their files, or null; nothing where this one does not.
  /// errors  corrupt: that statement is damaged; unsupported: it is of another algorithm
  Result<std::vector<FileDigest>> (*digests)(Io& io, const std::string& root) = nullptr;
  /// For formats without a reader, or null: counts the files of such a checkpoint, by names and sizes, the only facts
  /// available.
  /// errors  incomplete: one is missing, or empty
  Result<std::uint64_t> (*count_files)(Io& io, const std::string& root) = nullptr;
  /// For formats without a reader, or null: what their metadata says, as names and texts for people.
  Result<std::vector<std::pair<std::string, std::string>>> (*describe)(Io& io, const std::string& root) = nullptr;

  KeepsExtras extras() const { return writer ? writer->extras : KeepsExtras::no; }
};

/// All formats, in order of precedence of detection messages.
std::span<const Format> formats();
const Format* find_format(std::string_view name);

}  // namespace ckpt
