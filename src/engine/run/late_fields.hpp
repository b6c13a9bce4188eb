#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/io.hpp"
#include "engine/run/plan.hpp"
#include "format/result.hpp"

namespace ckpt {

/// The late fields of a plan's target files: takes the checksum of each covered range from the leaves as they are made,
/// in any order and on several ranks, and computes every field.
///
/// About 60 bytes per field and 5 per leaf; nothing without late fields. Thread-safe. May outlive the plan.
class LateFields {
 public:
  explicit LateFields(const std::vector<TargetFile>& files);

  bool empty() const { return fields_.empty(); }

  /// A leaf's bytes are complete: takes its part of every covered range, keeps what its fields hold, and masks them.
  ///
  /// file, leaf  index into the plan's targets, and of the leaf in that file
  void take(std::uint32_t file, std::uint64_t leaf, std::span<std::byte> bytes);
  /// Between hashing and writing a leaf: fills in the fields that are known by now.
  void fill(std::uint32_t file, std::uint64_t leaf, std::span<std::byte> bytes);

  /// Takes the state of `from`, of the same files, for leaves that are already in the target.
  ///
  /// leaves  one per leaf of all files, in order: whether to take its parts
  void adopt(const LateFields& from, const std::vector<bool>& leaves);

  /// All state of this rank, for another rank; and the state of another one.
  std::string packed_records() const;
  void absorb(std::string_view packed_records);

  /// Writes into the target the fields that no rank filled in before their leaf was written, each file's in few writes,
  /// and syncs those files. For the rank that has absorbed all others, when all leaves are written and synced.
  /// errors  internal: a part of a range was not taken; as Io
  Result<> write_rest(Io& io, const std::string& target_root) const;

  /// A field that does not hold the checksum of its range, of those that were read.
  struct Wrong {
    std::uint32_t file = 0;
    std::uint64_t offset = 0;  ///< of the field
    Extent covers{};
    std::uint32_t stored = 0;
    std::uint32_t computed = 0;
  };
  /// In order. Only fields that were read completely, and whose ranges were.
  std::vector<Wrong> wrong() const;

 private:
  /// A range and the checksums of its parts, one per leaf that it overlaps.
  struct Sum {
    Extent covers{};
    std::uint64_t first_part = 0;
    std::uint64_t missing = 0;  // parts
    std::uint32_t value = 0;    // once none is missing
  };
  struct Field {
    std::uint64_t offset = 0;
    std::uint32_t sum = 0;
    std::array<std::uint8_t, LateField::kBytes> found{};
    std::uint8_t found_bytes = 0;
    bool filled = false;
  };
  struct File {
    std::string path;
    std::uint64_t first_leaf = 0;  // of all files
    Extent sums{};                 // into sums_, by where their ranges begin
    Extent fields{};               // into fields_, by offset
  };
  struct Part {
    std::uint32_t crc = 0;
    bool known = false;
  };

  std::uint64_t first_leaf_of(const Sum& sum) const { return sum.covers.begin / kLeafBytes; }
  Extent sums_in(const File& file, Extent bytes) const;
  Extent fields_in(const File& file, Extent bytes) const;
  void set_part(Sum& sum, std::uint64_t part, std::uint32_t crc);
  Result<> write_file(Io& io, FileHandle handle, const File& file) const;

  std::vector<File> files_;
  std::vector<Sum> sums_;
  std::vector<Field> fields_;
  std::vector<Part> parts_;
  mutable std::mutex mutex_;  // guards the contents of the vectors; their lengths never change
};

}  // namespace ckpt
