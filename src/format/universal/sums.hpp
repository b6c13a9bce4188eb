#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/hash.hpp"
#include "format/result.hpp"

/// The universal sharded format: FORMAT.md in this folder's parent.
namespace ckpt::universal {

/// The class of a file of a checkpoint. Each file holds one class.
enum class FileClass : std::uint32_t { weights, optim, blobs, objects, index };
constexpr std::uint32_t kClassCount = 5;
std::string_view class_name(FileClass file_class);

/// Bytes of a leaf: 1 << kLeafShift.
constexpr unsigned kLeafShift = 22;
constexpr std::uint64_t leaf_count(std::uint64_t file_bytes) {
  return (file_bytes >> kLeafShift) + ((file_bytes & ((std::uint64_t{1} << kLeafShift) - 1)) != 0 ? 1 : 0);
}

/// The identity of a file; its path follows from it. Ordered as in sums.bin.
struct FileKey {
  FileClass file_class = FileClass::weights;
  std::uint32_t writer = 0;
  std::uint32_t volume = 0;
  auto operator<=>(const FileKey&) const = default;

  std::string path() const;  ///< relative to the checkpoint directory
};

/// One file of a checkpoint: FORMAT.md section 5.2.
struct FileRecord {
  FileKey key{};
  std::uint64_t bytes = 0;
  std::uint64_t data_begin = 0;  ///< classes 0 to 2: bytes from the start of the file; else 0
  std::uint64_t first_leaf = 0;  ///< index into Sums::leaves
  Hash128 root{};
};

/// sums.bin: the file table and the hashes.
struct Sums {
  Hash128 id{};
  std::vector<FileRecord> files{};  ///< sorted by key
  std::vector<Hash128> leaves{};    ///< of `files` in order

  std::span<const Hash128> leaves_of(const FileRecord& file) const {
    return std::span(leaves).subspan(file.first_leaf, leaf_count(file.bytes));
  }
};

/// The root of a file: FORMAT.md section 5.3.
Hash128 root_hash(const Hash128& id, std::string_view path, std::uint64_t file_bytes, std::span<const Hash128> leaves);

/// The bytes of sums.bin. Takes `files` with keys, sizes and data begins; fills in first leaves and roots.
/// internal: files out of order, or a number of leaves that is not theirs.
Result<std::string> build_sums(Sums& sums);

/// Reads sums.bin, all of it. Roots are not computed; compare them with root_hash before calling a file verified.
/// errors   those of checks 27, 28 and 30 to 32 of FORMAT.md section 10, with the offset
Result<Sums> parse_sums(std::span<const std::byte> data);

/// Whether a table that parse_sums reads is of version 0.9.
bool is_old_table(std::span<const std::byte> data);

}  // namespace ckpt::universal
