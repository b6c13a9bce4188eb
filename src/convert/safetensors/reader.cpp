#include "convert/safetensors/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "convert/safetensors/lost_scalars.hpp"
#include "convert/safetensors/meta.hpp"
#include "convert/safetensors/selection.hpp"
#include "convert/safetensors/shard.hpp"
#include "convert/unlisted.hpp"
#include "format/checked.hpp"
#include "format/text/name_list.hpp"

namespace ckpt::safetensors {
namespace {

constexpr std::uint32_t kNotTaken = std::numeric_limits<std::uint32_t>::max();

/// Joins the headers of all files into one map.
class MapBuilder {
 public:
  /// scalars   of lost_scalars: the shards' values of these tensors are ignored
  MapBuilder(std::string root, std::vector<Shard> shards, std::vector<Shard> scalars, Selection selection)
      : root_(std::move(root)),
        shards_(std::move(shards)),
        scalars_(std::move(scalars)),
        selection_(std::move(selection)),
        governed_(selection_.indexed ? selection_.files.size() : 0) {}

  Result<Map> build() {
    map_.findings = std::move(selection_.findings);
    std::size_t entries = 0;
    for (const Shard& shard : shards_) entries += shard.header.entries.size();
    by_name_.reserve(entries);
    map_.tensors.reserve(entries);
    for (std::uint32_t file = 0; file < shards_.size(); ++file) {
      map_.files.push_back(shards_[file].file);
      CKPT_CHECK(take_entries(file));
    }
    CKPT_CHECK(check_listed());
    CKPT_CHECK(take_facts());
    find_scalars();
    CKPT_CHECK(place_chunks());
    take_metadata(shards_, map_);
    describe();
    return std::move(map_);
  }

 private:
  /// The tensor of an entry: a new one, or, for slices, one that an earlier file began.
  Result<> take_entries(std::uint32_t file) {
    Shard& shard = shards_[file];
    const bool indexed = file < governed_;
    std::vector<std::uint32_t>& tensors = tensor_of_.emplace_back();
    tensors.reserve(shard.header.entries.size());
    for (const Entry& entry : shard.header.entries) {
      if (indexed && !is_listed(entry.name, shard.file.path)) {
        tensors.push_back(kNotTaken);
        unlisted_.add(entry.name, selection_.listed.contains(entry.name));
        continue;
      }
      const auto known = by_name_.find(entry.name);
      const std::uint32_t tensor =
          known == by_name_.end() ? static_cast<std::uint32_t>(map_.tensors.size()) : known->second;
      tensors.push_back(tensor);
      if (known == by_name_.end()) {
        map_.tensors.push_back({.name = entry.name, .dtype = entry.dtype, .shape = Shape(entry.shape.size(), 0)});
        by_name_.emplace(map_.tensors.back().name, tensor);
        first_file_.push_back(file);
      } else if (!shard.slices || !shards_[first_file_[tensor]].slices) {
        return at_entry(
            Errc::ambiguous, shard.file.path, entry.name,
            fmt::format("also in {}, and no index says which one to use", shards_[first_file_[tensor]].file.path),
            "convert one of the files by its own path, or add model.safetensors.index.json");
      }
      CKPT_CHECK(grow(map_.tensors[tensor], shard, entry));
    }
    return {};
  }

  tl::unexpected<Error> at_entry(Errc code, const std::string& file, const std::string& tensor, std::string reason,
                                 std::string hint = {}) const {
    const std::string path = file.empty() ? root_ : join_path(root_, file);
    return fail({.code = code,
                 .message = fmt::format("{}: {}{}{}", path, tensor, tensor.empty() ? "" : ": ", reason),
                 .file = path,
                 .tensor = tensor,
                 .hint = std::move(hint)});
  }

  bool is_listed(const std::string& name, const std::string& file) const {
    const auto at = selection_.listed.find(name);
    return at != selection_.listed.end() && at->second == file;
  }

