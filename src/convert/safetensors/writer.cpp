#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

#include "convert/left_out.hpp"
#include "convert/safetensors/reader.hpp"
#include "convert/safetensors/selection.hpp"
#include "convert/target_tensors.hpp"
#include "format/checked.hpp"
#include "format/files/hf_index.hpp"
#include "format/files/safetensors.hpp"
#include "format/files/safetensors_metadata.hpp"
#include "format/files/written_beside.hpp"
#include "format/text/utf8.hpp"

namespace ckpt::safetensors {
namespace {

constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;  // huggingface_hub: MAX_SHARD_SIZE "5GB", decimal

constexpr std::string_view kAdapterStem = "adapter_model";  // peft: SAFETENSORS_WEIGHTS_NAME

/// A tensor that goes into a file: index into WriteRequest::tensors.
using MetaMembers = std::vector<std::uint32_t>;

struct File {
  std::string path;
  MetaMembers members{};
};

/// Lays out the files of one request.
class Writer {
 public:
  Writer(const WriteRequest& request, bool one_file) : request_(request), names_(request), one_file_(one_file) {}

  Result<Skeleton> lay_out() {
    MetaMembers weights;
    MetaMembers slots;
    for (std::uint32_t i = 0; i < request_.tensors.size(); ++i) {
      const Role role = request_.tensors[i].role.value_or(source(i).role);
      if (role != Role::blob) (role == Role::slot ? slots : weights).push_back(i);
    }
    out_.directory = !one_file_;
    if (out_.directory) {
      for (const WantedExtra& extra : request_.extras) beside_.emplace_back(extra.path, extra.hash);
    }
    if (!out_.directory) {
      weights.insert(weights.end(), slots.begin(), slots.end());
      CKPT_CHECK(add_file({.path = "", .members = std::move(weights)}));
    } else {
      // Without tensors it is still one file.
      if (!weights.empty() || slots.empty())
        CKPT_CHECK(add_file_set(request_.is_adapter() ? kAdapterStem : "model", weights));
      if (!slots.empty()) CKPT_CHECK(add_file_set("optimizer", slots));
    }
    list_dropped();
    for (const SmallFile& index : indexes_) out_.small_names.push_back(index.path);
    if (!indexes_.empty())
      out_.finish = [indexes = std::move(indexes_)](const std::vector<Hash128>&) -> Result<std::vector<SmallFile>> {
        return indexes;
      };
    return std::move(out_);
  }

 private:
  const Tensor& source(std::uint32_t selected) const {
    return request_.source->tensors[request_.tensors[selected].tensor];
  }
  const Shape& shape_of(std::uint32_t selected) const {
    const auto& part = request_.tensors[selected].part;
    return part ? part->shape : source(selected).shape;
  }
  Result<std::uint64_t> bytes_of(std::uint32_t selected) const {
    return tensor_bytes(request_.tensors[selected].dtype, shape_of(selected));
  }

  static std::optional<Chunk> chunk_of(const Selected& selected) {
    return selected.part ? std::optional(Chunk{.box = selected.part->box}) : std::nullopt;
  }

  /// Greedy in the given order, as huggingface_hub's split_state_dict_into_shards_factory: a tensor that does not fit
  /// begins the next file; one above the limit gets a separate file and the current file stays open.
  Result<> add_file_set(std::string_view stem, const MetaMembers& members) {
    const std::uint64_t unasked = stem == kAdapterStem ? std::numeric_limits<std::uint64_t>::max() : kDefaultShardBytes;
    const std::uint64_t limit = request_.shard_bytes == 0 ? unasked : request_.shard_bytes;
    std::vector<MetaMembers> parts;
    MetaMembers current;
    std::uint64_t current_bytes = 0;
    std::uint64_t total = 0;
    for (const std::uint32_t member : members) {
      CKPT_TRY(const std::uint64_t bytes, bytes_of(member));
      CKPT_TRY(total, checked_add(total, bytes));
      if (bytes > limit) {
        parts.push_back({member});
        continue;
      }
      if (current_bytes + bytes > limit) {
        parts.push_back(std::exchange(current, {}));
        current_bytes = 0;
      }
      current.push_back(member);
      current_bytes += bytes;
    }
    if (!current.empty() || parts.empty()) parts.push_back(std::move(current));

    hf::Index index{.total_size = total};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      File file{.path = parts.size() == 1 ? fmt::format("{}{}", stem, kSuffix)
                                          : fmt::format("{}-{:05}-of-{:05}{}", stem, i + 1, parts.size(), kSuffix),
                .members = std::move(parts[i])};
      for (const std::uint32_t member : file.members)
        index.weight_map.emplace_back(request_.tensors[member].name, file.path);
      CKPT_CHECK(add_file(std::move(file)));
    }
    if (parts.size() > 1)
      indexes_.push_back({.path = fmt::format("{}{}", stem, kIndexSuffix), .bytes = hf::build_index(index)});
    return {};
  }

