#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "format/result.hpp"
#include "format/torch/dcp_metadata.hpp"

namespace ckpt::dcp {

/// Joins metadata files that the ranks of a save wrote each for itself (use_collectives=False: `__R.metadata`) into
/// one. Add them in the order of the ranks, then finish; it is spent then.
///
/// A box that several ranks hold has an item of each. Bytes that several ranks saved under one key are an entry of
/// each, one after the other: those of later ranks name their metadata file as Entry::owner. So are states of random
/// number generators (is_random_state).
class MetadataMerge {
 public:
  /// file    its name, for messages and as owner
  /// errors  corrupt, naming file and tensor: dtype or shape are not those of an earlier file, or one has a tensor
  /// where
  ///         the other has bytes
  Result<> add(const Metadata& part, const std::string& file);
  /// errors  corrupt, naming the tensor: two chunks of different sizes begin at one place
  Result<Metadata> finish();

 private:
  struct Row {
    std::uint32_t entry = 0;
    std::uint32_t file = 0;
    std::uint32_t part = 0;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint64_t bounds = 0;  ///< tensor: where its numbers begin in narrow_ or wide_
  };

  Result<std::uint32_t> entry_for(const Metadata& part, const Entry& entry, const std::string& file);
  std::uint32_t dtype_for(const std::string& name);
  std::uint32_t file_for(const DataFile& file);
  std::uint64_t bound(const Row& row, std::size_t index) const;
  int order(const Row& a, const Row& b, std::size_t bounds) const;
  void append(const Row& row);

  Metadata out_;  // entries, files, dtypes; its columns are filled by finish
  std::vector<std::string> parts_;
  std::vector<std::uint32_t> first_part_;  // one per entry
  std::vector<Row> rows_;
  std::vector<std::uint32_t> narrow_;
  std::vector<std::uint64_t> wide_;
  std::unordered_map<std::string, std::uint32_t> entry_of_;
  std::unordered_map<std::string, std::uint32_t> dtype_of_;
  std::unordered_map<std::string, std::uint32_t> file_of_;
};

}  // namespace ckpt::dcp
