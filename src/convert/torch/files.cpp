#include "convert/torch/files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "convert/metadata_memory.hpp"
#include "convert/torch/item_index.hpp"
#include "convert/torch_legacy.hpp"
#include "convert/torch_program.hpp"
#include "format/files/extra_names.hpp"
#include "format/files/hf_index.hpp"
#include "format/little_endian.hpp"
#include "format/text/name_list.hpp"

namespace ckpt::torch {
namespace {

constexpr std::size_t kHeadBytes = 512;
constexpr std::array<std::string_view, 5> kSuffixes{".pt", ".pth", ".bin", ".ckpt", ".pth.tar"};
constexpr std::string_view kIndexSuffix = ".bin.index.json";
constexpr std::string_view kZipMagic = "PK\3\4";

// Files that the Hugging Face Trainer and Accelerate write next to the weights: STEM.SUFFIX, or STEM_NUMBER.SUFFIX.
// source  transformers trainer.py OPTIMIZER_NAME, SCHEDULER_NAME, SCALER_NAME; accelerate utils/constants.py; the last
//         one is the file in which our own directories store everything but weights (torch/writer.cpp)
constexpr std::array<std::string_view, 9> kCompanions{"optimizer",     "scheduler",         "sampler",
                                                      "scaler",        "rng_state",         "dl_state_dict",
                                                      "random_states", "custom_checkpoint", "training_state"};
constexpr std::string_view kPickleSuffix = ".pkl";  // of some of them, which are torch.save files like the others

bool is_companion(std::string_view name) {
  if (!has_torch_suffix(name) && !name.ends_with(kPickleSuffix)) return false;
  std::string_view stem = name.substr(0, name.find('.'));
  const std::size_t end = stem.find_last_not_of("0123456789");
  if (end != stem.npos && end + 1 < stem.size() && stem[end] == '_') stem = stem.substr(0, end);
  return std::find(kCompanions.begin(), kCompanions.end(), stem) != kCompanions.end();
}

// A pickle of settings that belongs to the model unchanged.
bool is_state_file(const DirEntry& entry) {
  return entry.kind == FileInfo::Kind::file && has_torch_suffix(entry.name) && !is_extra_name(entry.name);
}

// A file of a layout in which torch.save files are parts of something larger.
bool belongs_elsewhere(const DirEntry& entry) {
  const std::string_view name = entry.name;
  if (entry.kind == FileInfo::Kind::directory) {
    return name.starts_with("mp_rank_") || name.starts_with("global_step") || name.starts_with("pytorch_model_fsdp_");
  }
  return name == ".metadata" || name.ends_with(".distcp") || name.ends_with("_states.pt") ||
         name == "zero_to_fp32.py" || name == "latest_universal" || name == "latest_checkpointed_iteration.txt";
}

std::vector<std::string> torch_files(const std::vector<DirEntry>& entries) {
  std::vector<std::string> names;
  for (const DirEntry& entry : entries) {
    if (is_state_file(entry) && !is_companion(entry.name)) names.push_back(entry.name);
  }
  return names;
}

Result<std::optional<Match>> detect_directory(const Place& place) {
  if (place.has("common.pt") && place.has("metadata.json")) return std::nullopt;  // Megatron-LM's zarr
  if (std::any_of(place.entries.begin(), place.entries.end(), belongs_elsewhere)) return std::nullopt;
  if (place.has(kItemIndexName)) {
    CKPT_TRY(const std::string index, place.head(kItemIndexName, 4096));
    if (!begins_item_index(index)) return std::nullopt;
    return Match{.why = "metadata.pkl of torch_checkpointing"};
  }
  // Next to safetensors, or to DeepSpeed's tags (`latest`), they are not a separate checkpoint.
  const bool has_weights = std::any_of(place.entries.begin(), place.entries.end(), [](const DirEntry& entry) {
    return entry.kind == FileInfo::Kind::file && (entry.name.ends_with(".safetensors") || entry.name == "latest");
  });
  std::size_t count = 0;
  for (const std::string& name : torch_files(place.entries)) {
    CKPT_TRY(const std::string head, place.head(name, kHeadBytes));
    if (begins_torch_file(head, name)) ++count;
  }
  if (!has_weights) {
    CKPT_TRY(const auto companions, trainer_files(place.io, place.root, place.entries));
    count += companions.size();
  }
  if (count == 0) return std::nullopt;
  return Match{.why = fmt::format("{} torch.save file{}", count, count == 1 ? "" : "s")};
}

Result<bool> is_torch_file(Io& io, const std::string& root, const std::string& name) {
  const Place place{.io = io, .root = root, .directory = true};
  CKPT_TRY(const std::string head, place.head(name, kHeadBytes));
  return begins_torch_file(head, name);
}

// The one file whose tensors the index divides.
std::string single_file_of(std::string_view index) {
  return std::string(index.substr(0, index.size() - std::string_view(".index.json").size()));
}

// STEM.bin, or STEM-00001-of-00003.bin: what one save writes under the name of the index.
bool is_of_index(std::string_view name, std::string_view index) {
  const std::string single = single_file_of(index);
  const std::string_view stem = std::string_view(single).substr(0, single.rfind('.'));
  return name == single || (name.starts_with(stem) && name.substr(stem.size()).starts_with('-') &&
                            name.find("-of-", stem.size()) != name.npos);
}

Result<> read_index(Io& io, const std::string& root, const std::vector<DirEntry>& entries, std::uint64_t limit,
                    Hasher& metadata, FileSet& out) {
  const std::string path = join_path(root, out.index);
  CKPT_TRY(const std::string text, read_metadata_file(io, path, MetadataCost::json, limit, hf::kMaxIndexBytes));
  metadata.update(text);
  auto index = hf::parse_index(text);
  if (!index) return fail(with_file(std::move(index).error(), path));
  std::set<std::string> files;
  for (const auto& [tensor, file] : index->weight_map) files.insert(file);
  const Place place{.io = io, .root = root, .directory = true, .entries = entries};
  std::vector<std::string> missing;
  for (const std::string& file : files) {
    const bool is_there =
        file.find('/') == std::string::npos ? place.has(file) : io.stat(join_path(root, file)).has_value();
    if (!is_there) missing.push_back(file);
  }
  if (const std::string single = single_file_of(out.index); missing.size() == files.size() && place.has(single)) {
    out.left_over = Finding{.text = fmt::format("{} is left over from an earlier save: none of its files is here; {} "
                                                "is read",
                                                out.index, single),
                            .file = path};
    out.index.clear();
    return {};
  }
  for (const std::string& file : files) out.files.push_back({.path = file, .listed = true});
  for (auto& [tensor, file] : index->weight_map) out.listed.emplace(std::move(tensor), std::move(file));
  if (missing.empty()) return {};
  return fail({.code = Errc::incomplete,
               .message = fmt::format("{}: {} of {} files {} missing: {}", root, missing.size(), files.size(),
                                      missing.size() == 1 ? "is" : "are", name_list(missing)),
               .file = join_path(root, missing.front()),
               .hint = "copy or download the checkpoint again; ckpt does not convert incomplete checkpoints"});
}

// Units in path order; the first keeps its names.
void assign_prefixes(std::vector<StateFile>& files) {
  std::sort(files.begin(), files.end(), [](const StateFile& a, const StateFile& b) { return a.path < b.path; });
  const bool file_set_is_first = !files.empty() && files.front().listed;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const bool keeps = file_set_is_first ? files[i].listed : i == 0;
    if (keeps || files[i].listed) continue;
    files[i].prefix = files[i].path + "/";
  }
}

}  // namespace

