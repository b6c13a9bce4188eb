#include "convert/safetensors/selection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "convert/metadata_memory.hpp"
#include "format/files/hf_index.hpp"
#include "format/text/name_list.hpp"
#include "format/text/parse_number.hpp"

namespace ckpt::safetensors {
namespace {

constexpr std::array<std::string_view, 2> kOurStems{"model", "optimizer"};

/// A name of a numbered set: PREFIX-NUMBER-of-TOTAL.safetensors.
struct Numbered {
  std::string prefix;
  std::uint64_t number = 0;
  std::uint64_t total = 0;
  std::size_t digits = 0;
};

std::optional<Numbered> as_numbered(std::string_view name) {
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const std::size_t of = name.rfind("-of-");
  if (of == name.npos) return std::nullopt;
  const auto total = parse_number<std::uint64_t>(name.substr(of + 4));
  const std::size_t dash = name.substr(0, of).rfind('-');
  if (!total || dash == name.npos) return std::nullopt;
  const std::string_view digits = name.substr(dash + 1, of - dash - 1);
  const auto own = parse_number<std::uint64_t>(digits);
  if (!own || *own == 0 || *own > *total) return std::nullopt;
  std::string_view prefix = name.substr(0, dash);
  if (slice_rank(prefix) != 0) prefix.remove_prefix(prefix.find('-', prefix.find('-') + 1) + 1);
  return Numbered{std::string(prefix), *own, *total, digits.size()};
}

tl::unexpected<Error> missing_files(const std::string& root, const std::vector<std::string>& names, std::uint64_t count,
                                    std::string_view why) {
  NameList list;
  for (const std::string& name : names) list.add(name);
  list.add_unnamed(count - names.size());
  return fail({.code = Errc::incomplete,
               .message = fmt::format("{}: {} of its files {} missing: {} ({})", root, count, count == 1 ? "is" : "are",
                                      list.text(), why),
               .file = names.empty() ? root : join_path(root, names.front()),
               .hint = "copy or download the checkpoint again; ckpt does not convert incomplete checkpoints"});
}

bool is_there(Io& io, const std::string& root, const std::set<std::string_view>& names, const std::string& file) {
  if (file.find('/') == std::string::npos) return names.contains(file);
  return io.stat(join_path(root, file)).has_value();
}

/// The name of the file that holds what an index divides among its files: transformers loads it before it looks for an
/// index, and leaves the index where it is when it saves the one file.
/// source  transformers/modeling_utils.py: _get_resolved_checkpoint_files, save_pretrained
std::string single_file_of(std::string_view index) {
  return fmt::format("{}{}", index_stem(index), kSuffix);
}

/// Takes what the indexes list, and removes from them those that are left over: none of their files is there.
Result<> read_indexes(Io& io, const std::string& root, std::vector<std::string>& indexes,
                      const std::set<std::string_view>& names, std::uint64_t limit, Hasher& metadata, Selection& out) {
  std::set<std::string> files;
  std::vector<std::string> kept;
  for (const std::string& name : indexes) {
    const std::string path = join_path(root, name);
    CKPT_TRY(const std::string text, read_metadata_file(io, path, MetadataCost::json, limit, hf::kMaxIndexBytes));
    metadata.update_u64(name.size());
    metadata.update(name);
    metadata.update(text);
    auto index = hf::parse_index(text);
    if (!index) return fail(with_file(std::move(index).error(), path));
    const bool is_left_over = names.contains(single_file_of(name)) && !index->weight_map.empty() &&
                              std::ranges::none_of(index->weight_map, [&](const auto& listed) {
                                return is_there(io, root, names, listed.second);
                              });
    if (is_left_over) {
      out.findings.push_back({.severity = Severity::note,
                              .text = fmt::format("{} is left over from an earlier save: none of its files is here; "
                                                  "{} is read",
                                                  name, single_file_of(name)),
                              .file = name});
      continue;
    }
    kept.push_back(name);
    for (auto& [tensor, file] : index->weight_map) {
      files.insert(file);
      const auto [at, fresh] = out.listed.emplace(std::move(tensor), file);
      if (!fresh && at->second != file)
        return fail({.code = Errc::ambiguous,
                     .message = fmt::format("{}: two indexes list {}, in {} and {}", root, at->first, at->second, file),
                     .file = path,
                     .tensor = at->first,
                     .hint = "move the unwanted index and its files to a separate directory"});
    }
  }
  indexes = std::move(kept);
  std::vector<std::string> missing;
  for (const std::string& file : files) {
    if (!is_there(io, root, names, file)) missing.push_back(file);
  }
  if (!missing.empty()) return missing_files(root, missing, missing.size(), "listed in " + indexes.front());
  out.files.assign(files.begin(), files.end());
  return {};
}

/// With an index, files it does not list may be left over from an earlier save: they are named, not read.
void sort_out_unlisted(const std::vector<std::string>& shards, const std::vector<std::string>& indexes,
                       Selection& out) {
  std::vector<std::string> unlisted;
  for (const std::string& name : shards) {
    if (std::binary_search(out.files.begin(), out.files.end(), name)) continue;
    const std::string_view stem = std::string_view(name).substr(0, name.size() - kSuffix.size());
    const bool ours = std::find(kOurStems.begin(), kOurStems.end(), stem) != kOurStems.end();
    const bool has_index = std::any_of(indexes.begin(), indexes.end(),
                                       [&](const std::string& index) { return index_stem(index) == stem; });
    (ours && !has_index ? out.companions : unlisted).push_back(name);
  }
  if (unlisted.empty()) return;
  out.findings.push_back({.severity = Severity::note,
                          .text = fmt::format("{} not listed in the index, not read: {}",
                                              unlisted.size() == 1 ? "a file is" : "files are", name_list(unlisted)),
                          .file = unlisted.front()});
}

}  // namespace

std::string_view index_stem(std::string_view name) {
  if (!name.ends_with(kIndexSuffix)) return {};
  return name.substr(0, name.size() - kIndexSuffix.size());
}

std::uint64_t slice_rank(std::string_view name) {
  constexpr std::string_view kPrefix = "shard-";
  if (!name.starts_with(kPrefix)) return 0;
  name.remove_prefix(kPrefix.size());
  const std::size_t dash = name.find('-');
  if (dash == name.npos) return 0;
  return parse_number<std::uint64_t>(name.substr(0, dash)).value_or(0);
}

MissingNames missing_of_file_sets(const std::vector<std::string>& names, std::size_t limit) {
  std::map<std::tuple<std::string, std::uint64_t, std::size_t>, std::set<std::uint64_t>> sets;
  for (const std::string& name : names) {
    if (auto one = as_numbered(name)) sets[{std::move(one->prefix), one->total, one->digits}].insert(one->number);
  }
  MissingNames out;
  for (const auto& [key, present] : sets) {
    const auto& [prefix, total, digits] = key;
    out.count += total - present.size();
    // Stops after `limit` names: a total out of a file name may be anything.
    std::uint64_t next = 1;
    for (auto at = present.begin(); next <= total && out.names.size() < limit; ++next) {
      if (at != present.end() && *at == next) {
        ++at;
        continue;
      }
      out.names.push_back(fmt::format("{}-{:0{}}-of-{:0{}}{}", prefix, next, digits, total, digits, kSuffix));
    }
  }
  return out;
}

bool is_one_file_set(const std::vector<std::string>& names) {
  std::set<std::tuple<std::string, std::uint64_t, std::size_t>> sets;
  for (const std::string& name : names) {
    auto one = as_numbered(name);
    if (!one) return false;
    sets.emplace(std::move(one->prefix), one->total, one->digits);
  }
  return sets.size() == 1;
}

Result<Selection> select_files(Io& io, const std::string& root, const std::vector<DirEntry>& entries,
                               std::uint64_t limit, Hasher& metadata) {
  Selection out;
  std::vector<std::string> shards;
  std::vector<std::string> indexes;
  std::set<std::string_view> names;
  for (const DirEntry& entry : entries) {
    if (entry.kind != FileInfo::Kind::file) continue;
    names.insert(entry.name);
    if (entry.name.ends_with(kSuffix)) shards.push_back(entry.name);
    if (!index_stem(entry.name).empty()) indexes.push_back(entry.name);
  }
  CKPT_CHECK(read_indexes(io, root, indexes, names, limit, metadata, out));
  if (indexes.empty()) {
    const MissingNames missing = missing_of_file_sets(shards, kNamesShown);
    if (missing.count > 0) return missing_files(root, missing.names, missing.count, "by the numbers in their names");
    out.files = std::move(shards);
    return out;
  }
  out.indexed = true;
  sort_out_unlisted(shards, indexes, out);
  return out;
}

}  // namespace ckpt::safetensors
