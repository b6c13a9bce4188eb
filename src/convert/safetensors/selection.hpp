#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/io/io.hpp"
#include "format/hash.hpp"
#include "format/model/model.hpp"

namespace ckpt::safetensors {

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kSlicesDirectory = "sharded";  ///< HuggingFaceStorageWriter with consolidation

/// Which files of a directory make up the checkpoint.
struct Selection {
  std::vector<std::string> files{};                       ///< relative, in byte order
  bool indexed = false;                                   ///< `listed` is all there is in `files`
  std::unordered_map<std::string, std::string> listed{};  ///< tensor -> file
  /// model.safetensors or optimizer.safetensors next to an index of the other: part of the checkpoint if the same
  /// conversion wrote them, as recorded in their headers.
  std::vector<std::string> companions{};
  std::vector<Finding> findings{};
};

/// The file that an index belongs to: "model.safetensors.index.json" -> "model". Empty for other names.
std::string_view index_stem(std::string_view name);

/// errors   incomplete: a file that the index lists, or a number of a set ("-00002-of-00005"), is missing;
///          ambiguous: two indexes place one tensor in different files; corrupt, refused: as hf::parse_index; memory:
///          an index that may take more than `limit` bytes of memory
/// metadata receives the bytes of every index
Result<Selection> select_files(Io& io, const std::string& root, const std::vector<DirEntry>& entries,
                               std::uint64_t limit, Hasher& metadata);

/// Missing names of numbered sets among `names`, at most `limit` of them, and how many there are in total.
/// "shard-00003-model-00001-of-00002" counts for the set "model" of two, whichever rank wrote it.
struct MissingNames {
  std::vector<std::string> names{};
  std::uint64_t count = 0;
};
MissingNames missing_of_file_sets(const std::vector<std::string>& names, std::size_t limit);

/// True when all names are numbers of one set.
bool is_one_file_set(const std::vector<std::string>& names);

/// The rank that wrote a file of slices, counted from 1 ("shard-00003-model-..."), or 0.
std::uint64_t slice_rank(std::string_view name);

}  // namespace ckpt::safetensors
