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

namespace ckpt {

/// What detection may look at: one directory listing (or one file), first bytes on demand.
struct Place {
  Io& io;
  std::string root;  ///< path as the user gave it, without trailing slash
  bool directory = false;
  std::vector<DirEntry> entries{};  ///< of a directory, sorted by name
  std::string first{};              ///< of a file: its first bytes, kFirstBytes or all; "" where they were not read

  static constexpr std::size_t kFirstBytes = (std::size_t{64} << 10) + 8;  // no format looks at more
  /// Of a file: reads `first`, so that each format need not. What cannot be read is told by who asks for it.
  void read_first();
  bool has(std::string_view name) const;
  /// First `bytes` of a file below root ("" = root itself), fewer where it is shorter.
  Result<std::string> head(std::string_view relative, std::size_t bytes) const;
};

/// A format's answer: yes, here (a path below Place::root, "" for the root), for this reason.
struct Match {
  std::string where{};  ///< sub-directory that really holds the checkpoint
  std::string why{};    ///< "3 *.safetensors with an index"
};

struct ReadOptions {
  std::uint64_t metadata_limit = std::uint64_t{4} << 30;  ///< bytes of metadata a reader may hold
  /// What a user says of this checkpoint, or null. Flat tensors and new names are not the readers' business
  /// (apply_rules); how slices join is.
  const MapRules* rules = nullptr;
  /// Opens what can still be opened of a damaged checkpoint: files of another size than they should have count as
  /// missing, and so do damaged objects. Heeded by formats that store hashes.
  bool salvage = false;
  /// Once set, whatever is read or decoded of the checkpoint ends with `interrupted`. Outlives the source.
  const std::atomic<bool>* stop = nullptr;
  /// Also tells what stands beside the files of the checkpoint and is no part of it, and which files are `settings`.
  bool look_beside = false;
  bool state_beside = true;  ///< joins what Format::open_beside finds; else it counts as beside the checkpoint
  /// Also fills Map::extras of a folder, and of the folder that holds it where the path is that; formats that store
  /// hashes have their own.
  bool extras = false;
  std::string assets{};  ///< a folder of a model whose extras are taken where the checkpoint has none of that name
};

/// A slice of a tensor.
struct TensorPart {
  Box box{};      ///< inside the source tensor
  Shape shape{};  ///< in the target: the box's sizes, without dimensions that an index took away
};

/// What a writer is asked to lay out: tensors of the source map, in the source's order, with their names and dtypes
/// in the target.
struct Selected {
  std::uint32_t tensor = 0;  ///< index into Map::tensors
  std::string name;          ///< in the target
  Dtype dtype = Dtype::f32;  ///< in the target
  /// In the target, where it is not the source's: a master that is taken as the weight is a parameter.
  std::optional<Role> role{};
  std::optional<TensorPart> part{};  ///< none = the whole tensor; set only for `Format::lay_out_parts`
};

/// An extra as the target gets it.
struct WantedExtra {
  std::string path;                   ///< relative to the target, a name that is_extra_name knows
  std::uint32_t tensor = 0;           ///< of the source: its bytes
  std::optional<std::string> text{};  ///< instead of them, where they do not stay as they are
};

struct WriteRequest {
  const Map* source = nullptr;
  std::vector<Selected> tensors{};     ///< no extras
  std::vector<Alias> aliases{};        ///< whose targets are selected, with target names
  std::vector<NamedObject> objects{};  ///< with target names
  std::vector<WantedExtra> extras{};   ///< empty unless the format keeps them (Format::extras)
  std::uint64_t shard_bytes = 0;       ///< 0 = the writer's default
  bool only_weights = false;           ///< weights were asked for, and nothing else: a state dict, not nested state
  TargetOptions options{};             ///< only those of Format::target_options
  std::string target;                  ///< final path
  std::string id;                      ///< 32 hex digits
  std::string source_format;           ///< for the record
  /// Of a format with `reads_steps`: values of optimizer state of one element ("step"), by index into Map::tensors.
  std::unordered_map<std::uint32_t, double> scalars{};
  const std::atomic<bool>* stop = nullptr;  ///< once set, laying out ends with `interrupted`; null: never
};

/// What a writer lays out.
struct Skeleton {
  bool directory = true;
  std::vector<TargetFile> files{};
  std::vector<Finding> dropped{};          ///< what this form cannot hold
  std::vector<MapFile> extra_files{};      ///< sources of raw placements beyond the map's files, absolute paths;
                                           ///< their indices follow Map::files
  std::shared_ptr<void> keep{};            ///< what must live until the run is over (temporary files)
  std::vector<std::string> small_names{};  ///< of `finish` where no checkpoint in our format has such a file
  /// Small files of step 5, the manifest last, from the leaf hashes of `files`; may be empty.
  std::function<Result<std::vector<SmallFile>>(const std::vector<Hash128>& leaves)> finish{};
};

/// What a format that stores hashes promises of its files, for verifying: read each file raw, compare the leaves.
struct StoredHashes {
  /// Every hashed file of the checkpoint, each with one raw placement of the whole file whose `raw_file` is the
  /// file's index in Map::files of the map that `open` returns for the same root. Empty files have no placement.
  std::vector<TargetFile> files{};
  std::vector<Hash128> leaves{};  ///< of `files` in order, as stored
  /// What is wrong with the structure although the checkpoint opens: file headers that disagree with the layout, a
  /// second copy that is missing or stale (damage, with the file as the user can find it), files that belong to nothing
  /// (notes).
  std::vector<Finding> findings{};
};

/// What a target does with extras. `beside`: they become files beside those that the writer lays out, where the target
/// is a directory; the conversion adds them. `inside`: the writer lays them out.
enum class KeepsExtras : std::uint8_t { no, beside, inside };

/// One format: a reader, and a writer where we write it. Registered by one line in registry.cpp.
struct Format {
  std::string_view name;
  std::string_view summary;  ///< one line for people
  /// Nothing when this is not such a checkpoint. Looks at names and first bytes only.
  Result<std::optional<Match>> (*detect)(const Place& place);
  /// Reads metadata into a map; no bulk byte. Null: recognised by name only; opening gives `unsupported`.
  Result<Map> (*open)(Io& io, const std::string& root, const ReadOptions& options);
  /// Null where we do not write it.
  Result<Skeleton> (*lay_out)(const WriteRequest& request);
  /// File name suffix that selects this writer without --to ("" = none).
  std::string_view suffix;
  /// Null for formats that store no hashes. Errors as `open`; reads metadata and file headers, no bulk byte.
  Result<StoredHashes> (*hashes)(Io& io, const std::string& root) = nullptr;
  /// The conversion id that a file of ours carries, for formats that are written but not yet read; else null.
  Result<std::string> (*stored_id)(Io& io, const std::string& root) = nullptr;
  /// Further suffixes by which people know this format's files: without --to, a target that ends in one is refused, not
  /// written as something else.
  std::span<const std::string_view> other_suffixes{};
  /// For `load`, which takes parts of tensors out: its word for this form ("npy", also the suffix after a dot), and the
  /// writer, which heeds Selected::part. A target with that suffix is one file. "" and null: not written by it.
  std::string_view load_name{};
  Result<Skeleton> (*lay_out_parts)(const WriteRequest&) = nullptr;
  /// For formats without `open`, or null: counts the files that make such a checkpoint, by names and sizes, all that
  /// can be told of it.
  /// errors  incomplete: one is missing, or empty
  Result<std::uint64_t> (*count_files)(Io& io, const std::string& root) = nullptr;
  /// Paths below the root of what belongs to such a checkpoint beside its map's files: an index, a tracker. In the last
  /// part * and ? stand for anything. What else a directory holds is not the checkpoint's, and --overwrite spares it.
  std::span<const std::string_view> own_names{};
  /// The options that this target takes, as flags without dashes ("zero-stage"): see TargetOptions.
  std::span<const std::string_view> target_options{};
  /// Further suffixes that select this writer without --to.
  std::span<const std::string_view> write_suffixes{};
  KeepsExtras extras = KeepsExtras::no;
  /// Opens the files of a trainer's state (optimizer, scheduler, random states) that stand in this form in a directory
  /// beside weights of another one (`has_state_beside`); nothing if there are none. Names begin with the file's.
  Result<std::optional<Map>> (*open_beside)(Io& io, const std::string& root, const ReadOptions& options) = nullptr;
  bool has_state_beside = false;  ///< trainers keep weights in this form, and their state beside it in others
  bool for_trainers = false;      ///< as a target, what a trainer resumes from rather than what a model is served from
  bool reads_steps = false;       ///< its layout depends on step counters: WriteRequest::scalars
  bool holds_blobs = false;       ///< as a target it takes opaque blobs too
  bool has_folders = false;       ///< its files may lie in folders below the root
};

/// All formats, in order of precedence of detection messages.
std::span<const Format> formats();
const Format* find_format(std::string_view name);

/// A checkpoint that was opened for reading: the lease on its root is held while this lives, which the Io outlives.
struct Source {
  std::string root{};  ///< directory of the map's files, or the file
  const Format* format = nullptr;
  std::string why{};  ///< what detection saw; empty where --from alone decided
  /// What its files were when they were opened, and the Io that holds them to it: for whatever reads metadata again.
  std::shared_ptr<SourceFiles> files{};
  std::unique_ptr<Io> io{};
  Map map{};
  /// Files beside it that tell of the model, hold no data of it and are no extras; only with ReadOptions::look_beside.
  std::vector<std::string> settings{};
  std::unique_ptr<Lease> lease{};

