#include "convert/universal/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "convert/universal/checkpoint.hpp"
#include "format/json.hpp"
#include "format/safetensors.hpp"
#include "format/safetensors_metadata.hpp"

namespace ckpt::universal {
namespace {

/// Compares what a checkpoint says of itself in several places.
class Checker {
 public:
  Checker(Io& io, const std::string& root, const Checkpoint& checkpoint)
      : io_(io), root_(root), checkpoint_(checkpoint) {
    tensors_.resize(checkpoint.sums.files.size());
    for (std::uint32_t i = 0; i < checkpoint.places.size(); ++i) tensors_[checkpoint.places[i].file].push_back(i);
  }

  Result<std::vector<Finding>> run() {
    for (std::size_t i = 0; i < checkpoint_.sums.files.size(); ++i) {
      check_root(checkpoint_.sums.files[i]);
      if (checkpoint_.sums.files[i].data_begin != 0) CKPT_CHECK(check_header(i));
    }
    CKPT_CHECK(check_copy());
    CKPT_CHECK(list_strangers());
    return std::move(findings_);
  }

 private:
  void damage(const std::string& file, std::string text, std::string tensor = {}) {
    findings_.push_back({Severity::damage, std::move(text), join_path(root_, file), std::move(tensor)});
  }

  void check_root(const FileRecord& file) {
    const std::string path = file.key.path();
    const Hash128 root = root_hash(checkpoint_.sums.id, path, file.bytes, checkpoint_.sums.leaves_of(file));
    if (root != file.root) damage(path, "its leaves in sums.bin are not those of its root");
  }

  /// The header of a shard against manifest and sums.bin.
  Result<> check_header(std::size_t n) {
    const FileRecord& file = checkpoint_.sums.files[n];
    const std::string path = file.key.path();
    CKPT_TRY(const std::string head, read_head(path, file.data_begin));
    const auto head_bytes = std::as_bytes(std::span(head));
    const auto length = safetensors::header_bytes(head_bytes, file.bytes);
    if (!length || *length != file.data_begin) {
      damage(path, length ? fmt::format("its data begins at {}, but sums.bin says {}", *length, file.data_begin)
                          : length.error().message);
      return {};
    }
    const auto header = safetensors::parse_header(head_bytes, file.bytes);
    if (!header) {
      damage(path, header.error().message, header.error().tensor);
      return {};
    }
    check_entries(path, n, *header);
    check_series(path, file, *header);
    return {};
  }

  Result<std::string> read_head(const std::string& path, std::uint64_t bytes) {
    // The rules of sums.bin bound a data begin by the file alone.
    const std::uint64_t most = safetensors::kLengthBytes + safetensors::kMaxHeaderBytes;
    std::string head(static_cast<std::size_t>(std::min(bytes, most)), '\0');
    CKPT_TRY(const FileHandle handle, io_.open(join_path(root_, path), {}));
    auto read = io_.read_at(handle, 0, std::as_writable_bytes(std::span(head)));
    auto closed = io_.close(handle);
    if (!read) return fail(std::move(read).error());
    if (!closed) return fail(std::move(closed).error());
    return head;
  }

  void check_entries(const std::string& path, std::size_t n, const safetensors::Header& header) {
    std::vector<std::uint32_t>& expected = tensors_[n];
    const auto offset = [&](std::uint32_t tensor) { return checkpoint_.places[tensor].offset; };
    const auto& rows = checkpoint_.manifest.tensors;
    // Empty tensors share their offset with the next; the order of names decides among them.
    std::stable_sort(expected.begin(), expected.end(), [&](std::uint32_t a, std::uint32_t b) {
      return offset(a) != offset(b) ? offset(a) < offset(b) : is_empty(rows[a].tensor) && !is_empty(rows[b].tensor);
    });
    if (header.entries.size() != expected.size()) {
      damage(path, fmt::format("its header lists {} tensors, the manifest {}", header.entries.size(), expected.size()));
      return;
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const safetensors::Entry& entry = header.entries[i];
      const Tensor& tensor = rows[expected[i]].tensor;
      if (entry.name != tensor.name || entry.dtype != tensor.dtype || entry.shape != tensor.shape ||
          header.data_begin + entry.begin != offset(expected[i])) {
        damage(path, fmt::format("its header and the manifest disagree about '{}'", tensor.name), tensor.name);
        return;
      }
    }
  }

