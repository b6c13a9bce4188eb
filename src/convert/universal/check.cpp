#include "convert/universal/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "convert/universal/checkpoint.hpp"
#include "format/files/safetensors.hpp"
#include "format/files/safetensors_metadata.hpp"
#include "format/text/json.hpp"
#include "format/universal/format_check.hpp"

namespace ckpt::universal {
namespace {

/// Compares facts that a checkpoint stores in several places.
class Checker {
 public:
  Checker(Io& io, const std::string& root, const Checkpoint& checkpoint)
      : io_(io), root_(root), checkpoint_(checkpoint) {}

  Result<std::vector<Finding>> run() {
    std::map<std::uint32_t, std::vector<const FileRecord*>> shards;  // by writer
    for (const FileRecord& file : checkpoint_.sums.files) {
      check_root(file);
      if (file.data_begin != 0) shards[file.key.writer].push_back(&file);
    }
    for (const auto& [writer, files] : shards) CKPT_CHECK(check_writer(writer, files));
    CKPT_CHECK(check_copy());
    CKPT_CHECK(list_strangers());
    return std::move(findings_);
  }

 private:
  void damage(Check check, const std::string& file, const std::string& text, std::string tensor = {}) {
    findings_.push_back({Severity::damage, text + check_suffix(check), join_path(root_, file), std::move(tensor)});
  }
  void note(const std::string& file, std::string text) {
    findings_.push_back({Severity::note, std::move(text), join_path(root_, file)});
  }

  void check_root(const FileRecord& file) {
    const std::string path = file.key.path();
    const Hash128 root = root_hash(checkpoint_.sums.id, path, file.bytes, checkpoint_.sums.leaves_of(file));
    if (root != file.root) damage(Check::roots, path, "its leaves in sums.bin do not match its root");
  }

  /// The shards of a writer against the layout, and their headers.
  Result<> check_writer(std::uint32_t writer, const std::vector<const FileRecord*>& files) {
    std::vector<GivenChunks> given;
    WriterRequest request{.rows = checkpoint_.manifest.tensors,
                          .layouts = checkpoint_.manifest.layouts,
                          .id = checkpoint_.manifest.id,
                          .writer = writer};
    if (checkpoint_.writers) request = checkpoint_.writers->request(writer, given);
    auto expected = lay_out_writer(request);
    if (!expected) {
      findings_.push_back({Severity::damage, expected.error().message, join_path(root_, files.front()->key.path()),
                           expected.error().tensor});
      return {};
    }
    auto want = expected->begin();
    for (const FileRecord* file : files) {
      for (; want != expected->end() && want->key < file->key; ++want)
        damage(Check::places, want->key.path(), "not listed in sums.bin");
      if (want == expected->end() || want->key != file->key) {
        damage(Check::places, file->key.path(), "contains no tensor");
        continue;
      }
      if (file->bytes - file->data_begin != want->bytes - want->data_begin)
        damage(Check::places, file->key.path(),
               fmt::format("{} bytes of tensors, but the layout gives it {}", file->bytes - file->data_begin,
                           want->bytes - want->data_begin));
      CKPT_CHECK(check_header(*file, *want));
      ++want;
    }
    for (; want != expected->end(); ++want) damage(Check::places, want->key.path(), "not listed in sums.bin");
    check_indexed_places(writer, *expected);
    return {};
  }

  /// The offsets in an index file must be those that the order of entries gives.
  void check_indexed_places(std::uint32_t writer, const std::vector<WriterFile>& expected) {
    if (!checkpoint_.writers) return;
    const auto at = checkpoint_.writers->irregular().find(writer);
    if (at == checkpoint_.writers->irregular().end()) return;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> offsets;  // by row and volume, in the data
    for (const WriterFile& file : expected) {
      for (const WriterEntry& entry : file.entries)
        offsets[{entry.row, file.key.volume}] = entry.offset - file.data_begin;
    }
    for (const IndexedChunk& chunk : at->second.chunks) {
      const auto number = checkpoint_.writers->file_of(chunk.row, writer, chunk.volume);
      const auto offset = offsets.find({chunk.row, chunk.volume});
      if (number && offset != offsets.end() &&
          chunk.offset == checkpoint_.sums.files[*number].data_begin + offset->second)
        continue;
      const std::string& name = checkpoint_.manifest.tensors[chunk.row].tensor.name;
      damage(Check::index_offsets, FileKey{FileClass::index, writer, 0}.path(),
             fmt::format("wrong offset of '{}'", name), name);
      return;
    }
  }

