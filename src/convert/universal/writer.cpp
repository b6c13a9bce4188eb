#include "convert/universal/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>

#include "convert/extras.hpp"
#include "convert/identity.hpp"
#include "convert/target_tensors.hpp"
#include "convert/universal/checkpoint.hpp"
#include "convert/universal/referenced_rows.hpp"
#include "format/files/safetensors.hpp"
#include "format/files/safetensors_metadata.hpp"
#include "format/text/json_writer.hpp"
#include "format/universal/objects.hpp"
#include "format/universal/seal.hpp"
#include "format/universal/whole_layout.hpp"

namespace ckpt::universal {
namespace {

constexpr std::size_t kMostFindings = 1000;

/// The parts known before the data is: the rest follows from its leaves.
struct Draft {
  Manifest manifest{};
  std::vector<FileRecord> files{};

  /// Small files of the commit, manifest.json last. The manifest, of many rows, is not copied.
  Result<std::vector<SmallFile>> finish(const std::vector<Hash128>& leaves) {
    CKPT_TRY(std::string sums, seal_sums(manifest, files, leaves));
    CKPT_TRY(std::string text, build_manifest(manifest));
    return std::vector<SmallFile>{{.path = std::string(kManifestCopyPath), .bytes = text},
                                  {.path = std::string(kSumsPath), .bytes = std::move(sums)},
                                  {.path = std::string(kManifestPath), .bytes = std::move(text)}};
  }
};

/// A share of a header that no entry passes: its name as JSON, 64 bytes of punctuation, keys and dtype, two offsets and
/// every dimension at most 20 digits and a comma.
std::uint64_t header_share(const Tensor& tensor) {
  std::string quoted;
  json::append_quoted(quoted, tensor.name);
  return quoted.size() + 64 + 21 * (2 + tensor.shape.size());
}

/// The request with its extras as tensors, after the others; nothing if it has none.
std::optional<WriteRequest> with_extras(const WriteRequest& request) {
  if (request.extras.empty()) return std::nullopt;
  WriteRequest out = request;
  std::unordered_set<std::string_view> taken;
  for (const Selected& selected : request.tensors) taken.insert(selected.name);
  for (const Alias& alias : request.aliases) taken.insert(alias.name);
  for (const WantedExtra& extra : request.extras)
    out.tensors.push_back({.tensor = extra.tensor, .name = name_of_extra(extra.path, taken), .dtype = Dtype::u8});
  return out;
}

class Writer {
 public:
  explicit Writer(const WriteRequest& request)
      : with_extras_(with_extras(request)),
        request_(with_extras_ ? *with_extras_ : request),
        names_(request_),
        draft_(std::make_shared<Draft>()) {}

  Result<Skeleton> lay_out() {
    const auto id = Hash128::from_hex(request_.id);
    if (!id) return fail(Errc::internal, request_.target + ": an id that is not 32 hexadecimal digits");
    draft_->manifest.id = *id;
    describe();
    CKPT_CHECK(take_tensors());
    take_aliases();
    if (request_.refer) CKPT_CHECK(refer_to_tensors());
    for (const FileClass file_class : {FileClass::weights, FileClass::optim, FileClass::blobs})
      CKPT_CHECK(add_class(file_class));
    CKPT_CHECK(add_objects());
    out_.finish = [draft = draft_](const std::vector<Hash128>& leaves) { return draft->finish(leaves); };
    return std::move(out_);
  }

 private:
  std::vector<TensorRow>& rows() { return draft_->manifest.tensors; }

  /// Null if the tensor is not an extra.
  const WantedExtra* extra_of(std::uint32_t selected) const {
    const std::size_t first = request_.tensors.size() - request_.extras.size();
    return selected < first ? nullptr : &request_.extras[selected - first];
  }

  void describe() {
    const Map& source = *request_.source;
    Manifest& manifest = draft_->manifest;
    std::int64_t newest = 0;
    for (const MapFile& file : source.files) newest = std::max(newest, file.mtime_ns);
    manifest.created = utc_text(newest);
    manifest.generator = "ckpt " CKPT_VERSION;
    manifest.source = {.format = request_.source_format, .fingerprint = fingerprint(source), .chosen = source.chosen};
    manifest.meta = source.meta;
    take_findings();
  }

