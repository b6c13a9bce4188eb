#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/phase_times.hpp"
#include "convert/target_options.hpp"
#include "engine/comm/comm.hpp"
#include "engine/io/io.hpp"
#include "engine/process/memory.hpp"
#include "format/model/map_rules.hpp"
#include "format/model/model.hpp"
#include "format/text/glob.hpp"

namespace ckpt {

/// Progress of one phase ("read+convert", "verify", ...), by bytes of the target.
struct Progress {
  std::string phase;
  std::uint64_t done_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::string name{};       ///< about what is being read or written: a tensor, or a file of the target; "" if not known
  std::uint64_t item = 0;   ///< of several checkpoints in turn, which one, from 1; 0: there is only one
  std::uint64_t items = 0;  ///< how many
};

struct ConvertReport;

/// What every command needs from its caller. References outlive the call.
struct Session {
  Io& io;
  Comm& comm;
  std::uint64_t memory_bytes = 0;  ///< bound on this process's resident memory
  unsigned threads = 1;
  const std::atomic<bool>* stop = nullptr;
  bool is_stopped() const { return stop != nullptr && stop->load(); }
  const MapRules* rules =
      nullptr;  ///< `--map`: for the checkpoint that is read; in verify for the other one, if there is one
  std::function<void(const Progress&)> progress{};
  /// convert: called once when the plan is made, before anything is created. The report has the source, the target, the
  /// totals, the memory and the notes; results come at the end.
  std::function<void(const ConvertReport&)> planned{};
  /// convert: the shortest time between two records of a thread's finished leaves, for a run that resumes after a kill.
  std::chrono::milliseconds record_every{200};
};

enum class WeightsFrom : std::uint8_t { automatic, master, param };
enum class VerifyLevel : std::uint8_t { none, read, full };

/// Reads the file of `--map`.
/// errors  usage: it is not one; not_found, io
Result<MapRules> read_map_rules(Io& io, const std::string& path);

/// Reads the word of `--names`: "hf", "megatron", or one of them with a profile, "hf:qwen2".
/// errors  usage: it is not one
Result<MapRules::Names> parse_names(const std::string& word);

/// A naming profile that ckpt has.
struct ProfileInfo {
  std::string family;        ///< "qwen2"
  std::string architecture;  ///< "Qwen2ForCausalLM"
  std::string summary;
};
std::vector<ProfileInfo> known_profiles();

struct ConvertRequest {
  std::string source;
  std::string target;
  std::string to{};                 ///< format name; "" = by the target's suffix, else "ckpt"
  std::string from{};               ///< format name; "" = detect
  std::vector<std::string> only{};  ///< "weights", "optim" or globs over names; empty = everything
  WeightsFrom weights = WeightsFrom::automatic;
  std::optional<Dtype> dtype{};   ///< none = keep
  std::uint64_t shard_bytes = 0;  ///< 0 = the writer's default
  TargetOptions options{};        ///< those that the target format takes
  std::string strip_prefix{};
  std::string add_prefix{};
  /// Extra files of the model (config.json, the tokenizer's) are copied if the target keeps such files.
  bool extras = true;
  std::string assets{};       ///< a model folder: its extra files are copied if the source has none of that name
  bool by_reference = false;  ///< the target refers to the source's files and copies no tensor (`--virtual`)
  /// The source must be a virtual checkpoint. It may be the target too, which is then replaced as with `overwrite`.
  bool materialize = false;
  bool dry_run = false;
  bool overwrite = false;
  bool restart = false;  ///< leftovers of a killed run of this conversion are removed, not resumed
  VerifyLevel verify = VerifyLevel::read;
  bool allow_skipped = false;  ///< files of the source that are not part of its map are not an error
  bool salvage = false;        ///< other missing or damaged parts of the source are not an error
};

struct ConvertReport {
  std::string source_format;   ///< "deepspeed"
  std::string source_variant;  ///< "zero-3" or empty
  std::string source_chosen;   ///< "using tag global_step3 from 'latest'" or empty
  std::string target_format;
  std::string target;
  std::string id;
  bool already_done = false;
  bool dry_run = false;
  bool names_state = false;  ///< --map lists the parameters: optimizer state that the source numbers gets their names
  std::vector<std::pair<std::string, std::uint64_t>> files{};     ///< of the target: path, bytes
  std::vector<std::pair<std::string, std::uint64_t>> replaced{};  ///< on rank 0, of the old target: path, bytes
  std::uint64_t tensor_count = 0;
  std::uint64_t source_bytes = 0;  ///< needed from the source
  std::uint64_t target_bytes = 0;
  std::uint64_t read_bytes = 0;     ///< really read by all ranks, over-reading included
  std::uint64_t resumed_bytes = 0;  ///< of the target: finished by a run that was killed, and found to be right
  std::uint64_t free_bytes_after = 0;
  std::uint64_t memory_bound = 0;
  int ranks = 1;                     ///< that share the work
  std::uint64_t planned_memory = 0;  ///< metadata and pool
  std::uint64_t crc_checked = 0;     ///< checksums of the source's format compared
  std::uint64_t crc_unread = 0;      ///< those of which only a part was needed
  std::uint64_t hash_checked = 0;    ///< stored hashes of a universal source compared
  std::uint64_t overflowed = 0;      ///< casts
  std::uint64_t became_nan = 0;
  double seconds = 0;
  PhaseTimes times{};            ///< zeros where nothing was moved
  std::uint64_t peak_bytes = 0;  ///< memory of the process, its hugetlb pages too, of the largest of all ranks
  std::string io_name{};
  bool direct = false;  ///< false: a file system refused O_DIRECT, so the page cache was used; or nothing was moved
  std::string page_kind{};
  VerifyLevel verified = VerifyLevel::read;
  std::uint64_t referenced_bytes = 0;  ///< of tensors that were not copied
  std::uint64_t referenced_files = 0;
  std::vector<Finding> notes{};  ///< decisions, dropped items, warnings
  bool partial = false;          ///< a requested item was not done, or data of the source was skipped: exit 3
};
Result<ConvertReport> convert(Session& session, const ConvertRequest& request);

/// Takes tensors, or slices of them, out of any checkpoint into plain files: NumPy's, or one of safetensors.
struct LoadRequest {
  std::string source;
  std::string target;                 ///< a file; for npy a directory if its name does not end in ".npy"
  std::string to{};                   ///< FormatInfo::load_name; "" = by the target's suffix
  std::string from{};                 ///< format name; "" = detect
  std::vector<std::string> only{};    ///< as of a conversion; empty = what `slices` name, or everything
  std::vector<std::string> slices{};  ///< "name[0:128,:]", at most one per tensor: api/convert/slice.hpp
  bool dry_run = false;
  bool overwrite = false;
  VerifyLevel verify = VerifyLevel::read;
};
struct LoadedTensor {
  std::string name;
  std::string slice;  ///< as requested, without the name; "": the whole tensor
  std::string dtype;  ///< of the checkpoint: "BF16"
  Shape shape;        ///< as written
  std::uint64_t bytes = 0;
  std::string file;  ///< below the target; "" = the target itself
};
struct LoadReport {
  ConvertReport conversion{};
  std::vector<LoadedTensor> tensors{};  ///< empty if it was already done
};
/// errors   those of a conversion; not_found with `tensor`: a slice of a tensor that does not exist; usage: a slice
///          that is invalid, or of a tensor that is not selected
Result<LoadReport> load(Session& session, const LoadRequest& request);

/// A share of the checkpoint; the same for the same seed.
struct Sample {
  double share = 1;  ///< 0 < share <= 1; never nothing is checked
  std::uint64_t seed = 0;
};

/// How far apart two values may be: |a - b| <= absolute + relative * |b|, b the other checkpoint's; as numpy.allclose.
struct Tolerance {
  double absolute = 0;
  double relative = 0;
};
struct VerifyRequest {
  std::string path;
  std::string from{};
  bool quick = false;                    ///< structure and sizes only
  std::string against{};                 ///< another checkpoint, any format; "" = none
  std::vector<std::string> only{};       ///< with `against`: as ConvertRequest::only; empty = all
  std::string strip_prefix{};            ///< with `against`: names of both without it, as ConvertRequest::strip_prefix
  std::optional<Tolerance> tolerance{};  ///< with `against`: what lies within it does not count as different
  bool finite = false;                   ///< also look for NaNs and infinities
  std::optional<Sample> sample{};  ///< of the leaves: 4 MiB of a universal checkpoint's files, of other forms' values
};

/// A tensor with NaNs or infinite values.
struct NotFiniteTensor {
  std::string name;
  std::uint64_t nan = 0;
  std::uint64_t infinite = 0;
};
/// How the values of two tensors of one shape differ.
struct ValueDifference {
  std::uint64_t elements = 0;
  std::uint64_t differing = 0;   ///< in any bit
  std::uint64_t one_is_nan = 0;  ///< of those: NaN on one side only
  double max_absolute = 0;       ///< greatest |a - b|; of numbers only
  double max_relative = 0;       ///< greatest |a - b| / max(|a|, |b|)
  /// Sums of |a - b|^2 of numbers, and of |b|^2 of finite ones, equal ones too; long: squares of F64 exceed a double.
  long double squares = 0;
  long double other_squares = 0;
  std::uint64_t beyond = 0;  ///< elements beyond the tolerance; without one: that differ