  /// A slice records its begin, so the whole is at least as large as its far corner. The size of the whole is not
  /// stored: source torch/distributed/checkpoint/hf_storage.py, read_metadata.
  Result<> grow(Tensor& tensor, const Shard& shard, const Entry& entry) {
    if (tensor.dtype != entry.dtype || tensor.shape.size() != entry.shape.size())
      return at_entry(Errc::corrupt, shard.file.path, entry.name, "dtype or dimensions differ between files");
    if (!shard.slices) {
      tensor.shape = entry.shape;
      return {};
    }
    sliced_ = true;
    const auto offsets = shard.slices->find(entry.name);
    if (offsets == shard.slices->end() || offsets->second.size() != entry.shape.size())
      return at_entry(Errc::corrupt, shard.file.path, entry.name, "DCP_SHARDING_INFO does not say where the slice is");
    for (std::size_t d = 0; d < entry.shape.size(); ++d) {
      const auto end = checked_add(offsets->second[d], entry.shape[d]);
      if (!end) return at_entry(Errc::corrupt, shard.file.path, entry.name, "the position of a slice overflows");
      tensor.shape[d] = std::max(tensor.shape[d], *end);
    }
    return {};
  }

  Result<> check_listed() {
    std::vector<std::string> absent;
    for (const auto& [name, file] : selection_.listed) {
      if (!by_name_.contains(name)) absent.push_back(name);
    }
    if (!absent.empty()) {
      std::sort(absent.begin(), absent.end());
      return at_entry(Errc::incomplete, selection_.listed.at(absent.front()), absent.front(),
                      absent.size() == 1 ? "listed in the index but not in the file"
                                         : "listed in the index but not in the file: " + name_list(absent),
                      "the file does not match the index: copy or download the checkpoint again");
    }
    unlisted_.report(map_.findings);
    return {};
  }

  Result<> take_facts() {
    for (Tensor& tensor : map_.tensors) set(tensor, facts_by_name(tensor.name));
    for (const Shard& shard : shards_) {
      const std::string* text = shard.metadata(kFactsKey);
      if (text == nullptr) continue;
      auto facts = parse_facts(*text);
      if (!facts) return at_entry(Errc::corrupt, shard.file.path, facts.error().tensor, facts.error().message);
      for (auto& [name, fact] : *facts) {
        const auto at = by_name_.find(name);
        if (at == by_name_.end()) continue;
        Tensor& tensor = map_.tensors[at->second];
        set(tensor, std::move(fact));
        if (!fits_true_dtype(tensor))
          return at_entry(Errc::corrupt, shard.file.path, name, "its recorded dtype contradicts the stored one");
      }
    }
    return {};
  }

  static void set(Tensor& tensor, Facts facts) {
    tensor.role = facts.role;
    tensor.parameter = std::move(facts.parameter);
    tensor.slot = std::move(facts.slot);
    tensor.true_dtype = std::move(facts.true_dtype);
  }

  /// Each slice is in one file: torch writes replicas once (dedup_replicated_tensors). The size of the whole is not
  /// stored, so a copy of another rank's file would silently make tensors smaller.
  Result<> check_slices() const {
    struct Slice {
      std::uint32_t tensor, file;
      std::uint64_t first;  // element of the tensor
    };
    std::vector<Slice> slices;
    for (std::uint32_t file = 0; file < shards_.size(); ++file) {
      const Shard& shard = shards_[file];
      if (!shard.slices) continue;
      for (std::size_t i = 0; i < shard.header.entries.size(); ++i) {
        const std::uint32_t tensor = tensor_of_[file][i];
        const Entry& entry = shard.header.entries[i];
        if (tensor == kNotTaken || entry.begin == entry.end) continue;
        slices.push_back(
            {tensor, file, linear_index(Box::whole(map_.tensors[tensor].shape), shard.slices->at(entry.name))});
      }
    }
    const auto key = [](const Slice& slice) { return std::pair(slice.tensor, slice.first); };
    std::sort(slices.begin(), slices.end(),
              [&](const Slice& a, const Slice& b) { return std::pair(key(a), a.file) < std::pair(key(b), b.file); });
    const auto twin = std::adjacent_find(slices.begin(), slices.end(),
                                         [&](const Slice& a, const Slice& b) { return key(a) == key(b); });
    if (twin == slices.end()) return {};
    return at_entry(Errc::overlap, shards_[std::next(twin)->file].file.path, map_.tensors[twin->tensor].name,
                    fmt::format("the same slice is in {}", shards_[twin->file].file.path),
                    "one file is a copy of the other, or files of two saves are mixed: copy them again");
  }

