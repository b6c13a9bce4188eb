#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "format/hash.hpp"
#include "format/model/box.hpp"
#include "format/model/dtype.hpp"
#include "format/model/value.hpp"
#include "format/result.hpp"

namespace ckpt {

/// The role of a tensor in training. `slot` is optimizer state (master weights too); `blob` is an opaque byte string
/// kept as a 1-D U8 tensor.
enum class Role : std::uint8_t { param, buffer, slot, blob };
std::string_view role_name(Role role);

/// One logical tensor of a checkpoint.
struct Tensor {
  std::string name;  ///< unique in its map, valid UTF-8
  Path path{};       ///< kept when it differs from `name` split at dots
  Dtype dtype = Dtype::f32;
  Shape shape{};  ///< global, logical; packed dtypes count elements, not bytes
  Role role = Role::param;
  std::string parameter{};   ///< for a slot: the parameter's name, where known
  std::string slot{};        ///< for a slot: "master", "exp_avg", "exp_avg_sq", "step", or the framework's own
  std::string true_dtype{};  ///< "complex128" if the stored dtype is F64 with a last dimension of 2, else empty
};

/// Whether a true dtype is empty, or names the complex numbers that pairs of such elements are.
bool fits_true_dtype(const Tensor& tensor);

/// Bytes of the whole tensor, densely stored. `corrupt` on overflow or a bit count that is not whole bytes.
Result<std::uint64_t> tensor_bytes(Dtype dtype, const Shape& shape);

/// A CRC-32 that the source format gives for a byte range of one file.
struct Crc {
  std::uint64_t begin = 0;  ///< bytes from the start of the file
  std::uint64_t end = 0;
  std::uint32_t value = 0;
};

/// How bytes of a file are compressed. `zstd`: frames that follow each other (RFC 8878).
enum class Codec : std::uint8_t { zstd };

/// A range of a file that holds other bytes in compressed form, and can only be decoded from its begin on.
struct Compressed {
  Codec codec = Codec::zstd;
  Extent stored{};          ///< bytes of the file
  std::uint64_t bytes = 0;  ///< decoded
  bool operator==(const Compressed&) const = default;
};

/// The location of a chunk's bytes. Without strides the chunk is dense and row-major at `offset`.
struct Locator {
  std::uint32_t file = 0;               ///< index into Map::files
  std::uint64_t offset = 0;             ///< of the chunk's first element, bytes from the start of the file
  Dtype dtype = Dtype::f32;             ///< as stored; differs from the tensor's for derived chunks (cast on the way)
  std::vector<std::int64_t> strides{};  ///< elements, one per dimension of the box, >= 0; empty = dense
  bool big_endian = false;
  std::optional<Crc> crc{};                ///< of the storage that holds the chunk, if the format has one
  std::optional<Compressed> compressed{};  ///< then `offset` and `crc` count from the first decoded byte
};

struct PlacedChunk {
  Chunk chunk;
  Locator where;
};
using ChunkVisitor = std::function<Result<>(const PlacedChunk&)>;
using RegionVisitor = std::function<Result<>(const Chunk&)>;

/// Finds the chunks of a tensor. Implementations may read metadata lazily (hence Result) and are used by one thread at
/// a time.
class ChunkIndex {
 public:
  virtual ~ChunkIndex() = default;
  /// Calls `visit` for every chunk of the tensor that overlaps `elements` (row-major, of the whole tensor). Boxes that
  /// only span the range without overlapping it may be visited too. Every replica is visited.
  virtual Result<> chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const = 0;
  /// The same without locations, for checking coverage. An index that reads locations lazily answers from memory; the
  /// default calls `chunks`.
  virtual Result<> regions(std::size_t tensor, Extent elements, const RegionVisitor& visit) const;
};

/// A chunk index held in memory: one compact record a chunk, found by binary search.
class ChunkTable final : public ChunkIndex {
 public:
  explicit ChunkTable(std::size_t tensor_count);
  ~ChunkTable() override;
  ChunkTable(ChunkTable&&) noexcept;
  ChunkTable& operator=(ChunkTable&&) noexcept;

