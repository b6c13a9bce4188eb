#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "convert/dcp/compressed_item.hpp"
#include "convert/dcp/directory.hpp"
#include "convert/dcp/index.hpp"
#include "convert/dcp/items_apart.hpp"
#include "convert/dcp/metadata_files.hpp"
#include "convert/dcp/names.hpp"
#include "convert/dcp/objects.hpp"
#include "convert/dcp/safetensors_blobs.hpp"
#include "convert/dcp/writer.hpp"
#include "convert/dcp_target.hpp"
#include "convert/format.hpp"
#include "convert/formats.hpp"
#include "convert/join_maps.hpp"
#include "convert/optimizer_roles.hpp"
#include "format/hash.hpp"
#include "format/text/error_context.hpp"
#include "format/text/name_list.hpp"
#include "format/text/utf8.hpp"
#include "format/torch/dcp_metadata.hpp"

namespace ckpt {
namespace {

constexpr std::array<std::string_view, 1> kDcpSteps{"step-#"};  // torchtitan
constexpr std::array<std::string_view, 1> kDcpMarkers{".metadata"};
constexpr std::array<std::string_view, 2> kDcpOwnNames{".metadata", "__*.metadata"};  // all ranks', or one rank's

using dcp::Directory;
using dcp::Entry;
using dcp::Metadata;
using dcp::StoredType;

/// Why a directory without `.metadata` cannot be opened.
Error without_metadata(const std::string& root, const Directory& seen) {
  if (seen.data.empty())
    return {.code = Errc::unsupported,
            .message = root + ": not a DCP checkpoint: neither .metadata nor .distcp files",
            .file = root};
  return {.code = Errc::uncommitted,
          .message = root + ": .metadata is missing beside " + std::to_string(seen.data.size()) +
                     " .distcp files: the save never finished",
          .file = join_path(root, ".metadata"),
          .hint = "use an earlier checkpoint; rank 0 writes .metadata last, perhaps on another node"};
}

/// Sizes and times of the data files, once all are known to be there.
Result<std::vector<MapFile>> stat_files(Io& io, const std::string& root, const Metadata& metadata) {
  std::vector<MapFile> files;
  std::vector<std::string> missing;
  for (const dcp::DataFile& file : metadata.files) {
    auto info = io.stat(join_path(root, file.path));
    if (info && info->kind == FileInfo::Kind::file) {
      files.push_back({file.path, info->bytes, info->mtime_ns});
    } else if (info || info.error().code == Errc::not_found) {
      missing.push_back(file.path);
    } else {
      return tl::unexpected<Error>(std::move(info).error());
    }
  }
  if (missing.empty()) return files;
  return fail(Error{.code = Errc::incomplete,
                    .message = root + ": " + std::to_string(missing.size()) + " of " +
                               std::to_string(metadata.files.size()) + " data files " +
                               (missing.size() == 1 ? "is" : "are") + " missing: " + name_list(missing),
                    .file = join_path(root, missing.front()),
                    .hint = "copy them from the nodes that wrote them into this directory"});
}

/// Data files that `.metadata` does not name: a rank that held nothing leaves an empty one; any other is of an earlier
/// save in this directory.
struct Unnamed {
  std::uint64_t world_size = 0;  ///< one more than the greatest rank of an empty one
  std::vector<std::string> left_over{};
};
Result<Unnamed> find_unnamed(Io& io, const std::string& root, const Directory& seen, const Metadata& metadata) {
  std::unordered_set<std::string_view> named;
  for (const dcp::DataFile& file : metadata.files) named.insert(file.path);
  Unnamed out;
  for (const std::string& name : seen.data) {
    if (named.contains(name)) continue;
    CKPT_TRY(const FileInfo info, io.stat(join_path(root, name)));
    const auto rank = dcp::rank_of(name);
    if (info.bytes > 0) {
      out.left_over.push_back(name);
    } else if (rank) {
      out.world_size = std::max(out.world_size, *rank + 1);
    }
  }
  return out;
}

/// Refuses files that end before their items do.
Result<> check_files(const std::string& root, const Metadata& metadata, const std::vector<MapFile>& files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].bytes >= metadata.files[i].end) continue;
    return fail(Error{.code = Errc::corrupt,
                      .message = join_path(root, files[i].path) + ": the file is cut short: it has " +
                                 std::to_string(files[i].bytes) + " bytes, its items need " +
                                 std::to_string(metadata.files[i].end),
                      .file = join_path(root, files[i].path),
                      .offset = files[i].bytes,
                      .hint = "copy it again from the node that wrote it, or use an earlier checkpoint"});
  }
  return {};
}