  /// The reference's order: element types by descending size, then names, so that every tensor begins at a multiple of
  /// its element size. Data begins at a multiple of kAlignment, so that large reads can be direct.
  Result<> add_file(File file) {
    std::sort(file.members.begin(), file.members.end(), [&](std::uint32_t a, std::uint32_t b) {
      const Selected& x = request_.tensors[a];
      const Selected& y = request_.tensors[b];
      return x.dtype != y.dtype ? x.dtype > y.dtype : x.name < y.name;
    });
    std::vector<NewEntry> entries;
    entries.reserve(file.members.size());
    for (const std::uint32_t member : file.members) {
      const Selected& selected = request_.tensors[member];
      entries.push_back({.name = selected.name, .dtype = selected.dtype, .shape = shape_of(member)});
    }
    CKPT_TRY(BuiltHeader header, build_header(entries, metadata(file.members), kAlignment));

    TargetFile target{.path = std::move(file.path), .bytes = header.file_bytes, .header_bytes = header.bytes.size()};
    target.placements.reserve(entries.size() + 1);
    target.placements.push_back({.offset = 0,
                                 .bytes = header.bytes.size(),
                                 .from = Placement::From::literal,
                                 .literal = std::move(header.bytes)});
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::uint64_t end = i + 1 < entries.size() ? header.offsets[i + 1] : header.file_bytes;
      if (end == header.offsets[i]) continue;
      target.placements.push_back({.offset = header.offsets[i],
                                   .bytes = end - header.offsets[i],
                                   .from = Placement::From::tensor,
                                   .tensor = request_.tensors[file.members[i]].tensor,
                                   .chunk = chunk_of(request_.tensors[file.members[i]]),
                                   .dtype = entries[i].dtype});
    }
    out_.files.push_back(std::move(target));
    return {};
  }

  /// "format" first: transformers refuses a file whose metadata lacks it. User text goes into every file, a tied name
  /// into the file of the tensor that was kept, as safetensors' save_model notes it.
  Metadata metadata(const MetaMembers& members) {
    Metadata out{{std::string(kFormatKey), "pt"}, {std::string(kIdKey), request_.id}};
    const Meta& meta = request_.source->meta;
    if (meta.step) out.emplace_back(kStepKey, std::to_string(*meta.step));
    std::vector<std::pair<std::string_view, Facts>> facts;
    std::unordered_set<std::string_view> names;
    for (const std::uint32_t member : members) {
      names.insert(request_.tensors[member].name);
      facts.emplace_back(request_.tensors[member].name, facts_of(member));
    }
    if (std::string text = build_facts(facts); !text.empty()) out.emplace_back(kFactsKey, std::move(text));
    if (!beside_.empty() && out_.files.empty()) out.emplace_back(kBesideKey, build_written_beside(beside_));

    std::unordered_set<std::string_view> taken;
    for (const auto& [key, value] : meta.user) {
      if (key == kFormatKey || key.starts_with(kOwnPrefix) || !is_utf8(key) || !is_utf8(value)) continue;
      if (taken.insert(key).second) out.emplace_back(key, value);
    }
    for (const Alias& alias : request_.aliases) {
      if (!names.contains(alias.target)) continue;
      if (alias.name != kFormatKey && !alias.name.starts_with(kOwnPrefix) && taken.insert(alias.name).second)
        out.emplace_back(alias.name, alias.target);
      else
        unnoted_.push_back(alias.name + " = " + alias.target);
    }
    return out;
  }

  /// The model's facts about a tensor, with names as in the target.
  Facts facts_of(std::uint32_t member) const {
    const Tensor tensor = names_.tensor(member);
    return {.role = tensor.role, .parameter = tensor.parameter, .slot = tensor.slot, .true_dtype = tensor.true_dtype};
  }

  void list_dropped() {
    out_.dropped = left_out(request_, "safetensors");
    add_left_out(out_.dropped, unnoted_, "tied name", "tied names", "safetensors");
  }

  const WriteRequest& request_;
  const TargetTensors names_;
  const bool one_file_;
  Skeleton out_{};
  std::vector<SmallFile> indexes_{};
  WrittenBeside beside_{};
  std::vector<std::string> unnoted_{};  // tied names that no file's metadata took
};

}  // namespace

Result<Skeleton> lay_out(const WriteRequest& request) {
  return Writer(request, request.target.ends_with(kSuffix)).lay_out();
}

Result<Skeleton> lay_out_file(const WriteRequest& request) {
  return Writer(request, true).lay_out();
}

}  // namespace ckpt::safetensors