  void find_scalars() {
    for (const Shard& shard : scalars_) {
      for (const Entry& entry : shard.header.entries) {
        const auto tensor = by_name_.find(entry.name);
        if (tensor == by_name_.end()) continue;
        scalar_at_[tensor->second] = {.file = static_cast<std::uint32_t>(map_.files.size()),
                                      .offset = shard.header.data_begin + entry.begin,
                                      .dtype = entry.dtype};
      }
      map_.files.push_back(shard.file);
    }
    if (scalar_at_.empty()) return;
    const std::string& first = scalars_.front().header.entries.front().name;
    map_.findings.push_back(
        {.severity = Severity::warning,
         .text = fmt::format("{} without dimensions {} zero in the full files (a defect of torch's consolidation): "
                             "read from {}/: {}{}",
                             scalar_at_.size() == 1 ? "a tensor" : fmt::format("{} tensors", scalar_at_.size()),
                             scalar_at_.size() == 1 ? "is" : "are", kSlicesDirectory, first,
                             scalar_at_.size() == 1 ? "" : ", ..."),
         .file = join_path(root_, scalars_.front().file.path),
         .tensor = first});
  }

  Result<> place_chunks() {
    for (std::size_t i = 0; i < map_.tensors.size(); ++i) {
      const Tensor& tensor = map_.tensors[i];
      const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
      if (!bytes) return at_entry(Errc::corrupt, shards_[first_file_[i]].file.path, tensor.name, bytes.error().message);
    }
    CKPT_CHECK(check_slices());
    auto table = std::make_shared<ChunkTable>(map_.tensors.size());
    for (std::uint32_t file = 0; file < shards_.size(); ++file) {
      const Shard& shard = shards_[file];
      for (std::size_t i = 0; i < shard.header.entries.size(); ++i) {
        const std::uint32_t tensor = tensor_of_[file][i];
        const Entry& entry = shard.header.entries[i];
        if (tensor == kNotTaken || entry.begin == entry.end) continue;
        if (const auto scalar = scalar_at_.find(tensor); scalar != scalar_at_.end()) {
          table->add(tensor, {}, {.box = Box::whole({})}, scalar->second);
          continue;
        }
        Box box = Box::whole(entry.shape);
        if (shard.slices) box.offset = shard.slices->at(entry.name);
        table->add(tensor, map_.tensors[tensor].shape, {.box = std::move(box)},
                   {.file = file, .offset = shard.header.data_begin + entry.begin, .dtype = entry.dtype});
      }
    }
    table->seal();
    map_.index = std::move(table);
    return {};
  }

  /// Files that no index, numbering, slices or conversion id make parts of a whole.
  bool is_collection() const {
    if (shards_.size() < 2 || selection_.indexed || sliced_) return false;
    const bool one_id = !shards_.front().id.empty() && std::ranges::all_of(shards_, [&](const Shard& shard) {
      return shard.id == shards_.front().id;
    });
    return !one_id && !is_one_file_set(selection_.files);
  }

  void describe() {
    map_.collection = is_collection();
    const std::size_t count = shards_.size();
    map_.variant = count == 1 ? "1 file" : fmt::format("{} files", count);
    if (sliced_) {
      map_.variant += " of slices";
      map_.meta.framework = "torch";
      describe_ranks();
    } else if (selection_.indexed) {
      map_.variant += " with an index";
    }
  }