/// An entry as a tensor of the model, without its role.
struct TypedTensor {
  Tensor tensor;
  StoredType type;
};
Result<TypedTensor> typed(const Metadata& metadata, const Entry& entry) {
  dcp::EntryName name = dcp::name_of(entry);
  TypedTensor out{.tensor = {.name = std::move(name.name), .path = std::move(name.path)}};
  if (!entry.is_tensor) {
    out.tensor.dtype = Dtype::u8;
    out.tensor.shape = {metadata.item_length[entry.first_item]};
    out.tensor.role = Role::blob;
    return out;
  }
  torch::TensorView view;
  view.dtype_name = metadata.dtypes[entry.dtype];
  view.shape = entry.shape;
  auto type = model_type(view);
  if (!type) return fail(with_tensor(std::move(type).error(), out.tensor.name));
  out.type.dtype = type->dtype;
  if (type->shape.size() > entry.shape.size()) {
    out.type.form = StoredType::Form::complex_pair;
  } else if (type->shape != entry.shape) {
    out.type.form = StoredType::Form::packed_pair;
  }
  out.tensor.dtype = type->dtype;
  out.tensor.shape = std::move(type->shape);
  out.tensor.true_dtype = std::move(type->true_dtype);
  return out;
}

/// The step that training code kept as a Python int: by the plainest name, or by `*.step` where all agree.
std::optional<std::uint64_t> find_step(const std::vector<NamedObject>& objects) {
  const auto count = [](const NamedObject& object) -> std::optional<std::uint64_t> {
    const auto* value = std::get_if<std::int64_t>(&object.value.v);
    if (value == nullptr || *value < 0) return std::nullopt;
    return static_cast<std::uint64_t>(*value);
  };
  for (const std::string_view name : {"step", "global_step", "iteration"}) {
    for (const NamedObject& object : objects) {
      if (object.name == name && count(object)) return count(object);
    }
  }
  std::optional<std::uint64_t> step;
  for (const NamedObject& object : objects) {
    // An optimizer counts the steps of each parameter.
    if (!object.name.ends_with(".step") || object.name.find("optim") != std::string::npos || !count(object)) continue;
    if (step && step != count(object)) return std::nullopt;
    step = count(object);
  }
  return step;
}

/// The conversion's id where we wrote it, else empty.
std::string own_id_of(const Metadata& metadata) {
  if (!metadata.save_id.starts_with(dcp::kSaveIdPrefix)) return {};
  std::string id = metadata.save_id.substr(dcp::kSaveIdPrefix.size());
  return Hash128::from_hex(id) ? id : std::string();
}

/// Whether the entries of weights are in the order of the saved state dict. `.metadata` lists the items of rank 0 first,
/// in that order, and what only other ranks wrote after them: replicas are divided among the ranks. Where there is
/// optimizer state, only the weights that have some count: buffers and counters are replicas, and no optimizer has them.
///
/// tensors  one per entry, with their roles
/// source   torch/distributed/checkpoint/default_planner.py: create_default_global_save_plan, dedup_save_plans
bool is_in_saved_order(const Metadata& metadata, const std::vector<Tensor>& tensors) {
  std::unordered_set<std::string_view> trained;
  for (const Tensor& tensor : tensors) {
    if (tensor.role == Role::slot && !tensor.parameter.empty()) trained.insert(tensor.parameter);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Entry& entry = metadata.entries[i];
    if (tensors[i].role != Role::param || entry.item_count == 0) continue;
    if (!trained.empty() && !trained.contains(tensors[i].name)) continue;
    if (dcp::rank_of(base_name(metadata.files[metadata.item_file[entry.first_item]].path)) != 0) return false;
  }
  return true;
}