bool has_torch_suffix(std::string_view name) {
  return std::any_of(kSuffixes.begin(), kSuffixes.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

bool begins_torch_file(std::string_view head, std::string_view name) {
  constexpr std::size_t kNameLengthAt = 26;
  constexpr std::size_t kNameAt = 30;
  if (head.starts_with(kZipMagic) && head.size() >= kNameAt) {
    const std::string_view first = head.substr(kNameAt, read_little_endian(head, kNameLengthAt, 2));
    if (first.ends_with("data.pkl") && !name.ends_with(".distcp")) return true;
  }
  if (is_legacy_torch(head)) return true;
  if (!has_torch_suffix(name)) return false;
  return head.starts_with(kZipMagic) || (head.size() >= 262 && head.substr(257, 5) == "ustar");
}

Result<std::optional<Match>> detect(const Place& place) {
  if (place.directory) return detect_directory(place);
  CKPT_TRY(const std::string head, place.head("", kHeadBytes));
  if (!begins_torch_file(head, base_name(place.root)) || !torch_program_kind(place).empty()) return std::nullopt;
  return Match{.why = "a torch.save file"};
}

Result<FileSet> select_files(Io& io, const std::string& root, std::uint64_t limit, Hasher& metadata) {
  FileSet out;
  CKPT_TRY(const std::vector<DirEntry> entries, io.list(root));
  for (const DirEntry& entry : entries) {
    if (entry.kind != FileInfo::Kind::file || !entry.name.ends_with(kIndexSuffix)) continue;
    if (!out.index.empty()) {
      return fail({.code = Errc::ambiguous,
                   .message = fmt::format("{}: two indexes, {} and {}", root, out.index, entry.name),
                   .file = join_path(root, entry.name),
                   .hint = "move the unwanted index and its files to a separate directory"});
    }
    out.index = entry.name;
  }
  if (!out.index.empty()) CKPT_CHECK(read_index(io, root, entries, limit, metadata, out));
  for (const std::string& name : torch_files(entries)) {
    const bool is_listed =
        std::any_of(out.files.begin(), out.files.end(), [&](const StateFile& file) { return file.path == name; });
    if (is_listed || (!out.index.empty() && is_of_index(name, out.index))) continue;
    CKPT_TRY(const bool is_torch, is_torch_file(io, root, name));
    if (is_torch) out.files.push_back({.path = name});
  }
  assign_prefixes(out.files);
  CKPT_TRY(const auto companions, trainer_files(io, root, entries));
  out.files.insert(out.files.end(), companions.begin(), companions.end());
  if (out.files.empty()) {
    return fail({.code = Errc::unsupported, .message = root + ": no torch.save file here", .file = root});
  }
  const auto alone =
      std::ranges::count_if(out.files, [](const StateFile& file) { return !file.listed && file.key.empty(); });
  const bool has_file_set = std::ranges::any_of(out.files, &StateFile::listed);
  out.collection = alone + (has_file_set ? 1 : 0) > 1;
  return out;
}

std::optional<std::string> trainer_key(std::string_view name) {
  if (!is_companion(name)) return std::nullopt;
  return std::string(name.substr(0, name.find('.')));
}

Result<std::vector<StateFile>> trainer_files(Io& io, const std::string& root, const std::vector<DirEntry>& entries) {
  std::vector<StateFile> out;
  std::set<std::string> keys;
  for (const DirEntry& entry : entries) {
    if (entry.kind != FileInfo::Kind::file || !is_companion(entry.name)) continue;
    const Place place{.io = io, .root = root, .directory = true};
    CKPT_TRY(const std::string head, place.head(entry.name, kHeadBytes));
    // A .pkl of torch.save begins like its other files; that of another library does not.
    const bool is_pickle = entry.name.ends_with(kPickleSuffix);
    if (!begins_torch_file(head, is_pickle ? std::string_view("any.pkl") : std::string_view(entry.name))) continue;
    std::string key = *trainer_key(entry.name);
    if (!keys.insert(key).second) key = entry.name;
    out.push_back({.path = entry.name, .key = std::move(key)});
  }
  return out;
}

std::optional<Finding> missing_weights(const std::string& root, const std::vector<DirEntry>& entries,
                                       const FileSet& set) {
  const auto of_optimizer = [](const StateFile& file) { return file.path.starts_with("optimizer."); };
  const bool only_state = std::ranges::any_of(set.files, of_optimizer) &&
                          std::ranges::all_of(set.files, [](const StateFile& file) { return !file.key.empty(); });
  const bool has_weights =
      std::ranges::any_of(entries, [](const DirEntry& entry) { return entry.name.ends_with(".safetensors"); });
  if (!only_state || has_weights) return std::nullopt;
  return Finding{.severity = Severity::incomplete,
                 .text = fmt::format("{} contains optimizer state but no weights: the file with the weights is "
                                     "missing",
                                     root),
                 .file = root};
}

}  // namespace ckpt::torch