  /// errors  changed: a file is no longer what it was when it was opened
  Result<> check_unchanged() const { return files->look_again(*io); }
  /// A failure to read it; where its files changed in the meantime, that.
  Error explained(Error error) const;
};

/// Detects (or takes `from`) and opens. not_found; unsupported naming what was seen; ambiguous listing the matches;
/// incomplete; corrupt; refused.
Result<Source> open_source(Io& io, const std::string& path, std::string_view from, const ReadOptions& options);

/// A format that knows a place.
struct Candidate {
  const Format* format = nullptr;
  bool has_folders = false;  ///< files of the checkpoint may lie in folders below the place
};
/// All that know it; open_source takes one of them where there are several.
/// errors  as Io::stat and Io::list; where
/// none knows it, that of the first that failed to look
Result<std::vector<Candidate>> candidates(Io& io, const std::string& path);

/// What can be told of a checkpoint that is recognised but not read.
struct Glance {
  const Format* format = nullptr;
  std::uint64_t file_count = 0;
};
/// Detects, and looks at names and sizes. Nothing where the format can be read, or nothing can be told.
/// errors  as open_source
Result<std::optional<Glance>> glance(Io& io, const std::string& path, std::string_view from);

/// What detection says of a path, without opening it.
struct Recognition {
  const Format* format = nullptr;  ///< the first that knows it; null where none does
  bool unfinished = false;         ///< it is known as the beginning of an unfinished save
};
/// Looks at names and first bytes only. What cannot be looked at is not known.
Recognition recognise(Io& io, const std::string& path);

/// Hash over (path, size, mtime) of the map's files in path order and over its metadata: equal wherever the same source
/// is seen.
Hash128 fingerprint(const Map& map);
/// What a conversion's id is made from: the fingerprint and, where the format stores no hashes of its files, their
/// inodes and times of change. A file that was rewritten may have its old size and mtime.
Hash128 identity(const Map& map);

}  // namespace ckpt
