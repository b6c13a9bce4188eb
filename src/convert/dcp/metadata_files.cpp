#include "convert/dcp/metadata_files.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "convert/dcp/names.hpp"
#include "convert/metadata_memory.hpp"
#include "format/text/error_context.hpp"
#include "format/text/name_list.hpp"
#include "format/torch/dcp_merge.hpp"

namespace ckpt::dcp {
namespace {

constexpr std::uint64_t kComparedBytes = 64 << 20;      // of copies, in total
constexpr std::uint64_t kMetadataBatchBytes = 4 << 20;  // of copies in one batch

std::string name_of_rank(std::uint64_t rank) {
  return "__" + std::to_string(rank) + ".metadata";
}

Result<Metadata> read_one(Io& io, const std::string& root, const std::string& name, std::uint64_t& limit,
                          Hasher& hasher) {
  const std::string path = join_path(root, name);
  CKPT_TRY(const std::string text, read_metadata_file(io, path, MetadataCost::dcp_metadata, limit));
  limit -= text.size();
  hasher.update(text);
  // The columns that are made of the graph are smaller than it.
  auto metadata = parse_metadata(std::as_bytes(std::span(text)), pickle_budget(limit / 3 * 2));
  if (!metadata) {
    Error error = std::move(metadata).error();
    constexpr std::string_view kName = ".metadata: ";
    if (error.message.starts_with(kName)) error.message.erase(0, kName.size());
    return fail(with_file(with_context(std::move(error), path), path));
  }
  return metadata;
}

Result<> check_ranks(const std::string& root, const Directory& seen) {
  const std::uint64_t missing = seen.world_size - seen.metadata_ranks.size();
  if (missing == 0) return {};
  NameList names;
  std::optional<std::uint64_t> first;
  auto next = seen.metadata_ranks.begin();
  for (std::uint64_t rank = 0; rank < seen.world_size && names.count() < kNamesShown; ++rank) {
    if (next != seen.metadata_ranks.end() && *next == rank) {
      ++next;
    } else {
      names.add(name_of_rank(rank));
      if (!first) first = rank;
    }
  }
  names.add_unnamed(missing - names.count());
  return fail(Error{.code = Errc::incomplete,
                    .message = root + ": the metadata of " + std::to_string(missing) + " of " +
                               std::to_string(seen.world_size) + " ranks is missing: " + names.text(),
                    .file = join_path(root, name_of_rank(first.value_or(0))),
                    .hint = "each rank wrote its own (use_collectives=False): copy them from the nodes that did"});
}

/// A rank that writes its own metadata lists only its own data files, whose names begin with its number.
Result<> check_own(const Metadata& part, std::uint64_t rank, const std::string& path) {
  for (const DataFile& file : part.files) {
    const auto of = rank_of(file.path);
    if (!of || *of == rank) continue;
    return fail(Error{.code = Errc::corrupt,
                      .message = path + ": it lists " + file.path + ", a file of rank " + std::to_string(*of),
                      .file = path,
                      .hint = "it is a copy of another rank's file: copy it again from the node that wrote it"});
  }
  return {};
}

Extent bytes_of(const Metadata& metadata, const Entry& entry) {
  const std::uint64_t begin = metadata.item_offset[entry.first_item];
  return {begin, begin + metadata.item_length[entry.first_item]};
}

/// A copy and the entry it may be equal to: indices into the entries.
struct Pair {
  std::size_t first = 0;
  std::size_t copy = 0;
};

/// Marks the copies that equal the first.
Result<> compare(const Metadata& metadata, RangeReader& reader, std::vector<Pair>& pairs, std::vector<bool>& dropped) {
  std::vector<Range> wanted;
  for (const Pair& pair : pairs) {
    for (const std::size_t index : {pair.first, pair.copy}) {
      const Entry& entry = metadata.entries[index];
      wanted.push_back({metadata.item_file[entry.first_item], bytes_of(metadata, entry)});
    }
  }
  reader.drop();
  CKPT_CHECK(reader.read(wanted));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto first = reader.held(wanted[2 * i].file, wanted[2 * i].bytes);
    const auto copy = reader.held(wanted[2 * i + 1].file, wanted[2 * i + 1].bytes);
    dropped[pairs[i].copy] = std::equal(first.begin(), first.end(), copy.begin(), copy.end());
  }
  reader.drop();
  pairs.clear();
  return {};
}

}  // namespace

Result<Metadata> read_metadata(Io& io, const std::string& root, const Directory& seen, std::uint64_t limit,
                               Hasher& hasher) {
  if (seen.has_metadata) return read_one(io, root, ".metadata", limit, hasher);
  CKPT_CHECK(check_ranks(root, seen));
  MetadataMerge merge;
  const auto in_root = [&](Error error) {
    error.message = join_path(root, error.message);
    return error;
  };
  for (const std::uint64_t rank : seen.metadata_ranks) {
    const std::string name = name_of_rank(rank);
    CKPT_TRY(const Metadata part, read_one(io, root, name, limit, hasher));
    CKPT_CHECK(check_own(part, rank, join_path(root, name)));
    if (auto added = merge.add(part, name); !added) {
      return fail(with_file(in_root(std::move(added).error()), join_path(root, name)));
    }
  }
  auto merged = merge.finish();
  if (!merged) return fail(with_file(in_root(std::move(merged).error()), root));
  return merged;
}

Result<> drop_equal_copies(Metadata& metadata, RangeReader& reader, std::vector<Finding>& findings) {
  std::vector<bool> dropped(metadata.entries.size(), false);
  std::vector<Pair> pairs;
  std::size_t unseen = 0;
  std::size_t first = 0;
  std::uint64_t total = 0;
  std::uint64_t batch = 0;
  for (std::size_t i = 0; i < metadata.entries.size(); ++i) {
    if (metadata.entries[i].owner.empty()) {
      first = i;
      continue;
    }
    const std::uint64_t bytes = bytes_of(metadata, metadata.entries[i]).size();
    if (bytes != bytes_of(metadata, metadata.entries[first]).size() || bytes > kMetadataBatchBytes) continue;
    if (bytes > kComparedBytes - total) {
      dropped[i] = true;
      ++unseen;
      continue;
    }
    total += bytes;
    batch += bytes;
    pairs.push_back({first, i});
    if (batch >= kMetadataBatchBytes) {
      CKPT_CHECK(compare(metadata, reader, pairs, dropped));
      batch = 0;
    }
  }
  CKPT_CHECK(compare(metadata, reader, pairs, dropped));

  std::vector<Entry> kept;
  NameList differing;
  for (std::size_t i = 0; i < metadata.entries.size(); ++i) {
    if (dropped[i]) continue;
    kept.push_back(std::move(metadata.entries[i]));
    if (kept.back().owner.empty()) continue;
    differing.add(name_of(kept.back()).name);
  }
  metadata.entries = std::move(kept);
  if (differing.count() > 0) {
    findings.push_back({.severity = Severity::note,
                        .text = "values that differ between ranks are kept once per rank: " + differing.text()});
  }
  if (unseen > 0) {
    findings.push_back({.severity = Severity::warning,
                        .text = std::to_string(unseen) + " copies of values were not compared with the first " +
                                "rank's copies, which are used: more than " + std::to_string(kComparedBytes >> 20) +
                                " MiB in total"});
  }
  return {};
}

}  // namespace ckpt::dcp