  /// The header of a shard against manifest and sums.bin.
  Result<> check_header(const FileRecord& file, const WriterFile& expected) {
    const std::string path = file.key.path();
    CKPT_TRY(const std::string head, read_head(path, file.data_begin));
    const auto head_bytes = std::as_bytes(std::span(head));
    const auto length = safetensors::header_bytes(head_bytes, file.bytes);
    if (!length || *length != file.data_begin) {
      damage(Check::header_form, path,
             length ? fmt::format("its data begins at {}, but sums.bin says {}", *length, file.data_begin)
                    : length.error().message);
      return {};
    }
    const auto header = safetensors::parse_header(head_bytes, file.bytes);
    if (!header) {
      damage(Check::header_form, path, header.error().message, header.error().tensor);
      return {};
    }
    check_entries(path, *header, expected);
    check_metadata(path, *header, expected);
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

  void check_entries(const std::string& path, const safetensors::Header& header, const WriterFile& expected) {
    if (header.entries.size() != expected.entries.size()) {
      damage(
          Check::header_entries, path,
          fmt::format("its header lists {} tensors, the manifest {}", header.entries.size(), expected.entries.size()));
      return;
    }
    for (std::size_t i = 0; i < expected.entries.size(); ++i) {
      const safetensors::Entry& entry = header.entries[i];
      const WriterEntry& want = expected.entries[i];
      const Tensor& tensor = checkpoint_.manifest.tensors[want.row].tensor;
      const Shape shape = want.chunk.flat ? Shape{want.chunk.flat->size()} : want.chunk.box.size;
      if (entry.name != tensor.name || entry.dtype != tensor.dtype || entry.shape != shape ||
          entry.begin != want.offset - expected.data_begin) {
        damage(Check::header_entries, path, fmt::format("its header and the manifest disagree about '{}'", tensor.name),
               tensor.name);
        return;
      }
    }
  }

  /// `__metadata__`: whose file this is, and where its parts of tensors begin.
  void check_metadata(const std::string& path, const safetensors::Header& header, const WriterFile& expected) {
    const auto value = [](const safetensors::Metadata& metadata, std::string_view key) -> const std::string* {
      const auto at =
          std::find_if(metadata.begin(), metadata.end(), [&](const auto& pair) { return pair.first == key; });
      return at == metadata.end() ? nullptr : &at->second;
    };
    const std::string* format = value(header.metadata, safetensors::kFormatKey);
    if (format == nullptr || *format != "pt") damage(Check::header_series, path, "its header does not say format 'pt'");
    const std::string* series = value(header.metadata, kSeriesKey);
    if (series == nullptr) {
      damage(Check::header_series, path, "its header does not say which checkpoint it belongs to");
      return;
    }
    const bool flat = std::any_of(expected.entries.begin(), expected.entries.end(),
                                  [](const WriterEntry& entry) { return entry.chunk.flat.has_value(); });
    if (!says(*series, series_text({.key = expected.key,
                                    .id = checkpoint_.sums.id,
                                    .version = version_of(*series),
                                    .dcp_readable = !flat})))
      damage(Check::header_series, path, "its header names another file: " + *series);
    check_slices(path, value(header.metadata, safetensors::kSlicesKey), expected);
  }

  /// The version in a shard, if it is allowed in this checkpoint; else that of the manifest.
  std::string version_of(const std::string& series) const {
    const auto parsed = json::parse(series);
    const json::Value* format = parsed ? parsed->find("format") : nullptr;
    const std::string* version = format == nullptr ? nullptr : format->text();
    const std::string& own = checkpoint_.manifest.version;
    return version != nullptr && is_known_version(*version) && go_together(*version, own) ? *version : own;
  }

  /// True if one JSON object has every member of another.
  static bool says(const std::string& text, const std::string& wanted) {
    const auto has = json::parse(text);
    const auto wants = json::parse(wanted);
    const json::Object* members = wants ? wants->object() : nullptr;
    return has && members != nullptr && std::all_of(members->begin(), members->end(), [&](const auto& member) {
             const json::Value* value = has->find(member.first);
             return value != nullptr && value->v.index() == member.second.v.index() &&
                    (value->text() == nullptr || *value->text() == *member.second.text()) &&
                    (value->boolean() == nullptr || *value->boolean() == *member.second.boolean()) &&
                    (value->natural() == nullptr || *value->natural() == *member.second.natural());
           });
  }

  /// How PyTorch's reader reads the file: it takes an entry without offsets as the whole tensor, and trusts existing
  /// offsets.
  void check_slices(const std::string& path, const std::string* text, const WriterFile& expected) {
    const auto is_part = [&](const WriterEntry& entry) {
      return entry.chunk.flat || entry.chunk.box.size != checkpoint_.manifest.tensors[entry.row].tensor.shape;
    };
    if (text == nullptr && std::none_of(expected.entries.begin(), expected.entries.end(), is_part)) return;
    const auto offsets = text == nullptr ? Result<safetensors::SavedOffsets>(fail(Errc::corrupt, "missing"))
                                         : safetensors::parse_saved_offsets(*text);
    const bool same = offsets && offsets->size() == expected.entries.size() &&
                      std::all_of(expected.entries.begin(), expected.entries.end(), [&](const WriterEntry& entry) {
                        const auto at = offsets->find(checkpoint_.manifest.tensors[entry.row].tensor.name);
                        const Shape want = entry.chunk.flat ? Shape{entry.chunk.flat->begin} : entry.chunk.box.offset;
                        return at != offsets->end() && at->second == want;
                      });
    if (!same) damage(Check::header_slices, path, "its header has wrong offsets of tensor parts");
  }

  bool is_earlier_revision(const std::string& copy) const {
    if (checkpoint_.manifest.revision == 0) return false;
    const auto parsed = parse_manifest(copy);
    return parsed && parsed->id == checkpoint_.manifest.id && parsed->revision < checkpoint_.manifest.revision;
  }

  Result<> check_copy() {
    const std::string path(kManifestCopyPath);
    const auto copy = read_small_file(io_, join_path(root_, path), kMaxManifestBytes);
    if (!copy && copy.error().code != Errc::not_found) return fail(copy.error());
    if (!copy) {
      damage(Check::second_manifest, path, "the second copy of the manifest is missing");
    } else if (is_earlier_revision(*copy)) {
      note(path, "the second copy of the manifest has an earlier revision; the update was interrupted");
    } else if (*copy != checkpoint_.manifest_text) {
      damage(Check::second_manifest, path, "the second copy of the manifest differs from manifest.json");
    }
    return {};
  }

  /// Files in data folders that no record names. Other programs read every data file of a folder, so an extra one is
  /// damage; other files were added by users.
  Result<> list_strangers() {
    std::set<std::string> known{std::string(kManifestCopyPath), "shards/weights", "shards/optim"};
    for (const FileRecord& file : checkpoint_.sums.files) known.insert(file.key.path());
    for (const std::string folder : {"shards", "shards/weights", "shards/optim", "blobs", "index"}) {
      const auto entries = io_.list(join_path(root_, folder));
      if (!entries && entries.error().code == Errc::not_found) continue;
      if (!entries) return fail(entries.error());
      const bool dropped = folder == "shards/optim" && checkpoint_.manifest.is_dropped(FileClass::optim);
      const std::string_view suffix = folder == "index" ? ".bin" : ".safetensors";
      for (const DirEntry& entry : *entries) {
        const std::string path = folder + "/" + entry.name;
        if (known.contains(path)) continue;
        if (entry.name.ends_with(suffix) && !dropped) {
          damage(Check::strays, path, path + " is not part of this checkpoint but looks like a data file; remove it");
        } else {
          note(path, path + " is not part of this checkpoint");
        }
      }
    }
    return {};
  }

  Io& io_;
  const std::string& root_;
  const Checkpoint& checkpoint_;
  std::vector<Finding> findings_{};
};

}  // namespace

Result<StoredHashes> stored_hashes(Io& io, const std::string& root) {
  CKPT_TRY(Checkpoint checkpoint, open_checkpoint(io, root, ReadOptions{}.metadata_limit));
  if (!checkpoint.missing.empty()) {
    const std::string first = join_path(root, checkpoint.missing.front());
    return fail({.code = Errc::incomplete, .message = first + ": the file is missing", .file = first});
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
