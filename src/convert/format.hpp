#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "convert/target_options.hpp"
#include "engine/io/io.hpp"
#include "engine/locks/lease.hpp"
#include "engine/publish/publish.hpp"
#include "engine/run/plan.hpp"
#include "engine/run/source_files.hpp"
#include "format/hash.hpp"
#include "format/model/map_rules.hpp"
#include "format/model/model.hpp"
#include "format/model/rank_layout.hpp"
#include "format/universal/references.hpp"

namespace ckpt {

/// The inputs of detection: one directory listing (or one file), first bytes on demand.
struct Place {
  Io& io;
  std::string root;  ///< path as the user gave it, without trailing slash
  bool directory = false;
  std::vector<DirEntry> entries{};  ///< of a directory, sorted by name
  std::string first{};              ///< of a file: its first bytes, kFirstBytes or all; "" if they were not read

  static constexpr std::size_t kFirstBytes = (std::size_t{64} << 10) + 8;  // no format reads more
  /// Of a file: reads `first` once for all formats. Errors are reported by the reader that needs the file.
  void read_first();
  bool has(std::string_view name) const;
  /// First `bytes` of a file below root ("" = root itself), fewer if it is shorter.
  Result<std::string> head(std::string_view relative, std::size_t bytes) const;
};

/// A format's answer: yes, here (a path below Place::root, "" for the root), for this reason.
struct Match {
  std::string where{};  ///< sub-directory that really holds the checkpoint
  std::string why{};    ///< "3 *.safetensors with an index"
};

struct ReadOptions {
  std::uint64_t metadata_limit = std::uint64_t{4} << 30;  ///< bytes of metadata a reader may hold
  /// The user's rules for this checkpoint, or null. Readers use only those for joining slices; flat tensors and new
  /// names are handled by apply_rules.
  const MapRules* rules = nullptr;
  /// Opens the readable part of a damaged checkpoint: files of the wrong size count as missing, and so do damaged
  /// objects. Used by formats that store hashes.
  bool salvage = false;
  /// Once set, reading and decoding the checkpoint ends with `interrupted`. Outlives the source.
  const std::atomic<bool>* stop = nullptr;
  /// Also reports other data next to the files of the checkpoint, and which files are `settings`.
  bool look_beside = false;
  bool state_beside = true;  ///< joins the result of FormatReader::open_beside; else that counts as other data
  /// Also fills Map::extras from a folder, or from the folder of a file; formats that store hashes have their
  /// own.
  bool extras = false;
  /// For a target that keeps the layout of model-parallel ranks: their slices are not joined, and this is filled with
  /// what each rank holds. Null: slices are joined.
  std::shared_ptr<RankLayout> ranks_apart{};
  std::string assets{};  ///< a model folder whose extras are used if the checkpoint has none of that name
  /// Missing or changed files that a virtual checkpoint refers to are findings, not errors. Its tensors must not be read
  /// then.
  bool tell_references = false;
};

/// A slice of a tensor.
struct TensorPart {
  Box box{};      ///< inside the source tensor
  Shape shape{};  ///< in the target: the box's sizes, without dimensions that an index took away
};

/// The request to a writer: tensors of the source map, in the source's order, with their names and dtypes in the
/// target.
struct Selected {
  std::uint32_t tensor = 0;  ///< index into Map::tensors
  std::string name;          ///< in the target
  Dtype dtype = Dtype::f32;  ///< in the target
  /// In the target, if it differs from the source's: a master used as the weight is a parameter.
  std::optional<Role> role{};
  std::optional<TensorPart> part{};  ///< none: the whole tensor; set only for a FormatPartsWriter
};

/// An extra as the target gets it.
struct WantedExtra {
  std::string path;                   ///< relative to the target, a name that is_extra_name knows
  std::uint32_t tensor = 0;           ///< of the source: its bytes
  std::optional<std::string> text{};  ///< replacements, where they change
  std::uint64_t hash = 0;             ///< of what the target gets beside it: Map::written_beside
};

/// A file of the source as a virtual target refers to it.
struct Reference {
  std::string source{};  ///< ReferencedSource::path
  universal::ReferencedFile file{};
};

struct WriteRequest {
  const Map* source = nullptr;
  std::shared_ptr<const RankLayout> ranks{};  ///< of a source that was opened with its ranks apart; else null
  std::vector<Selected> tensors{};            ///< no extras
  std::vector<Alias> aliases{};               ///< whose targets are selected, with target names
  std::vector<NamedObject> objects{};         ///< with target names
  std::vector<WantedExtra> extras{};          ///< empty unless the format keeps them (FormatWriter::extras)
  std::uint64_t shard_bytes = 0;              ///< 0 = the writer's default
  bool only_weights = false;  ///< weights were asked for, and nothing else: a state dict, not nested state
  TargetOptions options{};    ///< only those of FormatWriter::options
  std::string target;         ///< final path
  std::string id;             ///< 32 hex digits
  std::string source_format;  ///< for the record
  /// Not null: the target refers to the bytes of tensors, and does not copy them. How it names and recognises a file of
  /// the source, by its index in Map::files; called once a file.
  std::function<Result<Reference>(std::uint32_t file)> refer{};
  /// Of a writer with `reads_steps`: values of optimizer state of one element ("step"), by index into Map::tensors.
  std::unordered_map<std::uint32_t, double> scalars{};
  const std::atomic<bool>* stop = nullptr;  ///< once set, laying out ends with `interrupted`; null: never
};

/// The layout of a target.
struct Skeleton {
  bool directory = true;
  std::vector<TargetFile> files{};
  std::vector<Finding> dropped{};          ///< things that this format cannot hold
  std::vector<MapFile> extra_files{};      ///< sources of raw placements beyond the map's files, absolute paths;
                                           ///< their indices follow Map::files
  std::shared_ptr<void> keep{};            ///< objects that must live until the run is over (temporary files)
  std::vector<std::string> small_names{};  ///< of `finish`, if no checkpoint in our format has such a file
  /// Small files of step 5, the manifest last, from the leaf hashes of `files`; may be empty.
  std::function<Result<std::vector<SmallFile>>(const std::vector<Hash128>& leaves)> finish{};
};

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

/// How a target stores extras. `beside`: as files next to those of the writer, if the target is a directory; the
/// conversion adds them. `inside`: the writer lays them out.
enum class KeepsExtras : std::uint8_t { no, beside, inside };

struct FormatReader {
  /// Reads metadata into a map; no bulk byte.
  Result<Map> (*open)(Io& io, const std::string& root, const ReadOptions& options);
  bool has_state_beside = false;  ///< trainers keep weights in this format, and their state next to it in others
  /// Opens the files of a trainer's state (optimizer, scheduler, random states) in this format in a directory with
  /// weights of another one (`has_state_beside`); nothing if there are none. Names begin with the file's. Or null.
  Result<std::optional<Map>> (*open_beside)(Io& io, const std::string& root, const ReadOptions& options) = nullptr;
};

struct FormatWriter {
  Result<Skeleton> (*lay_out)(const WriteRequest& request);
  std::span<const std::string_view> suffixes{};  ///< of targets that it writes without --to
  /// The options that this target takes, as flags without dashes ("zero-stage"): see TargetOptions.
  std::span<const std::string_view> options{};
  /// The conversion id that a target of ours holds, for formats whose map has no id; else null.
  Result<std::string> (*stored_id)(Io& io, const std::string& root) = nullptr;
  KeepsExtras extras = KeepsExtras::no;
  bool for_trainers = false;  ///< training state, rather than files for inference
  bool reads_steps = false;   ///< its layout depends on step counters: WriteRequest::scalars
  bool holds_blobs = false;   ///< it takes opaque blobs too
  bool refers = false;        ///< it can hold references instead of bytes: WriteRequest::refer
  /// It keeps the model-parallel layout of a source in its own form, which is opened with ReadOptions::ranks_apart.
  bool keeps_model_ranks = false;
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
};

/// One format, from its folder; registered by one line in registry.cpp. `detect` is always there, all other parts where
/// the folder has them: without a reader it is recognised only, and opening gives `unsupported`.
struct Format {
  std::string_view name;
  std::string_view summary;  ///< one line for people
  /// Nothing when this is not such a checkpoint. Looks at names and first bytes only.
  Result<std::optional<Match>> (*detect)(const Place& place);
  /// By which people know its files: without --to, a target that ends in one is refused where it has no such writer.
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
  /// For formats without a reader, or null: counts the files of such a checkpoint, by names and sizes, the only facts
  /// available.
  /// errors  incomplete: one is missing, or empty
  Result<std::uint64_t> (*count_files)(Io& io, const std::string& root) = nullptr;