Result<Map> open_dcp(Io& io, const std::string& root, const ReadOptions& options) {
  CKPT_TRY(const std::vector<DirEntry> listed, io.list(root));
  const Directory seen = dcp::classify(listed);
  const bool by_rank = !seen.has_metadata && !seen.metadata_ranks.empty();
  if (!seen.has_metadata && !by_rank) return fail(without_metadata(root, seen));

  Hasher hasher;
  CKPT_TRY(Metadata metadata, dcp::read_metadata(io, root, seen, options.metadata_limit, hasher));
  auto codec = dcp::codec_of(metadata.transforms);
  if (!codec) return fail(with_file(with_context(std::move(codec).error(), root), root));
  const std::string own_id = own_id_of(metadata);
  Map map;
  CKPT_TRY(map.files, stat_files(io, root, metadata));
  CKPT_CHECK(check_files(root, metadata, map.files));
  map.compressed = codec->has_value();
  bool is_safetensors = false;  // a compressed blob would begin with neither
  if (!map.compressed) {
    CKPT_TRY(is_safetensors, dcp::holds_safetensors(io, root, metadata, map.files));
  }
  if (!is_safetensors) CKPT_CHECK(dcp::check_items_apart(metadata, root));

  std::vector<std::string> paths;
  CKPT_TRY(const Unnamed unnamed, find_unnamed(io, root, seen, metadata));
  std::uint64_t world_size = by_rank ? seen.world_size : unnamed.world_size;
  for (const MapFile& file : map.files) {
    paths.push_back(join_path(root, file.path));
    if (const auto rank = dcp::rank_of(file.path)) world_size = std::max(world_size, *rank + 1);
  }
  CKPT_TRY(auto own_io, io.new_instance());
  dcp::RangeReader reader(std::move(own_io), std::move(paths));
  CKPT_CHECK(dcp::drop_equal_copies(metadata, reader, map.findings));
  std::vector<std::uint64_t> decoded_bytes;
  CKPT_CHECK(dcp::read_objects(metadata, reader, *codec, decoded_bytes, hasher, map.objects, map.findings));

  std::vector<StoredType> types;
  std::vector<Path> entry_paths;
  for (Entry& entry : metadata.entries) {
    CKPT_TRY(TypedTensor typed_tensor, typed(metadata, entry));
    if (map.compressed && !entry.is_tensor) typed_tensor.tensor.shape = {decoded_bytes[entry.first_item]};
    if (!is_utf8(entry.fqn)) {
      map.findings.push_back({.severity = Severity::note,
                              .text = "the key is not UTF-8: its bytes are written as %XX",
                              .tensor = typed_tensor.tensor.name});
    }
    map.tensors.push_back(std::move(typed_tensor.tensor));
    types.push_back(typed_tensor.type);
    entry_paths.push_back(std::exchange(entry.path, {}));
  }
  assign_roles(map.tensors, entry_paths);

  const std::size_t files = map.files.size();
  map.format = "dcp";
  map.nested = true;
  map.variant = std::to_string(files) + (files == 1 ? " data file" : " data files");
  if (by_rank) map.variant += ", metadata of each rank";
  if (seen.has_metadata && !seen.metadata_ranks.empty()) {
    map.findings.push_back({.severity = Severity::warning,
                            .text =
                                "__R.metadata files of another save (use_collectives=False) are next to .metadata and "
                                "were skipped"});
  }
  if (!unnamed.left_over.empty()) {
    map.findings.push_back(
        {.text = fmt::format("left over from another save, not read: {}; .metadata does not name {}",
                             name_list(unnamed.left_over), unnamed.left_over.size() == 1 ? "it" : "them"),
         .file = join_path(root, unnamed.left_over.front())});
  }
  if (map.compressed) map.variant += ", zstd";
  map.meta.framework = "torch";
  map.meta.step = find_step(map.objects);
  if (world_size > 0) map.meta.world_size = world_size;
  map.module_order = seen.has_metadata && is_in_saved_order(metadata, map.tensors);
  if (is_safetensors) {
    map.variant += " of safetensors";
    CKPT_TRY(map.index, dcp::index_safetensors(io, root, metadata, types, map.files, options.metadata_limit, hasher));
  }
  map.metadata_hash = hasher.digest().hex();
  map.id = own_id;
  if (is_safetensors) return map;
  map.index = std::make_shared<dcp::ItemIndex>(std::move(metadata), std::move(types), std::move(reader), *codec,
                                               std::move(decoded_bytes));
  return map;
}

