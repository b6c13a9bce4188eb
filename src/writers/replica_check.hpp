#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/comm/comm.hpp"
#include "format/result.hpp"
#include "writers/save_table.hpp"

namespace ckpt {

/// Data that several ranks add to one save must be the same bytes: otherwise a checkpoint would mix two states, for
/// example when data-parallel ranks have drifted apart. Of replicas in the model a sample of each tensor is compared
/// (both ends, and blocks in between), of equal descriptions and blobs every byte. The comparison uses words in an
/// all-reduce that the save needs anyway; equal data is not sent. A rank that adds a replica through a callback, or not
/// at all, abstains.
class ReplicaCheck {
 public:
  /// `pieces`: added by this rank. They, the model and the table outlive this object.
  ReplicaCheck(const Model& model, const SaveTable& table, std::span<const Piece> pieces);

  /// Pairs of a word and its complement, 0 and 0 where this rank abstains; as many on all ranks.
  const std::vector<std::uint64_t>& words() const { return words_; }
  /// `told`: the maximum of all ranks' words. Collective where they differ. errors  usage, with the tensor
  Result<> judge(Comm& comm, Deadline deadline, std::span<const std::uint64_t> told) const;

 private:
  void add_groups();
  void add_shared();
  Result<> judge_group(Comm& comm, Deadline deadline, std::uint64_t number) const;

  const Model& model_;
  const SaveTable& table_;
  std::span<const Piece> pieces_;
  std::vector<const Piece*> by_row_{};  // of the model
  std::vector<std::uint64_t> words_{};
};

}  // namespace ckpt
