#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>

#include "engine/io/io.hpp"
#include "format/model/model.hpp"

/// Small files that belong to the weights (Map::extras). Opaque bytes: never parsed to decide what a tensor is, never
/// executed.
namespace ckpt {

constexpr std::uint64_t kLargestExtra = std::uint64_t{256} << 20;  ///< bytes of one file
constexpr std::uint64_t kLargestExtras = std::uint64_t{1} << 30;   ///< of all files of a folder
constexpr std::size_t kMostExtras = 4096;                          ///< files of a folder
constexpr std::uint64_t kLargestConfig = std::uint64_t{16} << 20;  ///< bytes of a config.json that is edited

/// The extras in a folder of a model: none if no file marks it as one (marks_model_folder). Files of the map, and its
/// extras, are skipped.
///
/// folder  "" = the map's root; else an absolute path: its files have such paths in Map::files, and are hashed into
///         Map::metadata_hash
/// errors  refused, with the file: an extra's name that is not a file, a link that leaves the folder (a link into the
///         blobs/ of a Hugging Face cache is followed), a file over the limits above
Result<> take_extras(Io& io, const std::string& root, const std::string& folder, Map& map);

/// The name of the blob that holds an extra, other than the names that are taken: "extras/config.json", or
/// "extras/extras/config.json".
std::string name_of_extra(const std::string& path, const std::unordered_set<std::string_view>& taken);

/// The bytes of an extra.
/// errors  corrupt: over `limit` bytes; those of Io
Result<std::string> read_extra(Io& io, const Map& map, const std::string& root, const Extra& extra,
                               std::uint64_t limit);

/// The hash of an extra's bytes, read piece by piece.
/// errors  as read_extra
Result<Hash128> hash_extra(Io& io, const Map& map, const std::string& root, const Extra& extra);
/// That of a file's bytes, from `begin` on.
/// errors  corrupt: it ends before; those of Io
Result<Hash128> hash_range(Io& io, const std::string& path, Extent range);

}  // namespace ckpt