  static bool is_empty(const Tensor& tensor) {
    return std::find(tensor.shape.begin(), tensor.shape.end(), 0u) != tensor.shape.end();
  }

  /// `ckpt.v1`: whose file this is.
  void check_series(const std::string& path, const FileRecord& file, const safetensors::Header& header) {
    const auto at = std::find_if(header.metadata.begin(), header.metadata.end(),
                                 [](const auto& pair) { return pair.first == kSeriesKey; });
    const auto format = std::find_if(header.metadata.begin(), header.metadata.end(),
                                     [](const auto& pair) { return pair.first == safetensors::kFormatKey; });
    if (format == header.metadata.end() || format->second != "pt") damage(path, "its header does not say format 'pt'");
    if (at == header.metadata.end()) {
      damage(path, "its header does not say which checkpoint it belongs to");
      return;
    }
    const auto says = json::parse(at->second);
    const auto wants =
        json::parse(series_text({.key = file.key, .id = checkpoint_.sums.id, .version = checkpoint_.manifest.version}));
    const json::Object* members = wants ? wants->object() : nullptr;
    const bool same =
        says && members != nullptr && std::all_of(members->begin(), members->end(), [&](const auto& member) {
          const json::Value* value = says->find(member.first);
          return value != nullptr && value->v.index() == member.second.v.index() &&
                 (value->text() == nullptr || *value->text() == *member.second.text()) &&
                 (value->natural() == nullptr || *value->natural() == *member.second.natural());
        });
    if (!same) damage(path, "its header says that it is another file: " + at->second);
  }

  Result<> check_copy() {
    const std::string path(kManifestCopyPath);
    const auto copy = read_small_file(io_, join_path(root_, path), kMaxManifestBytes);
    if (!copy && copy.error().code != Errc::not_found) return fail(copy.error());
    if (!copy) {
      damage(path, "the second copy of the manifest is missing");
    } else if (*copy != checkpoint_.manifest_text) {
      damage(path, "the second copy of the manifest differs from manifest.json");
    }
    return {};
  }

  /// Files in the folders of data that no record names: not damage, but somebody put them there.
  Result<> list_strangers() {
    std::set<std::string> known{std::string(kManifestCopyPath)};
    for (const FileRecord& file : checkpoint_.sums.files) known.insert(file.key.path());
    for (const std::string folder : {"shards/weights", "shards/optim", "blobs", "index"}) {
      const auto entries = io_.list(join_path(root_, folder));
      if (!entries && entries.error().code == Errc::not_found) continue;
      if (!entries) return fail(entries.error());
      for (const DirEntry& entry : *entries) {
        const std::string path = folder + "/" + entry.name;
        if (!known.contains(path))
          findings_.push_back({Severity::note, path + " is no part of this checkpoint", join_path(root_, path)});
      }
    }
    return {};
  }

  Io& io_;
  const std::string& root_;
  const Checkpoint& checkpoint_;
  std::vector<std::vector<std::uint32_t>> tensors_{};  // of each file
  std::vector<Finding> findings_{};
};

}  // namespace

Result<StoredHashes> stored_hashes(Io& io, const std::string& root) {
  CKPT_TRY(Checkpoint checkpoint, open_checkpoint(io, root, ReadOptions{}.metadata_limit));
  if (!checkpoint.missing.empty()) {
    const std::string first = join_path(root, checkpoint.missing.front());
    return fail({.code = Errc::incomplete, .message = first + ": verify: the file is missing", .file = first});
  }
  StoredHashes out;
  CKPT_TRY(out.findings, Checker(io, root, checkpoint).run());
  for (std::uint32_t i = 0; i < checkpoint.sums.files.size(); ++i) {
    const FileRecord& record = checkpoint.sums.files[i];
    TargetFile file{.path = record.key.path(),
                    .bytes = record.bytes,
                    .file_class = static_cast<std::uint32_t>(record.key.file_class),
                    .writer = record.key.writer,
                    .volume = record.key.volume,
                    .header_bytes = record.data_begin};
    if (record.bytes != 0)
      file.placements.push_back({.bytes = record.bytes, .from = Placement::From::raw, .raw_file = i});
    out.files.push_back(std::move(file));
  }
  out.leaves = std::move(checkpoint.sums.leaves);
  return out;
}

}  // namespace ckpt::universal