  /// Findings about the source, except paths outside of it: the bytes must not depend on its location.
  void take_findings() {
    const Map& source = *request_.source;
    std::unordered_set<std::string_view> paths;
    for (const MapFile& file : source.files) paths.insert(file.path);
    std::vector<Finding>& findings = draft_->manifest.findings;
    for (const Finding& finding : source.findings) {
      if (finding.severity == Severity::note || findings.size() == kMostFindings) continue;
      findings.push_back(finding);
      if (!paths.contains(finding.file)) findings.back().file.clear();
    }
  }

  /// One row per tensor, in name order, and its index among the selected tensors.
  Result<> take_tensors() {
    const std::size_t count = request_.tensors.size();
    selected_.resize(count);
    std::iota(selected_.begin(), selected_.end(), 0u);
    std::sort(selected_.begin(), selected_.end(),
              [&](std::uint32_t a, std::uint32_t b) { return request_.tensors[a].name < request_.tensors[b].name; });
    bool renamed = false;
    rows().reserve(count);
    for (const std::uint32_t selected : selected_) {
      TensorRow row{.tensor = names_.tensor(selected)};
      const WantedExtra* extra = extra_of(selected);
      if (extra != nullptr && extra->text) row.tensor.shape = {extra->text->size()};
      const std::string& name = row.tensor.name;
      renamed =
          renamed || (extra == nullptr && name != request_.source->tensors[request_.tensors[selected].tensor].name);
      if (!rows().empty() && rows().back().tensor.name == name)
        return fail(Errc::usage, fmt::format("{}: two tensors are named '{}'", request_.target, name));
      CKPT_TRY(const std::uint64_t bytes, tensor_bytes(row.tensor.dtype, row.tensor.shape));
      bytes_.push_back(bytes);
      rows().push_back(std::move(row));
    }
    for (std::size_t i = 0; i < request_.extras.size(); ++i)
      draft_->manifest.extras.push_back(
          {request_.extras[i].path, request_.tensors[count - request_.extras.size() + i].name});
    std::ranges::sort(draft_->manifest.extras, {}, &Manifest::ExtraRow::path);
    // A new name may have lost the wrapper that `nested` refers to.
    draft_->manifest.nested = request_.source->nested && !renamed;
    return {};
  }

  void take_aliases() {
    std::vector<Alias> aliases = request_.aliases;
    std::sort(aliases.begin(), aliases.end(), [](const Alias& a, const Alias& b) { return a.name < b.name; });
    const auto is_tensor = [&](const std::string& name) {
      const auto at = std::partition_point(rows().begin(), rows().end(),
                                           [&](const TensorRow& row) { return row.tensor.name < name; });
      return at != rows().end() && at->tensor.name == name;
    };
    std::vector<Alias>& kept = draft_->manifest.aliases;
    for (Alias& alias : aliases) {
      const bool repeated = !kept.empty() && kept.back().name == alias.name;
      if (repeated || is_tensor(alias.name) || !is_tensor(alias.target)) {
        out_.dropped.push_back({.severity = Severity::warning,
                                .text = fmt::format("the tied name '{}' of '{}' is taken, or its tensor is missing",
                                                    alias.name, alias.target),
                                .tensor = alias.name});
      } else {
        kept.push_back(std::move(alias));
      }
    }
  }

  VolumeLimits limits() const {
    VolumeLimits limits = kDefaultVolumes;
    if (request_.shard_bytes != 0) {
      limits.file_bytes = request_.shard_bytes;
      limits.smallest_bytes = 0;
    }
    return limits;
  }

  /// All tensors but blobs, which are small, stay where they are.
  Result<> refer_to_tensors() {
    Manifest& manifest = draft_->manifest;
    manifest.layouts.push_back({.kind = Layout::Kind::referenced});
    for (std::size_t i = 0; i < rows().size(); ++i) {
      TensorRow& row = rows()[i];
      if (row.file_class() == FileClass::blobs) continue;
      row.layout = 1;
      CKPT_CHECK(take_chunks(*request_.source, request_.tensors[selected_[i]].tensor, row));
    }
    CKPT_TRY(manifest.references, number_files(*request_.source, request_.refer, rows()));
    if (!manifest.references.empty()) return {};
    // Without elements there is nothing to refer to.
    manifest.layouts.pop_back();
    for (TensorRow& row : rows()) row.layout = 0;
    return {};
  }