  void add(const ValueDifference& part);
  /// |a - b| / |b| of all values as one vector, Euclidean norms; infinite where only b is 0.
  double norm() const;
};
struct VerifyReport {
  std::string format;
  std::string variant;
  std::string path;
  bool ok = false;
  std::uint64_t tensor_count = 0;
  std::uint64_t file_count = 0;
  std::uint64_t leaf_count = 0;  ///< hashes compared
  std::uint64_t crc_checked = 0;
  std::uint64_t crc_unread = 0;   ///< checksums whose bytes were not all read
  std::uint64_t without_crc = 0;  ///< tensors of a format with checksums of its own of which a part has none
  std::uint64_t masters = 0;      ///< fp32 masters compared with the weights that were rounded from them
  std::uint64_t replicated = 0;   ///< tensors all of whose copies were compared
  std::uint64_t bytes = 0;        ///< checked
  double seconds = 0;
  std::uint64_t referenced_files = 0;  ///< of other checkpoints, to which a virtual one refers: no hash covers them
  std::string checked_by;              ///< the basis of the verdict, in words
  bool unread = false;                 ///< recognised but not read: nothing is known of tensors
  std::vector<Finding> damage{};       ///< the finding: file, offset, tensor
  bool finite_checked = false;
  std::vector<NotFiniteTensor> not_finite{};  ///< in the source's order
  std::vector<Finding> notes{};
  std::uint64_t compared = 0;  ///< --against: tensors equal bit for bit
  std::uint64_t within = 0;    ///< others, all of whose values are within the tolerance
  std::vector<std::string> only_here{};
  std::vector<std::string> only_there{};
  struct Difference {
    std::string name;
    std::string reason;  ///< "F32 here, BF16 there", "shape [2] here, [3] there", "values"
    /// If the shapes are equal; of floats of two types after a cast to F32.
    std::optional<ValueDifference> values{};
  };
  std::vector<Difference> different{};
};
/// Damage that is found is in the report (ok = false), not an error; errors are not_found, unsupported, incomplete,
/// refused and io.
Result<VerifyReport> verify(Session& session, const VerifyRequest& request);

struct InspectReport {
  std::string path;
  std::string root;  ///< the directory chosen
  std::string format;
  std::string variant;
  std::string chosen;
  std::string why;          ///< the findings of detection; empty if only --from decided
  bool is_readable = true;  ///< false: only recognised; tensors are not known
  bool is_checked = true;   ///< false: recognised, and nothing shows whether files are missing
  std::string summary{};    ///< of a format that is only recognised: "a Megatron-LM checkpoint"
  std::string hint{};       ///< and another way to read its data
  struct Fact {
    std::string name;  ///< "model", "optimizer", "saved"
    std::string text;
  };
  std::vector<Fact> facts{};
  Meta meta;
  bool complete = true;
  std::uint64_t tensor_count = 0;            ///< of every role
  std::uint64_t parameter_count = 0;         ///< elements of params; a tied weight counts once
  std::uint64_t parameter_tensor_count = 0;  ///< params
  std::uint64_t object_count = 0;
  std::uint64_t file_count = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t referenced_files = 0;  ///< of other checkpoints, to which a virtual one refers
  std::uint64_t referenced_bytes = 0;
  struct Part {
    std::string name;  ///< "params bf16", "buffers", "master f32", "exp_avg f32", "blobs"
    std::uint64_t tensors = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<Part> parts{};
  std::vector<Alias> aliases{};
  std::vector<std::string> extras{};  ///< files that go with the model: config.json, the tokenizer's
  std::vector<std::string> can_become{};
  std::uint64_t smallest_memory = 0;  ///< --memory that a conversion needs
  bool stores_hashes = false;         ///< its format keeps a hash of every byte
  bool stores_checksums = false;      ///< its files have CRC-32s of tensors
  std::vector<Finding> findings{};    ///< of the reader, then unexpected facts about its contents
  std::vector<std::pair<std::string, std::uint64_t>> files{};
};
Result<InspectReport> inspect(Session& session, const std::string& path, const std::string& from);

struct ListedTensor {
  std::string name;
  std::string dtype;  ///< "F32", or the true dtype
  Shape shape;
  std::uint64_t bytes = 0;
  std::string role;
  std::string parameter;
  std::string slot;
  std::string alias_of;  ///< for a tied name
};
constexpr std::size_t kListedValueBytes = 1000;  ///< about so long is the text of one value
/// A value that is not a tensor.
struct ListedObject {
  std::string name;
  std::string text;  ///< as Python prints it, shortened to kListedValueBytes
};
struct ListReport {
  std::string format;
  std::vector<ListedTensor> tensors{};
  std::vector<ListedObject> objects{};
  std::vector<Finding> findings{};
};
Result<ListReport> list_tensors(Session& session, const std::string& path, const std::string& from);
/// The names of its tensors alone. Takes no lock and writes nothing: for completion.
Result<std::vector<std::string>> tensor_names(Io& io, const std::string& path, const std::string& from);

/// Names and one-line descriptions of the formats, for help texts and "did you mean".
struct FormatInfo {
  std::string name;
  std::string summary;
  bool readable = false;
  bool writable = false;
  bool for_trainers = false;            ///< training state, rather than files for inference
  std::string load_name{};              ///< as `load` calls it; "" = not written by it
  std::vector<std::string> synonyms{};  ///< other names of it
};
std::vector<FormatInfo> known_formats();

}  // namespace ckpt
