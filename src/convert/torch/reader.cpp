#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "convert/formats.hpp"
#include "convert/metadata_memory.hpp"
#include "convert/torch/files.hpp"
#include "convert/torch/item_index.hpp"
#include "convert/torch/map_builder.hpp"
#include "convert/torch/name_metrics.hpp"
#include "convert/torch/rank_files.hpp"
#include "convert/torch/writer.hpp"
#include "format/torch/archive_layout.hpp"

namespace ckpt {
namespace torch {
namespace {

// Not .ckpt, which is as good a name for a checkpoint of the universal format.
constexpr std::array<std::string_view, 3> kFileSuffixes{".pt", ".pth", ".bin"};
constexpr std::array<std::string_view, 2> kOwnNames{"*.bin.index.json", kItemIndexName};
// Accelerate and older trainers: checkpoint_10, step_10, ckpt-10; Lightning: epoch=1-step=10.ckpt.
constexpr std::array<std::string_view, 7> kSteps{"checkpoint_#", "step_#", "step#",   "ckpt-#",
                                                 "ckpt_#",       "ck_#",   "*step=#*"};
constexpr std::array<std::string_view, 3> kStepFileSuffixes{".ckpt", ".pt", ".pth"};
constexpr std::array<std::string_view, 1> kMarkers{"pytorch_model.bin.index.json"};
constexpr std::size_t kStepFileHeadBytes = 512;

// Opens one file and hands it over.
template <class Use>
Result<> with_archive(Io& io, const std::string& path, const pickle::Budget& budget, const Use& use) {
  CKPT_TRY(const FileHandle handle, io.open(path, {}));
  const auto read = [&]() -> Result<> {
    CKPT_TRY(const FileInfo info, io.info(handle));
    CKPT_TRY(TorchArchive archive, open_torch_archive(io, handle, path, {0, info.bytes}, budget));
    return use(info, std::move(archive));
  };
  const Result<> done = read();
  const Result<> closed = io.close(handle);
  CKPT_CHECK(done);
  return closed;
}

// One file per rank: the set is joined, other torch.save files of the directory are skipped.
Result<Map> open_rank_files(Io& io, const std::string& root, const std::vector<RankFile>& files,
                            const pickle::Budget& budget, Hasher& metadata) {
  RankFilesBuilder builder(root);
  for (const RankFile& file : files) {
    CKPT_CHECK(with_archive(io, join_path(root, file.path), budget, [&](FileInfo info, TorchArchive archive) {
      return builder.add(file, {file.path, info.bytes, info.mtime_ns}, join_path(root, file.path), std::move(archive));
    }));
  }
  CKPT_TRY(Map map, builder.build(metadata));
  map.variant = fmt::format("{} files, one per rank", files.size());
  return map;
}

// Files whose names end in a number are ranks' files if the first of them holds distributed tensors.
Result<std::vector<RankFile>> numbered_rank_files(Io& io, const std::string& root, const std::vector<DirEntry>& entries,
                                                  const pickle::Budget& budget) {
  std::map<std::string, std::vector<RankFile>> sets;
  for (const DirEntry& entry : entries) {
    if (entry.kind != FileInfo::Kind::file) continue;
    auto file = as_numbered_file(entry.name);
    if (!file) continue;
    std::vector<RankFile>& files = sets[file->file_set];
    files.push_back(*std::move(file));
  }
  const Place place{.io = io, .root = root, .directory = true};
  std::vector<RankFile> out;
  for (auto& [name, files] : sets) {
    const std::string& first = std::ranges::min_element(files, {}, &RankFile::rank)->path;
    CKPT_TRY(const std::string head, place.head(first, kStepFileHeadBytes));
    if (!begins_torch_file(head, first)) continue;
    bool distributed = false;
    CKPT_CHECK(with_archive(io, join_path(root, first), budget, [&](FileInfo, TorchArchive archive) -> Result<> {
      distributed = holds_distributed(archive.graph);
      return {};
    }));
    if (distributed) std::ranges::move(files, std::back_inserter(out));
  }
  return out;
}

// torch_checkpointing: items by rank, next to metadata.pkl.
Result<Map> open_items(Io& io, const std::string& root, const std::vector<DirEntry>& entries,
                       const ReadOptions& options) {
  const std::string path = join_path(root, kItemIndexName);
  CKPT_TRY(const std::string text, read_metadata_file(io, path, MetadataCost::dcp_metadata, options.metadata_limit));
  const pickle::Budget budget = pickle_budget(options.metadata_limit);
  auto index = parse_item_index(std::as_bytes(std::span(text)), budget);
  if (!index) return fail(with_file(std::move(index).error(), path));
  CKPT_TRY(const std::vector<RankFile> files, select_item_files(root, entries, *index));
  Hasher metadata;
  metadata.update(text);
  CKPT_TRY(Map map, open_rank_files(io, root, files, budget, metadata));
  map.variant =
      fmt::format("torch_checkpointing, {} items of {} ranks", files.size() / index->world_size, index->world_size);
  return map;
}

// What rank 0 of Megatron-LM writes first; the weights and then .metadata follow.
// source  megatron/core/dist_checkpointing/serialization.py: save
Result<> check_finished(const std::string& root, const FileSet& set, const Map& map) {
  if (set.files.size() != 1 || set.files.front().path != "common.pt") return {};
  const auto is_weight = [](const Tensor& tensor) { return tensor.role == Role::param; };
  if (std::ranges::any_of(map.tensors, is_weight) ||
      std::ranges::find(map.objects, "checkpoint_version", &NamedObject::name) == map.objects.end())
    return {};
  return fail({.code = Errc::uncommitted,
               .message = root + ": common.pt of Megatron-LM without .metadata: the save never finished",
               .file = join_path(root, ".metadata"),
               .hint = "use an earlier checkpoint; .metadata and the weights may be on another node"});
}

Result<Map> open(Io& io, const std::string& root, const ReadOptions& options) {
  CKPT_TRY(const FileInfo info, io.stat(root));
  const bool is_directory = info.kind == FileInfo::Kind::directory;
  const pickle::Budget budget = pickle_budget(options.metadata_limit);
  Hasher metadata;
  if (is_directory) {
    CKPT_TRY(const std::vector<DirEntry> entries, io.list(root));
    if (std::ranges::any_of(entries, [](const DirEntry& entry) { return entry.name == kItemIndexName; }))
      return open_items(io, root, entries, options);
    std::vector<RankFile> files;
    for (const DirEntry& entry : entries) {
      if (entry.kind != FileInfo::Kind::file) continue;
      if (auto file = as_rank_file(entry.name)) files.push_back(*std::move(file));
    }
    if (files.empty()) {
      CKPT_TRY(files, numbered_rank_files(io, root, entries, budget));
    }
    if (!files.empty()) {
      CKPT_TRY(files, order_rank_files(root, std::move(files)));
      return open_rank_files(io, root, files, budget, metadata);
    }
  }
  FileSet set{.files = {StateFile{}}};
  std::optional<Finding> incomplete;
  if (is_directory) {
    CKPT_TRY(set, select_files(io, root, options.metadata_limit, metadata));
    CKPT_TRY(const std::vector<DirEntry> entries, io.list(root));
    incomplete = missing_weights(root, entries, set);
  }
  MapBuilder builder(root, std::move(set.listed));
  for (const StateFile& file : set.files) {
    const std::string path = file.path.empty() ? root : join_path(root, file.path);
    CKPT_CHECK(with_archive(io, path, budget, [&](FileInfo file_info, TorchArchive archive) {
      return builder.add(file, {file.path, file_info.bytes, file_info.mtime_ns}, path, std::move(archive));
    }));
  }
  CKPT_TRY(Map map, builder.build(metadata));
  if (is_directory) CKPT_CHECK(check_finished(root, set, map));
  map.variant = set.files.size() == 1 ? "1 file" : fmt::format("{} files", set.files.size());
  if (!set.index.empty()) map.variant += " with " + set.index;
  map.collection = set.collection;
  if (map.collection)
    map.findings.push_back({.severity = Severity::warning,
                            .text = fmt::format("{} files, from {} to {}, form no numbered set and are read as one "
                                                "checkpoint; if they are separate checkpoints, name one of them",
                                                set.files.size(), set.files.front().path, set.files.back().path),
                            .file = root});
  if (set.left_over) map.findings.push_back(*std::move(set.left_over));
  if (incomplete) map.findings.push_back(*std::move(incomplete));
  return map;
}

// All files of a conversion carry its id; beside weights a trainer's other files may be copies, with ids of torch's.
// One that is damaged or incomplete has none.
Result<std::string> stored_id(Io& io, const std::string& root) {
  CKPT_TRY(const Map map, open(io, root, {}));
  std::optional<std::string> id;
  const auto is_trainers = [](const MapFile& file) { return trainer_key(base_name(file.path)).has_value(); };
  const bool has_weights = !std::ranges::all_of(map.files, is_trainers);
  for (const MapFile& file : map.files) {
    if (has_weights && is_trainers(file)) continue;
    const std::string path = file.path.empty() ? root : join_path(root, file.path);
    CKPT_TRY(const FileHandle handle, io.open(path, {}));
    const auto text = read_serialization_id(io, handle, path, file.bytes);
    static_cast<void>(io.close(handle));  // only read: nothing can be lost
    if (!text) return fail(text.error());
    std::string own = id_in_archive(*text);
    if (id && *id != own) return std::string();
    id = std::move(own);
  }
  return id.value_or("");
}

// Beside weights of another form.
Result<std::optional<Map>> open_beside(Io& io, const std::string& root, const ReadOptions& options) {
  CKPT_TRY(const std::vector<DirEntry> entries, io.list(root));
  CKPT_TRY(const std::vector<StateFile> files, trainer_files(io, root, entries));
  if (files.empty()) return std::nullopt;
  const pickle::Budget budget = pickle_budget(options.metadata_limit);
  MapBuilder builder(root, {});
  for (const StateFile& file : files) {
    const std::string path = join_path(root, file.path);
    CKPT_CHECK(with_archive(io, path, budget, [&](FileInfo info, TorchArchive archive) {
      return builder.add(file, {file.path, info.bytes, info.mtime_ns}, path, std::move(archive));
    }));
  }
  Hasher metadata;
  CKPT_TRY(Map map, builder.build(metadata));
  return std::optional(std::move(map));
}

constexpr std::array<std::string_view, 2> kTorchSynonyms{"pytorch", "pt"};

}  // namespace
}  // namespace torch

Format torch_format() {
  return {.name = "torch",
          .summary = "torch.save files (.pt, .pth, .bin, .ckpt), alone or in a directory",
          .synonyms = torch::kTorchSynonyms,
          .detect = torch::detect,
          .suffixes = torch::kFileSuffixes,
          .own_names = torch::kOwnNames,
          .names = {.steps = torch::kSteps,
                    .markers = torch::kMarkers,
                    .file_suffixes = torch::kStepFileSuffixes,
                    .name_metrics = torch::metrics_in_name},
          .reader = FormatReader{.open = torch::open, .open_beside = torch::open_beside},
          .writer = FormatWriter{.lay_out = torch::lay_out,
                                 .suffixes = torch::kFileSuffixes,
                                 .stored_id = torch::stored_id,
                                 .lay_out_beside = torch::lay_out_beside,
                                 .extras = KeepsExtras::beside,
                                 .for_trainers = true,
                                 .tensor_memory = 1600}};
}

}  // namespace ckpt