  /// Adds a chunk of tensor `tensor`, whose shape must be the same in every call. The chunk must fit the shape.
  void add(std::size_t tensor, const Shape& shape, Chunk chunk, Locator where);
  /// Sorts; call once, after the last add.
  void seal();
  Result<> chunks(std::size_t tensor, Extent elements, const ChunkVisitor& visit) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A file of a checkpoint.
struct MapFile {
  /// Relative to the root with '/', never escaping it; "" = the root is the file. Absolute: a temporary file of the
  /// reader's own, for bytes that it must decode.
  std::string path;
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  /// Not empty: a file of another checkpoint, to which a virtual one refers. The path of that checkpoint; `path` is
  /// relative to it.
  std::string root{};
  std::uint64_t device = 0;
  std::uint64_t inode = 0;    ///< 0: not known, and not compared
  std::int64_t ctime_ns = 0;  ///< of the last change to the file or its inode; 0: not known
};

inline bool is_temporary(const MapFile& file) {
  return file.path.starts_with('/');
}

/// Whether it belongs to another checkpoint, to which a virtual one refers.
inline bool is_referenced(const MapFile& file) {
  return !file.root.empty();
}

/// A second name for (part of) a tensor's bytes: tied weights.
struct Alias {
  std::string name;
  std::string target;  ///< a tensor's name
  Path path{};         ///< as Tensor::path
};

/// A tensor that no file holds: it is another one's bytes, cast. Both have the same chunks.
struct Derived {
  std::uint32_t tensor = 0;  ///< index into Map::tensors
  std::uint32_t from = 0;    ///< of the second one
};

/// A Python object of the source, by its dotted path.
struct NamedObject {
  std::string name;
  Path path{};
  Value value{};
};

enum class Severity : std::uint8_t { note, warning, incomplete, damage };
std::string_view severity_name(Severity severity);

/// The finding is about data that no target can hold.
enum class Skipped : std::uint8_t {
  nothing,
  training_state,  ///< files of an optimizer, a scheduler, random states
  data,            ///< other files that hold data, or parts of tensors
  unless_blobs,    ///< parts of tensors that are only in opaque blobs: carried over if the target stores blobs
};

/// Something a user must know about a checkpoint: missing ranks, traps, dropped items.
struct Finding {
  Severity severity = Severity::note;
  std::string text;
  std::string file{};
  std::string tensor{};
  std::optional<std::uint64_t> offset{};  ///< bytes from the start of `file`, where known
  Skipped skipped = Skipped::nothing;
};

/// The single object in a source's file, from which its tensors and objects were
/// taken, with all containers in their order and what they share. It refers to
/// tensors by their names in the map; one that the map does not have has the name
/// "".
struct WholeObject {
  ValuePtr value{};
  /// By a tensor's name: the storage that it is a view of, bytes of file 0.
  std::unordered_map<std::string, Extent> storages{};
};

struct Meta {
  std::optional<std::uint64_t> step{};
  std::optional<std::uint64_t> world_size{};
  std::vector<std::pair<std::string, std::uint64_t>> mesh{};  ///< "dp", "tp", "pp", "ep", "zero" -> degree or stage
  std::string framework{};                                    ///< "deepspeed", "torch", "transformers", ...
  std::string framework_version{};
  std::vector<std::pair<std::string, std::string>> user{};  ///< text key -> text (safetensors __metadata__, ...)
};

/// Hashes that a format stores of its files' leaves: leaf k of a file is its bytes [k * 4 MiB, (k + 1) * 4 MiB).
struct LeafHashes {
  std::vector<Hash128> leaves{};
  std::vector<Extent> files{};  ///< by index into Map::files: a range of `leaves`, empty if there are none

  std::span<const Hash128> of(std::uint32_t file) const {
    if (file >= files.size()) return {};
    return std::span(leaves).subspan(files[file].begin, files[file].size());
  }
};

/// A small file that goes with the weights, so that programs can load them: config.json, the tokenizer's files.
struct Extra {
  std::string path;          ///< relative to a checkpoint's folder
  std::uint32_t tensor = 0;  ///< its bytes: a blob, index into Map::tensors
};

/// The contents of a checkpoint and their locations: made by a reader, without reading tensor data.
struct Map {
  std::string format{};           ///< the registry's name: "safetensors", "deepspeed", "dcp", "torch", "ckpt"
  std::string variant{};          ///< for people: "zero-2", "3 shards with index", ...
  std::string chosen{};           ///< why this sub-checkpoint: "tag global_step3 from 'latest'"; may be empty
  std::string origin{};           ///< of a conversion to the universal format: the source format
  bool nested = false;            ///< names are paths from a root object, whose keys may wrap the model
  std::vector<Tensor> tensors{};  ///< in the source's order; blobs too
  std::vector<MapFile> files{};
  std::vector<Alias> aliases{};
  std::vector<Derived> derived{};  ///< so that a plan that needs both reads once
  std::vector<NamedObject> objects{};
  std::vector<Extra> extras{};
  /// Files that the conversion wrote in addition to `files`, with hash128(their bytes).words()[0].
  std::vector<std::pair<std::string, std::uint64_t>> written_beside{};
  Meta meta{};
  std::vector<Finding> findings{};
  bool compressed = false;  ///< some chunks are compressed
  /// Tensors are in the order of the model's modules, by which an optimizer numbers parameters. Files that sort names
  /// (safetensors, the universal format) do not keep it.
  bool module_order = false;
  /// The parameters in the model's order, as the user gives it where the files do not keep it; names in the map, or in
  /// the model where the map's names begin with a wrapper of it. Empty: not given.
  std::vector<std::string> parameter_order{};
  bool collection = false;  ///< several files that are read together, though each is complete without the others
  std::shared_ptr<const ChunkIndex> index{};
  LeafHashes hashes{};
  /// If the format keeps one object of nested state in one file; else empty. Computed on request.
  /// errors  refused: more than 4 M values
  std::function<Result<WholeObject>()> whole{};
  std::string id{};  ///< a universal checkpoint's own id, or ckpt.id of a file we wrote; else empty
  /// A hash over every metadata byte that was parsed, in a fixed order (part of the source's fingerprint).
  std::string metadata_hash{};
};

/// Checks that the chunks of each of these tensors (indices into Map::tensors) cover it exactly once, apart from
/// replicas (identical chunks). `uncovered` or `overlap` name the first bad tensor and region.
Result<> check_coverage(const Map& map, std::span<const std::uint32_t> tensors);

}  // namespace ckpt