  /// The volumes of one class.
  Result<> add_class(FileClass file_class) {
    std::vector<std::uint32_t> members;
    std::vector<Candidate> candidates;
    for (std::uint32_t i = 0; i < rows().size(); ++i) {
      if (rows()[i].file().file_class != file_class || rows()[i].layout != 0) continue;
      members.push_back(i);
      candidates.push_back({.bytes = bytes_[i], .header_bytes = header_share(rows()[i].tensor)});
    }
    CKPT_TRY(const std::vector<std::uint32_t> volumes, choose_volumes(candidates, limits()));
    std::vector<Entry> entries;
    for (std::size_t i = 0; i < members.size(); ++i) {
      rows()[members[i]].volume = volumes[i];
      entries.push_back({rows()[members[i]].tensor.name, bytes_[members[i]], members[i]});
      if (i + 1 < members.size() && volumes[i + 1] == volumes[i]) continue;
      CKPT_CHECK(add_shard({file_class, 0, volumes[i]}, entries));
      entries.clear();
    }
    return {};
  }

  Result<> add_shard(const FileKey& key, std::vector<Entry>& entries) {
    order_entries(entries);
    std::vector<safetensors::NewEntry> header_entries;
    header_entries.reserve(entries.size());
    for (const Entry& entry : entries) {
      const Tensor& tensor = rows()[entry.tensor].tensor;
      header_entries.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
    }
    const safetensors::Metadata metadata{
        {std::string(safetensors::kFormatKey), "pt"},
        {std::string(kSeriesKey), series_text({.key = key, .id = draft_->manifest.id})}};
    CKPT_TRY(safetensors::BuiltHeader header, safetensors::build_header(header_entries, metadata, kDataAlignment));

    TargetFile file = new_file(key, header.file_bytes);
    file.header_bytes = header.bytes.size();
    draft_->files.back().data_begin = header.bytes.size();
    file.placements.reserve(entries.size() + 1);
    file.placements.push_back({.offset = 0,
                               .bytes = header.bytes.size(),
                               .from = Placement::From::literal,
                               .literal = std::move(header.bytes)});
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].bytes == 0) continue;
      const WantedExtra* extra = extra_of(selected_[entries[i].tensor]);
      if (extra != nullptr && extra->text) {
        file.placements.push_back({.offset = header.offsets[i],
                                   .bytes = entries[i].bytes,
                                   .from = Placement::From::literal,
                                   .literal = *extra->text});
        continue;
      }
      file.placements.push_back({.offset = header.offsets[i],
                                 .bytes = entries[i].bytes,
                                 .from = Placement::From::tensor,
                                 .tensor = request_.tensors[selected_[entries[i].tensor]].tensor,
                                 .dtype = rows()[entries[i].tensor].tensor.dtype});
    }
    out_.files.push_back(std::move(file));
    return {};
  }

  Result<> add_objects() {
    if (request_.objects.empty()) return {};
    CKPT_TRY(std::string text, build_objects(draft_->manifest.id, request_.objects, names_.renamed()));
    TargetFile file = new_file({FileClass::objects, 0, 0}, text.size());
    const std::uint64_t bytes = text.size();
    file.placements.push_back(
        {.offset = 0, .bytes = bytes, .from = Placement::From::literal, .literal = std::move(text)});
    out_.files.push_back(std::move(file));
    return {};
  }

  /// A file and its record. Files are added in the order of their keys, so leaves are in the order of records.
  TargetFile new_file(const FileKey& key, std::uint64_t bytes) {
    draft_->files.push_back({.key = key, .bytes = bytes});
    return {.path = key.path(),
            .bytes = bytes,
            .file_class = static_cast<std::uint32_t>(key.file_class),
            .writer = key.writer,
            .volume = key.volume};
  }

  const std::optional<WriteRequest> with_extras_;
  const WriteRequest& request_;
  const TargetTensors names_;
  std::shared_ptr<Draft> draft_;
  std::vector<std::uint32_t> selected_{};  // of each row: number in WriteRequest::tensors
  std::vector<std::uint64_t> bytes_{};     // of each row
  Skeleton out_{};
};

}  // namespace

Result<Skeleton> lay_out(const WriteRequest& request) {
  return Writer(request).lay_out();
}

}  // namespace ckpt::universal
