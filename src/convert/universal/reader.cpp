#include "convert/universal/reader.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "convert/metadata_memory.hpp"
#include "convert/universal/checkpoint.hpp"
#include "convert/universal/layout_index.hpp"
#include "convert/universal/referenced_files.hpp"
#include "convert/universal/saved_tree.hpp"
#include "engine/store/run_directory.hpp"
#include "format/model/chunk_form.hpp"
#include "format/universal/format_check.hpp"
#include "format/universal/objects.hpp"

namespace ckpt::universal {
namespace {

constexpr std::size_t kMissingShown = 20;

Result<std::vector<NamedObject>> read_objects(Io& io, const std::string& root, const Checkpoint& checkpoint,
                                              const FileRecord& file, std::uint64_t limit) {
  const std::string path = join_path(root, file.key.path());
  if (const std::uint64_t needed = memory_for(file.bytes, MetadataCost::json); needed > limit)
    return fail(over_metadata_limit(path, file.bytes, needed, limit));
  CKPT_TRY(const std::string text, read_hashed_file(io, root, checkpoint.sums, file, limit));
  auto objects = parse_objects(text);
  if (!objects) return fail(with_file(std::move(objects).error(), path));
  if (objects->id != checkpoint.manifest.id || !go_together(objects->version, checkpoint.manifest.version))
    return violates(Check::objects_id, Error{.message = path + ": it belongs to another checkpoint", .file = path});
  return std::move(objects->objects);
}

void report_missing(const std::string& root, const std::vector<std::string>& missing, Map& map) {
  for (std::size_t i = 0; i < std::min(missing.size(), kMissingShown); ++i)
    map.findings.push_back({.severity = Severity::incomplete,
                            .text = missing[i] + " is missing" + check_suffix(Check::files_present),
                            .file = join_path(root, missing[i])});
  if (missing.size() > kMissingShown)
    map.findings.push_back({.severity = Severity::incomplete,
                            .text = fmt::format("{} more files are missing", missing.size() - kMissingShown)});
}

/// Findings at the time of writing are history: they do not make this checkpoint incomplete.
void report_history(Manifest& manifest, Map& map) {
  if (manifest.source) {
    const std::string& chosen = manifest.source->chosen;
    map.findings.push_back(
        {.severity = Severity::note,
         .text = fmt::format("converted from {}{}{}", manifest.source->format, chosen.empty() ? "" : ", ", chosen)});
  }
  if (manifest.is_dropped(FileClass::optim)) {
    map.findings.push_back(
        {.severity = Severity::note,
         .text = fmt::format("weights only: its optimizer state was dropped (revision {})", manifest.revision)});
  }
  for (Finding& finding : manifest.findings) {
    finding.severity = std::min(finding.severity, Severity::warning);
    finding.text = "of its source: " + finding.text;
    map.findings.push_back(std::move(finding));
  }
}

std::shared_ptr<const ChunkIndex> index_of(Checkpoint& checkpoint) {
  if (checkpoint.writers) return std::make_shared<LayoutIndex>(*std::move(checkpoint.writers));
  const std::vector<TensorRow>& rows = checkpoint.manifest.tensors;
  auto index = std::make_shared<ChunkTable>(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Tensor& tensor = rows[i].tensor;
    if (checkpoint.manifest.layouts[rows[i].layout].kind == Layout::Kind::referenced) {
      for (PlacedChunk placed : rows[i].chunks) {
        placed.where.file += static_cast<std::uint32_t>(checkpoint.files.size());  // after its own
        index->add(i, tensor.shape, as_run(std::move(placed.chunk), tensor.shape), std::move(placed.where));
      }
      continue;
    }
    index->add(i, tensor.shape, {.box = Box::whole(tensor.shape)},
               {.file = checkpoint.places[i].file, .offset = checkpoint.places[i].offset, .dtype = tensor.dtype});
  }
  index->seal();
  return index;
}

}  // namespace

Result<std::optional<Match>> detect(const Place& place) {
  if (!place.directory) return std::nullopt;
  const bool sums = place.has(kSumsPath);
  if (!place.has(kManifestPath)) {
    // A store's names decide, as for its list: what else lies in the directory of a save that lost its manifest is not it.
    if (CheckpointName::parse(base_name(place.root))) return Match{.where = {}, .why = "the name of a save in a store"};
    // The leftover of a stopped save; opening says so.
    if (sums || (place.has("shards") && place.has("index")))
      return Match{.where = {}, .why = "shards without manifest.json"};
    return std::nullopt;
  }
  if (!sums) {
    CKPT_TRY(const std::string head, place.head(kManifestPath, kManifestBegin.size()));
    if (head != kManifestBegin) return std::nullopt;
  }
  return Match{.where = {}, .why = sums ? "manifest.json and sums.bin" : "manifest.json of the universal format"};
}

Result<Map> open(Io& io, const std::string& root, const ReadOptions& options) {
  CKPT_TRY(Checkpoint checkpoint, open_checkpoint(io, root, options.metadata_limit, options.salvage));
  Manifest& manifest = checkpoint.manifest;
  Map map;
  map.format = "ckpt";
  map.variant = manifest.version;
  map.nested = manifest.nested;
  if (manifest.source) map.origin = manifest.source->format;
  map.id = manifest.id.hex();
  map.metadata_hash = hash128(checkpoint.manifest_text).hex();
  map.meta = std::move(manifest.meta);
  map.aliases = std::move(manifest.aliases);
  for (std::size_t i = 0; i < checkpoint.sums.files.size(); ++i) {
    const FileRecord& file = checkpoint.sums.files[i];
    if (file.key.file_class != FileClass::objects || checkpoint.is_missing(i)) continue;
    auto objects = read_objects(io, root, checkpoint, file, options.metadata_limit);
    if (!objects && options.salvage && objects.error().code == Errc::checksum) {
      checkpoint.count_as_missing(i);
      continue;
    }
    CKPT_TRY(map.objects, std::move(objects));
  }
  report_missing(root, checkpoint.missing, map);
  report_history(manifest, map);
  map.index = index_of(checkpoint);
  map.tensors.reserve(manifest.tensors.size());
  for (const Manifest::ExtraRow& extra : manifest.extras) {
    const auto row = std::ranges::lower_bound(
        manifest.tensors, extra.blob, {}, [](const TensorRow& one) -> const std::string& { return one.tensor.name; });
    map.extras.push_back({extra.path, static_cast<std::uint32_t>(row - manifest.tensors.begin())});
  }
  for (TensorRow& row : manifest.tensors) map.tensors.push_back(std::move(row.tensor));
  for (const FileRecord& file : checkpoint.sums.files) {
    map.hashes.files.push_back({file.first_leaf, file.first_leaf + leaf_count(file.bytes)});
  }
  map.hashes.leaves = std::move(checkpoint.sums.leaves);
  map.files = std::move(checkpoint.files);
  CKPT_CHECK(add_referenced_files(io, root, manifest.references, options.report_references, map));
  if (options.saved_trees && checkpoint.missing.empty()) {
    auto shown = show_saved_tree(io, root, options.metadata_limit, map);
    if (!shown && !(options.salvage && shown.error().code == Errc::checksum)) return fail(std::move(shown).error());
  }
  return map;
}

}  // namespace ckpt::universal