  /// A missing last slice would shorten a tensor unnoticed; a gap in the ranks at least shows.
  void describe_ranks() {
    std::vector<std::uint64_t> ranks;
    for (const Shard& shard : shards_) {
      if (const std::uint64_t rank = slice_rank(base_name(shard.file.path)); rank != 0) ranks.push_back(rank);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    if (ranks.empty()) return;
    map_.meta.world_size = ranks.back();
    if (ranks.back() != ranks.size())
      map_.findings.push_back(
          {.severity = Severity::warning,
           .text = fmt::format("files of {} of {} ranks are missing; if they held the end of a tensor, it is too short",
                               ranks.back() - ranks.size(), ranks.back())});
  }

  std::string root_;
  std::vector<Shard> shards_;
  std::vector<Shard> scalars_;
  Selection selection_;
  std::size_t governed_;  // this many first files hold the indexed tensors; other tensors in them are ignored
  Map map_{};
  // Keys are views into map_.tensors, which has the room it needs from the start and never moves its names.
  std::unordered_map<std::string_view, std::uint32_t> by_name_{};
  std::unordered_map<std::uint32_t, Locator> scalar_at_{};  // by tensor, where its own file lost the value
  std::vector<std::uint32_t> first_file_{};                 // of each tensor
  std::vector<std::vector<std::uint32_t>> tensor_of_{};     // [file][entry]
  Unlisted unlisted_{};
  bool sliced_ = false;
};

/// model.safetensors next to an index of the optimizer (or the reverse) is read if one conversion wrote both.
Result<> take_companions(ShardReader& reader, Hasher& metadata, Selection& selection, std::vector<Shard>& shards) {
  for (const std::string& name : selection.companions) {
    Hasher unused;
    CKPT_TRY(const Shard probe, reader.read(name, unused));
    if (!probe.id.empty() && !shards.empty() && probe.id == shards.front().id) {
      CKPT_TRY(Shard shard, reader.read(name, metadata));
      shards.push_back(std::move(shard));
    } else {
      selection.findings.push_back({.severity = Severity::note,
                                    .text = name + " is not listed in the index and was not written with it: not read",
                                    .file = name});
    }
  }
  return {};
}

}  // namespace

Result<Map> open(Io& io, const std::string& root, const ReadOptions& options) {
  CKPT_TRY(const FileInfo info, io.stat(root));
  const bool directory = info.kind == FileInfo::Kind::directory;
  Hasher metadata;
  Selection selection;
  std::vector<DirEntry> entries;
  if (directory) {
    CKPT_TRY(entries, io.list(root));
    CKPT_TRY(selection, select_files(io, root, entries, options.metadata_limit, metadata));
  } else {
    selection.files = {""};
  }
  ShardReader reader(io, root, options.metadata_limit);
  std::vector<Shard> shards;
  shards.reserve(selection.files.size());
  for (const std::string& file : selection.files) {
    CKPT_TRY(Shard shard, reader.read(file, metadata));
    shards.push_back(std::move(shard));
  }
  CKPT_CHECK(take_companions(reader, metadata, selection, shards));
  const bool beside_slices = std::any_of(entries.begin(), entries.end(), [](const DirEntry& entry) {
    return entry.kind == FileInfo::Kind::directory && entry.name == kSlicesDirectory;
  });

  std::vector<Shard> scalars;
  if (beside_slices) {
    CKPT_TRY(scalars, lost_scalars(io, root, shards, reader, metadata));
  }
  MapBuilder builder(root, std::move(shards), std::move(scalars), std::move(selection));
  CKPT_TRY(Map map, builder.build());
  map.format = "safetensors";
  if (beside_slices) map.chosen = "the full files; sharded/ beside them holds the same tensors in slices";
  if (directory) CKPT_CHECK(read_surroundings(io, root, entries, metadata, map));
  map.metadata_hash = metadata.digest().hex();
  return map;
}

}  // namespace ckpt::safetensors