/// Slots name their parameter as the optimizer's own state dict does, without the wrapper of the model's.
void name_wrapped_parameters(std::vector<Tensor>& tensors) {
  std::unordered_set<std::string> weights;
  for (const Tensor& tensor : tensors) {
    if (tensor.role == Role::param) weights.insert(tensor.name);
  }
  for (Tensor& tensor : tensors) {
    if (tensor.role != Role::slot || tensor.parameter.empty() || weights.contains(tensor.parameter)) continue;
    if (std::string wrapped = "model." + tensor.parameter; weights.contains(wrapped))
      tensor.parameter = std::move(wrapped);
  }
}

/// The model's directory and, if it exists, the optimizer's, as one checkpoint.
Result<Map> open_fsdp_folder(Io& io, const std::string& root, const std::vector<DirEntry>& entries,
                             const ReadOptions& options) {
  const std::string model(dcp::kFsdpModel);
  const std::string optimizer(dcp::kFsdpOptimizer);
  CKPT_TRY(Map map, open_dcp(io, join_path(root, model), options));
  for (MapFile& file : map.files) file.path = join_path(model, file.path);
  const bool has_optimizer = std::ranges::any_of(entries, [&](const DirEntry& entry) {
    return entry.name == optimizer && entry.kind == FileInfo::Kind::directory;
  });
  if (has_optimizer) {
    CKPT_TRY(Map state, open_dcp(io, join_path(root, optimizer), options));
    CKPT_CHECK(join_maps(map, std::move(state), optimizer, root));
    name_wrapped_parameters(map.tensors);
  }
  map.variant = fmt::format("{} data files of FSDP", map.files.size());
  return map;
}

Result<Map> open_any(Io& io, const std::string& root, const ReadOptions& options) {
  CKPT_TRY(const std::vector<DirEntry> entries, io.list(root));
  const Directory seen = dcp::classify(entries);
  if (!seen.has_metadata && seen.metadata_ranks.empty() && dcp::is_fsdp_folder(entries))
    return open_fsdp_folder(io, root, entries, options);
  return open_dcp(io, root, options);
}

constexpr std::array<std::string_view, 1> kDcpSynonyms{"fsdp"};

}  // namespace

Format dcp_format() {
  return {.name = "dcp",
          .summary = "torch.distributed.checkpoint: .metadata and .distcp files (FSDP, HSDP, tensor parallel)",
          .synonyms = kDcpSynonyms,
          .detect = dcp::detect,
          .own_names = kDcpOwnNames,
          .has_folders = true,
          .names = {.steps = kDcpSteps, .markers = kDcpMarkers},
          .reader = FormatReader{.open = open_any, .has_state_beside = true},
          .writer = FormatWriter{.lay_out = dcp::lay_out,
                                 .options = dcp::kTargetOptions,
                                 .for_trainers = true,
                                 .holds_blobs = true,
                                 .tensor_memory = 3500}};
}

}  // namespace ckpt