  KeepsExtras extras() const { return writer ? writer->extras : KeepsExtras::no; }
};

/// All formats, in order of precedence of detection messages.
std::span<const Format> formats();
const Format* find_format(std::string_view name);

/// A checkpoint that was opened for reading: the lease on its root is held while this lives, which the Io outlives.
struct Source {
  std::string root{};  ///< directory of the map's files, or the file
  const Format* format = nullptr;
  std::string why{};  ///< the findings of detection; empty if only --from decided
  /// The state of its files when they were opened, and an Io that checks it: for later reads of metadata.
  std::shared_ptr<SourceFiles> files{};
  std::unique_ptr<Io> io{};
  Map map{};
  /// Files next to it that describe the model and are not extras; only with ReadOptions::look_beside.
  std::vector<std::string> settings{};
  std::unique_ptr<Lease> lease{};
  std::vector<std::unique_ptr<Lease>> referenced_leases{};  ///< on the checkpoints that a virtual one refers to

  /// errors  changed: a file has changed since it was opened
  Result<> check_unchanged() const { return files->look_again(*io); }
  /// A failure to read it; where its files changed in the meantime, that.
  Error explained(Error error) const;
};

/// Detects (or uses `from`) and opens. not_found; unsupported naming what was seen; ambiguous listing the matches;
/// incomplete; corrupt; refused.
Result<Source> open_source(Io& io, const std::string& path, std::string_view from, const ReadOptions& options);

/// A format that knows a place.
struct Candidate {
  const Format* format = nullptr;
  bool has_folders = false;  ///< files of the checkpoint may be in folders below the place
};
/// All formats that recognise it; open_source takes one of them if there are several.
/// errors  as Io::stat and Io::list; if none recognises it, that of the first that could not read
///         it
Result<std::vector<Candidate>> candidates(Io& io, const std::string& path);

/// The known facts about a checkpoint that is only recognised.
struct Glance {
  const Format* format = nullptr;
  std::uint64_t file_count = 0;
};
/// Detects, and checks names and sizes. Nothing if the format can be read, or nothing is known.
/// errors  as open_source
Result<std::optional<Glance>> glance(Io& io, const std::string& path, std::string_view from);

/// The result of detection for a path, without opening it.
struct Recognition {
  const Format* format = nullptr;  ///< the first that recognises it; null if none does
  bool unfinished = false;         ///< it is known as the beginning of an unfinished save
};
/// Uses names and first bytes only. Unreadable files are unknown.
Recognition recognise(Io& io, const std::string& path);

/// Hash over (path, size, mtime) of the map's files in path order and over its metadata: equal wherever the same source
/// is seen.
Hash128 fingerprint(const Map& map);
/// The inputs of a conversion's id: the fingerprint and, if the format stores no hashes of its files, their inodes and
/// change times. A rewritten file may have its old size and mtime.
Hash128 identity(const Map& map);

}  // namespace ckpt
